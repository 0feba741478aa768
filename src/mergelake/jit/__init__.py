"""Machine code from Python functions: a compiler for byte loops, small because its language is.

A *kernel* is a Python function over addresses, whole numbers and numpy arrays, without objects and allocation. What it
needs is compiled when it is first called, by LLVM, for the processor at hand, and kept as object code in a cache that
later processes load: they compile nothing.

| module | what |
| --- | --- |
| `language` | kinds of values, and `intrinsic`: words of the language that write their own code |
| `compiler`, `expressions` | Python's syntax tree -> LLVM's intermediate language |
| `native` | LLVM: optimise, keep and load object code |
| `kernel` | the decorators; finding the machine code for a call |
| `intrinsics` | the words in which kernels read and write memory |
| `city_hash`, `city_hash128`, `sip_hash` | the hashes, as kernels |

The language: `int` is 64 bits and signed, `np.uint64` unsigned; the two do not mix (but shifts take any count), and a
number written in the source is of the kind that stands beside it. All arithmetic wraps. `//` and `%` are those of
Python for positive divisors; a divisor below 1 counts as 1. Shift counts are taken modulo 64. Elements of arrays are
widened to 64 bits when read, and cut when written; indexes are not checked and not counted from the end. There are
`if`, `while`, `for … in range(…)`, `and`, `or`, `not`, chained comparisons, conditional expressions, tuples for several
results, calls of other kernels and helpers, and `min max abs len int bool float np.int64 np.uint64 np.log2 np.log1p`.
What is not in the language is refused when it is compiled, with file and line.
"""
