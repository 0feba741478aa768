"""Kernels: functions that are compiled to machine code on their first call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from mergelake.core.jit.language import BOOL, FLOAT, INT, WORD, KernelError

F = TypeVar("F", bound=Callable[..., Any])

_KINDS: dict[Any, str] = {int: INT, np.uint64: WORD, bool: BOOL, float: FLOAT}
_KINDS |= {"int": INT, "np.uint64": WORD, "bool": BOOL, "float": FLOAT}
_C: dict[str, Any] = {
    INT: ctypes.c_int64, WORD: ctypes.c_uint64, BOOL: ctypes.c_bool, FLOAT: ctypes.c_double, "": None,
}  # fmt: skip


def kernel(function: F) -> F:
    """Decorator: compile the function on its first call with arguments of some kinds. It runs without the GIL.

    Parameters annotated `int`, `np.uint64`, `bool` or `float` take these; all others take numpy arrays of any type.
    """
    return cast("F", Kernel(cast("FunctionType", function)))


class Kernel:
    """A function and its machine code for each combination of argument kinds."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.__wrapped__ = function
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        self._kinds = tuple(_KINDS.get(function.__annotations__.get(name)) for name in names)
        self._whole = set(self._kinds) <= {INT}
        self._entries: dict[tuple[str, ...], Callable[..., Any]] = {}
        self._entry: Callable[..., Any] | None = None  # the only entry, if all parameters are integers

    def __repr__(self) -> str:
        return f"<kernel {self.__module__}.{self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__  # pickled by name, as functions are

    def __call__(self, *arguments: Any) -> Any:
        """Call the machine code."""
        if self._entry is not None:
            try:
                return self._entry(*arguments)
            except ctypes.ArgumentError:  # numpy scalars
                return self._entry(*map(int, arguments))
        if len(arguments) != len(self._kinds):
            raise KernelError(f"{self!r} takes {len(self._kinds)} arguments")
        kinds: list[str] = []
        codes: list[Any] = []
        for kind, argument in zip(self._kinds, arguments, strict=True):
            if kind is None:
                self._pass(argument, kinds, codes)
            else:
                kinds.append(kind)
                codes.append(float(argument) if kind == FLOAT else int(argument))
        key = tuple(kinds)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = self._load(key)
            if self._whole:
                self._entry = entry
        return entry(*codes)

    def _pass(self, argument: Any, kinds: list[str], codes: list[Any]) -> None:
        if isinstance(argument, np.ndarray):
            if not argument.flags.c_contiguous or argument.dtype.str[0] == ">":
                raise KernelError(f"{self!r} takes arrays without gaps")
            kinds.append(f"{argument.dtype.str[1:]}[{argument.ndim}]")
            codes.append(argument.__array_interface__["data"][0])
            codes.extend(argument.shape)
        else:
            raise KernelError(f"{self!r} takes arrays where no kind of number is annotated")

    def _load(self, kinds: tuple[str, ...]) -> Callable[..., Any]:
        from mergelake.core.jit.native import load

        def build(symbol: str) -> tuple[Any, str]:
            from mergelake.core.jit.compiler import compile_kernel

            return compile_kernel(self.function, kinds, symbol)

        known = blake2b(repr(kinds).encode())
        _digest(self.function, known, set())
        address, results = load(self.__name__, known.digest(), build)
        flat = [
            part
            for kind in kinds
            for part in ([INT] * (1 + int(kind[3])) if "[" in kind else [kind if kind == FLOAT else INT])
        ]
        parameters = [_C[part] for part in flat]
        if len(results) < 2:
            function: Callable[..., Any] = ctypes.CFUNCTYPE(_C[results], *parameters)(address)
            return function
        return _several(ctypes.CFUNCTYPE(None, *parameters, ctypes.c_int64)(address), results)


def _several(function: Callable[..., Any], results: str) -> Callable[..., Any]:
    """Wrap a C function that stores several results as a function that returns a tuple."""

    def call(*arguments: Any) -> tuple[Any, ...]:
        out = np.empty(len(results), np.int64)
        function(*arguments, out.ctypes.data)
        return tuple(_unpack(word, kind) for word, kind in zip(out, results, strict=True))

    return call


def _unpack(word: np.int64, kind: str) -> Any:
    if kind == FLOAT:
        return float(word.view(np.float64))
    if kind == WORD:
        return int(word.view(np.uint64))
    return bool(word) if kind == BOOL else int(word)


def _digest(meaning: Any, hasher: Any, seen: set[int]) -> None:
    """Hash everything that the code of a function depends on: bytecode, helpers and constants, recursively."""
    meaning = getattr(meaning, "function", meaning)
    if isinstance(meaning, FunctionType):
        if id(meaning) in seen:
            return
        seen.add(id(meaning))
        _digest(meaning.__code__, hasher, seen)
        cells = [cell.cell_contents for cell in meaning.__closure__ or ()]
        globals_used = [meaning.__globals__[name] for name in meaning.__code__.co_names if name in meaning.__globals__]
        for value in (*globals_used, *cells):
            _digest(value, hasher, seen)
    elif isinstance(meaning, CodeType):
        hasher.update(meaning.co_code + repr(meaning.co_names).encode() + repr(meaning.co_varnames).encode())
        for constant in meaning.co_consts:
            _digest(constant, hasher, seen)
    elif isinstance(meaning, tuple):
        for part in meaning:
            _digest(part, hasher, seen)
    elif isinstance(meaning, (int, float, str, np.generic, type(None))):
        hasher.update(f"{type(meaning).__name__} {meaning!r} ".encode())
