"""Errors: a small tree of kinds, with ClickHouse's error codes and names.

::

    MergelakeError (kind)
    ├── ConflictError       lost a commit race for good: refresh and try again
    ├── FencedError         a newer owner exists: stop
    ├── UnavailableError    store or network: retry with back-off
    ├── NotFoundError       also KeyError
    ├── InvalidInputError   also ValueError: change the call
    ├── CorruptDataError    object, byte offset, expected, found
    ├── UnsupportedError    valid ClickHouse, not ours (yet): names the feature
    └── InternalError       an invariant that did not hold: our bug

Callers act on the class; people search for the code and the name. `error(name, …)` chooses the class by the ClickHouse
name, so a call site states only the problem and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable

CLICKHOUSE_CODES: dict[str, int] = {
    "UNSUPPORTED_METHOD": 1,
    "UNEXPECTED_END_OF_FILE": 3,
    "CANNOT_PARSE_TEXT": 6,
    "THERE_IS_NO_COLUMN": 8,
    "NOT_FOUND_COLUMN_IN_BLOCK": 10,
    "DUPLICATE_COLUMN": 15,
    "NO_SUCH_COLUMN_IN_TABLE": 16,
    "NUMBER_OF_COLUMNS_DOESNT_MATCH": 20,
    "CANNOT_PARSE_ESCAPE_SEQUENCE": 25,
    "CANNOT_PARSE_QUOTED_STRING": 26,
    "CANNOT_PARSE_INPUT_ASSERTION_FAILED": 27,
    "CANNOT_READ_ALL_DATA": 33,
    "BAD_ARGUMENTS": 36,
    "UNKNOWN_FORMAT": 73,
    "CHECKSUM_DOESNT_MATCH": 40,
    "CANNOT_PARSE_DATETIME": 41,
    "NUMBER_OF_ARGUMENTS_DOESNT_MATCH": 42,
    "ILLEGAL_TYPE_OF_ARGUMENT": 43,
    "ILLEGAL_COLUMN": 44,
    "CYCLIC_ALIASES": 174,
    "UNKNOWN_FUNCTION": 46,
    "UNKNOWN_IDENTIFIER": 47,
    "NOT_IMPLEMENTED": 48,
    "LOGICAL_ERROR": 49,
    "UNKNOWN_TYPE": 50,
    "EMPTY_LIST_OF_COLUMNS_QUERIED": 51,
    "COLUMN_QUERIED_MORE_THAN_ONCE": 52,
    "TYPE_MISMATCH": 53,
    "UNKNOWN_STORAGE": 56,
    "TABLE_ALREADY_EXISTS": 57,
    "UNKNOWN_TABLE": 60,
    "SYNTAX_ERROR": 62,
    "UNKNOWN_AGGREGATE_FUNCTION": 63,
    "CANNOT_CONVERT_TYPE": 70,
    "CANNOT_PARSE_NUMBER": 72,
    "UNKNOWN_DATABASE": 81,
    "DATABASE_ALREADY_EXISTS": 82,
    "DIRECTORY_ALREADY_EXISTS": 84,
    "INCORRECT_FILE_NAME": 79,
    "UNKNOWN_COMPRESSION_METHOD": 89,
    "CANNOT_INSERT_VALUE_OF_DIFFERENT_SIZE_INTO_TUPLE": 120,
    "UNKNOWN_SETTING": 115,
    "INCORRECT_DATA": 117,
    "INCOMPATIBLE_COLUMNS": 122,
    "UNEXPECTED_AST_STRUCTURE": 223,
    "UNEXPECTED_EXPRESSION": 183,
    "INCORRECT_RESULT_OF_SCALAR_SUBQUERY": 125,
    "ENGINE_REQUIRED": 119,
    "READONLY": 164,
    "TABLE_IS_READ_ONLY": 242,
    "BAD_TYPE_OF_FIELD": 169,
    "ILLEGAL_FINAL": 181,
    "UNFINISHED": 341,
    "ALTER_OF_COLUMN_IS_FORBIDDEN": 524,
    "DEDUPLICATION_IS_NOT_POSSIBLE": 764,
    "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN": 349,
    "BAD_DATA_PART_NAME": 233,
    "NO_SUCH_DATA_PART": 232,
    "NOT_ENOUGH_SPACE": 243,
    "INVALID_PARTITION_VALUE": 248,
    "TOO_MANY_PARTS": 252,
    "CORRUPTED_DATA": 246,
    "TOO_DEEP_RECURSION": 306,
    "TOO_DEEP_AST": 167,
    "UNKNOWN_ELEMENT_OF_ENUM": 691,
    "CANNOT_ASSIGN_OPTIMIZE": 388,
    "MULTIPLE_ASSIGNMENTS_TO_COLUMN": 419,
    "CANNOT_UPDATE_COLUMN": 420,
    "TOO_MANY_MUTATIONS": 692,
    "CANNOT_PARSE_DATE": 38,
    "CANNOT_PARSE_UUID": 376,
    "ARGUMENT_OUT_OF_BOUND": 69,
    "DECIMAL_OVERFLOW": 407,
    "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE": 321,
    "EMPTY_LIST_OF_COLUMNS_PASSED": 90,
    "EMPTY_DATA_PASSED": 92,
    "QUERY_WAS_CANCELLED": 394,
    "ABORTED": 236,
    "BAD_SIZE_OF_FILE_IN_DATA_PART": 228,
    "SIZES_OF_ARRAYS_DONT_MATCH": 190,
    "S3_ERROR": 499,
    "CANNOT_READ_FROM_FILE_DESCRIPTOR": 74,
    "FILE_DOESNT_EXIST": 107,
    "NO_DATA_TO_INSERT": 108,
    "CANNOT_OPEN_FILE": 76,
    "NETWORK_ERROR": 210,
    "UNKNOWN_FORMAT_VERSION": 287,
    "NO_FILE_IN_DATA_PART": 226,
    "CANNOT_DECOMPRESS": 271,
    "SUPPORT_IS_DISABLED": 344,
    "NOT_AN_AGGREGATE": 215,
    "ILLEGAL_AGGREGATION": 184,
    "NO_SUCH_PROJECTION_IN_TABLE": 582,
    "ILLEGAL_PROJECTION": 583,
    "DATA_TYPE_CANNOT_BE_USED_IN_KEY": 549,
    "DATA_TYPE_CANNOT_BE_USED_IN_TABLES": 370,
    "SETTING_CONSTRAINT_VIOLATION": 452,
    "VIOLATED_CONSTRAINT": 469,
    "READONLY_SETTING": 472,
    "ZERO_ARRAY_OR_TUPLE_INDEX": 135,
    "TOO_LARGE_STRING_SIZE": 131,
    "TOO_LARGE_ARRAY_SIZE": 128,
    "SAMPLING_NOT_SUPPORTED": 141,
    "NO_COMMON_TYPE": 386,
    "ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER": 59,
    "ILLEGAL_DIVISION": 153,
    "CANNOT_PARSE_BOOL": 467,
    "CANNOT_PARSE_IPV4": 675,
    "CANNOT_PARSE_IPV6": 676,
    "CANNOT_COMPILE_REGEXP": 427,
    "ATTEMPT_TO_READ_AFTER_EOF": 32,
    "BAD_GET": 170,
    "DATA_TYPE_CANNOT_HAVE_ARGUMENTS": 378,
    "ILLEGAL_SYNTAX_FOR_CODEC_TYPE": 431,
    "UNKNOWN_CODEC": 432,
    "BAD_TTL_EXPRESSION": 450,
    "UNKNOWN_POLICY": 478,
    "ILLEGAL_CODEC_PARAMETER": 433,
    "ILLEGAL_INDEX": 127,
    "INCORRECT_QUERY": 80,
    "INFINITE_LOOP": 269,
    "ILLEGAL_PREWHERE": 182,
    "CANNOT_EXTRACT_TABLE_STRUCTURE": 636,
    "UNKNOWN_QUERY_PARAMETER": 456,
    "BAD_QUERY_PARAMETER": 457,
    "TOO_MANY_ROWS": 158,
    "TOO_MANY_BYTES": 307,
    "TOO_MANY_PARTITIONS": 565,
    "QUERY_IS_PROHIBITED": 392,
    "ILLEGAL_SYNTAX_FOR_DATA_TYPE": 377,
    "KEEPER_EXCEPTION": 999,
    "ACCESS_DENIED": 497,
    "MEMORY_LIMIT_EXCEEDED": 241,
    "LIMIT_EXCEEDED": 290,
    "SET_SIZE_LIMIT_EXCEEDED": 191,
    "TIMEOUT_EXCEEDED": 159,
}
"""ClickHouse error names that we raise, with their numbers. Source: ClickHouse, `src/Common/ErrorCodes.cpp`."""


def there_are(what: str, names: Iterable[str], most: int = 20) -> str:
    """A hint that lists the existing names: `There are columns a, b`, or `There are no columns`."""
    listed = list(names)
    if not listed:
        return f"There are no {what}"
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"There are {what} {', '.join(listed[:most])}{more}"


class MergelakeError(Exception):
    """Root of every error of this package.

    `str(error)` has the problem, the hint, and ClickHouse's name and code.
    """

    kind = "error"

    def __init__(self, message: str, *, name: str = "", hint: str = "") -> None:
        self.message = message
        """The problem, in one or two sentences."""
        self.name = name
        """ClickHouse's error name, or empty."""
        self.code = CLICKHOUSE_CODES.get(name, 0)
        """ClickHouse's error number, or 0."""
        self.hint = hint
        """What to do about it, or empty."""
        self.column = ""
        """The column of the invalid data, or empty."""
        self.row: int | None = None
        """Row of the invalid data, from 0, or None."""
        super().__init__(message)

    @property
    def what(self) -> str:
        """The message with the column and the row."""
        places = [f"column {self.column}"] * bool(self.column) + [f"row {self.row}"] * (self.row is not None)
        return f"{self.message} ({', '.join(places)})" if places else self.message

    def __str__(self) -> str:
        text = self.what
        if self.hint:
            text = f"{text.rstrip('.')}. {self.hint}"
        if self.name:
            text = f"Code: {self.code}. {text} ({self.name})" if self.code else f"{text} ({self.name})"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles exceptions, and the default does not restore keyword-only arguments.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[MergelakeError], args: tuple[object, ...], state: dict[str, object]) -> MergelakeError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ConflictError(MergelakeError):
    """Lost a commit race for good: refresh and try again."""

    kind = "conflict"


class FencedError(MergelakeError):
    """A newer owner exists: stop."""

    kind = "fenced"


class UnavailableError(MergelakeError):
    """The store or the network did not answer: retry with back-off."""

    kind = "unavailable"


class NotFoundError(MergelakeError, KeyError):
    """A table, part, object or version that does not exist."""

    kind = "not_found"
    __str__ = MergelakeError.__str__


class InvalidInputError(MergelakeError, ValueError):
    """The call was wrong: nothing has been written; change the call."""

    kind = "invalid_input"


class UnexpectedTokenError(InvalidInputError):
    """A statement that cannot be parsed because of an unexpected token."""

    def __init__(self, message: str, *, name: str = "SYNTAX_ERROR", hint: str = "", found: str = "") -> None:
        super().__init__(message, name=name, hint=hint)
        self.found = found
        """The unexpected token, as errors show it."""


class CorruptDataError(MergelakeError):
    """Stored bytes are invalid."""

    kind = "corrupt"

    def __init__(
        self,
        message: str,
        *,
        name: str = "CORRUPTED_DATA",
        hint: str = "",
        object_key: str = "",
        offset: int = -1,
        expected: str = "",
        found: str = "",
    ) -> None:
        super().__init__(message, name=name, hint=hint)
        self.object_key = object_key
        """Object (or file) that holds the bytes; filled in by the room that knows it."""
        self.offset = offset
        """Byte offset in the object, or -1."""
        self.expected = expected
        self.found = found
        self.file = ""
        """Name of the part's file that holds the bytes, or empty."""

    @property
    def what(self) -> str:
        """The message with the name of the file."""
        return f"{self.message.rstrip('.')} (file {self.file})" if self.file else self.message

    def __str__(self) -> str:
        where = f" in {self.object_key}" if self.object_key else ""
        at = f" at offset {self.offset}" if self.offset >= 0 else ""
        seen = f": expected {self.expected}, found {self.found}" if self.expected or self.found else ""
        text = f"{self.what.rstrip('.')}{where}{at}{seen}"
        if self.hint:
            text = f"{text}. {self.hint}"
        return f"Code: {self.code}. {text} ({self.name})"


class UnsupportedError(MergelakeError):
    """Valid ClickHouse that is not supported (yet); names the feature."""

    kind = "unsupported"


class InternalError(MergelakeError):
    """An invariant did not hold: our bug."""

    kind = "internal"


_NOT_FOUND = {"UNKNOWN_TABLE", "UNKNOWN_DATABASE", "NO_SUCH_DATA_PART"}
_UNSUPPORTED = {"NOT_IMPLEMENTED", "SUPPORT_IS_DISABLED", "UNSUPPORTED_METHOD"}


def error(name: str, message: str, hint: str = "") -> MergelakeError:
    """An error with ClickHouse's `name`, of the matching class: `raise error("UNKNOWN_TABLE", "…", "…")`."""
    if name in _NOT_FOUND:
        return NotFoundError(message, name=name, hint=hint)
    if name in _UNSUPPORTED:
        return UnsupportedError(message, name=name, hint=hint)
    return InvalidInputError(message, name=name, hint=hint)
