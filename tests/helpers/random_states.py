"""Calls of aggregate functions over all kinds of arguments, for states of every function that we can cut."""

from __future__ import annotations

from collections.abc import Iterator

ARGUMENTS = {
    "UInt8": "number * 7 % 100",
    "Int8": "number % 100",
    "UInt16": "number % 1000",
    "Int64": "-toInt64(number)",
    "UInt64": "number",
    "Int128": "number",
    "Int256": "number",
    "Float32": "number / 7",
    "Float64": "number / 3",
    "BFloat16": "number",
    "Bool": "number % 2",
    "Decimal(9, 2)": "number % 1000",
    "Decimal(38, 2)": "number",
    "Decimal(60, 3)": "number",
    "Date": "number",
    "Date32": "number",
    "DateTime": "number",
    "DateTime64(3)": "number",
    "Enum8('a' = 1, 'b' = 2)": "number % 2 + 1",
    "UUID": "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')",
    "IPv4": "number",
    "IPv6": "toIPv6(number)",
    "IntervalDay": "number",
    "String": "repeat('x', number % 200)",
    "FixedString(5)": "toString(number % 100)",
    "LowCardinality(String)": "toString(number % 50)",
    "Nullable(Int32)": "if(number % 3 = 0, NULL, number)",
    "Nullable(Float64)": "if(number % 3 = 0, NULL, number)",
    "Nullable(String)": "if(number % 3 = 0, NULL, toString(number))",
    "Array(UInt16)": "range(number % 4)",
    "Array(String)": "arrayMap(x -> toString(x), range(number % 4))",
    "Array(Nullable(UInt8))": "[number % 5, NULL]",
    "Tuple(UInt8, String)": "(number % 5, 'q')",
    "Tuple(a UInt8, b Nullable(Date))": "(number % 5, NULL)",
    "Map(String, UInt16)": "map(toString(number % 5), number)",
    "Map(UInt8, Float64)": "map(number % 5, number)",
    "Map(String, String)": "map('a', toString(number))",
}
_ONE = """
sum sumWithOverflow sumKahan sumCount avg min max any anyLast anyHeavy first_value any_respect_nulls
anyLast_respect_nulls singleValueOrNull groupBitAnd groupBitOr groupBitXor groupBitmap varPop stddevSamp
varSampStable skewPop kurtSamp uniq uniqExact uniqCombined uniqCombined(12) uniqCombined64 uniqHLL12 uniqUpTo(3)
uniqUpTo(100) topK(2) approx_top_k(3,5) groupArray groupArray(3) groupUniqArray groupUniqArray(2) groupArrayLast(2)
groupArraySample(2,7) groupArraySorted(2) groupArrayMovingSum groupArrayMovingSum(2) groupArrayMovingAvg
groupArrayIntersect groupConcat groupConcat(',') groupConcat(',',3) quantile quantiles(0.1,0.9) median quantileExact
quantilesExactLow(0.5) quantileExactHigh quantileExactExclusive(0.3) quantileExactInclusive quantileTiming
quantileTDigest quantilesTDigest(0.1,0.2) quantileBFloat16 quantileGK(100) histogram(3) entropy deltaSum
distinctDynamicTypes estimateCompressionRatio gini sumOrNull sumOrDefault maxOrNull uniqOrDefault avgOrNull
quantileOrNull sumDistinct groupArrayDistinct uniqDistinct countDistinct sumArray maxArray groupArrayArray
quantileArray uniqArray sumForEach avgForEach groupArrayForEach maxForEach sumMap avgMap maxMap minMap uniqMap
groupArrayMap groupBitAndOrNull sumArrayOrNull groupArrayOrDefault sumOrNullForEach
"""
_TWO = """
argMin argMax argAndMin avgWeighted covarPop corr covarSampStable corrStable simpleLinearRegression regr_slope
regr_count meanZTest(1,1,0.9) studentTTest welchTTest studentTTestOneSample mannWhitneyUTest
kolmogorovSmirnovTest('two-sided') rankCorr analysisOfVariance topKWeighted(2) approx_top_sum(2,4)
quantileExactWeighted cramersV contingency theilsU quantileInterpolatedWeighted quantileExactWeightedInterpolated
quantileTimingWeighted quantileDeterministic quantileTDigestWeighted quantileBFloat16Weighted boundingRatio
deltaSumTimestamp exponentialMovingAverage(5) intervalLengthSum maxIntersections maxIntersectionsPosition uniq
uniqExact uniqCombined uniqHLL12 uniqUpTo(3) entropy corrMatrix covarPopMatrix sumIf maxIf groupArrayIf uniqIf
quantileIf avgOrNullIf sumResample(0,3,1) groupArrayResample(0,10,5) sumArgMin maxArgMax sumMap minMap
sumMapWithOverflow argMinIf countIf groupBitmapIf topKIf(2)
"""
_LEFT = (
    "UInt8", "Int64", "Float32", "Float64", "String", "Nullable(Int32)", "Decimal(9, 2)", "Date", "DateTime",
    "Array(UInt16)", "Array(String)",
)  # fmt: skip
_RIGHT = ("UInt8", "UInt64", "Int8", "Float64", "Float32", "Nullable(Int32)", "Array(UInt16)", "Date")
_MORE = [
    ("groupArrayInsertAt", "String UInt8"),
    ("groupArrayInsertAt", "Nullable(Int32) UInt8"),
    ("windowFunnel(10)", "DateTime UInt8 UInt8"),
    ("windowFunnel(10,'strict_once')", "DateTime UInt8 UInt8"),
    ("windowFunnel(10,'strict_order')", "UInt64 UInt8 UInt8"),
    ("sequenceMatch('(?1)(?2)')", "DateTime UInt8 UInt8"),
    ("sequenceCount('(?1)(?2)')", "UInt64 UInt8 UInt8"),
    ("sequenceMatchEvents('(?1)')", "Date UInt8 UInt8"),
    ("retention", "UInt8 UInt8 UInt8"),
    ("sumMap", "Array(UInt16) Array(UInt16) Array(UInt16)"),
    ("corrMatrix", "UInt8 Float64 Float64"),
    ("categoricalInformationValue", "UInt8 UInt8 UInt8"),
    ("argMinIf", "String UInt64 UInt8"),
    ("uniqExact", "UInt8 String Date"),
]


def state_calls() -> Iterator[str]:
    """ClickHouse calls that give a state over `number`; not every function takes every argument."""
    for function in _ONE.split():
        for kind in ARGUMENTS:
            yield _call(function, [kind])
    for function in _TWO.split():
        for left in _LEFT:
            for right in _RIGHT:
                yield _call(function, [left, right])
    for function, kinds in _MORE:
        yield _call(function, kinds.split(" "))


def _call(function: str, kinds: list[str]) -> str:
    name, bracket, parameters = function.partition("(")
    values = ["CAST({}, '{}')".format(ARGUMENTS[kind], kind.replace("'", "\\'")) for kind in kinds]
    return f"{name}State{bracket}{parameters}({', '.join(values)})"
