"""Machine code from Python functions: a small compiler for byte loops.

A *kernel* is a Python function on addresses, integers and numpy arrays, without objects and allocation. It is compiled
on the first call, by LLVM, for the current processor. The object code is cached on disk, so later processes compile
nothing.

| module | what |
| --- | --- |
| `language` | kinds of values, and `intrinsic`: functions of the language that emit LLVM code |
| `compiler`, `expressions` | Python's syntax tree -> LLVM's intermediate representation |
| `native` | LLVM: optimise, cache and load object code |
| `kernel` | the decorators; look-up of the machine code for a call |
| `intrinsics` | functions by which kernels read and write memory |
| `city_hash`, `city_hash128`, `sip_hash` | the hashes, as kernels |

The language: `int` is 64 bits and signed, `np.uint64` unsigned; the two do not mix (except that shifts take any count),
and a literal has the kind of the other operand. All arithmetic wraps. `//` and `%` are those of Python for positive
divisors; a divisor below 1 counts as 1. Shift counts are taken modulo 64. Elements of arrays are widened to 64 bits
when read and truncated when written; indexes are not checked and cannot be negative. There are `if`, `while`,
`for … in range(…)`, `and`, `or`, `not`, chained comparisons, conditional expressions, tuples for several results, calls
of other kernels and helpers, and `min max abs len int bool float np.int64 np.uint64 np.log2 np.log1p`. Anything else is
refused by the compiler, with file and line.
"""
