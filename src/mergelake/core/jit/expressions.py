"""Expressions of a kernel as LLVM's intermediate representation.

An expression is a `Value`, a `KernelArray`, a tuple of them, or a Python object that is known at compile time: a
literal, a function, an intrinsic.
"""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir

from mergelake.core.jit.language import (
    BOOL,
    FLOAT,
    INT,
    POINTER,
    TYPES,
    WORD,
    Intrinsic,
    KernelArray,
    KernelError,
    Value,
    f64,
    i1,
    i8,
    i64,
)

_FOLD: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_PLAIN = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_FLOATING = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_ORDER = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_NARROW = {np.uint8: (8, False), np.uint16: (16, False), np.uint32: (32, False), np.int32: (32, True)}


def function_of(callee: Any) -> FunctionType | None:
    """The Python function of a kernel or helper."""
    function = getattr(callee, "function", callee)
    return function if isinstance(function, FunctionType) else None


def to_word(builder: Any, value: Value) -> Any:
    """A result as the 64-bit word that is returned."""
    if value.kind == BOOL:
        return builder.zext(value.code, i64)
    return builder.bitcast(value.code, i64) if value.kind == FLOAT else value.code


def from_word(builder: Any, kind: str, word: Any) -> Any:
    """The result in a word that was returned."""
    if kind == BOOL:
        return builder.trunc(word, i1)
    return builder.bitcast(word, f64) if kind == FLOAT else word


class Expressions(ABC):
    """Compiles the expressions of a function."""

    _builder: Any
    """Builder of the current block."""
    _entry: Any
    """Builder of the first block, which allocates stack slots."""
    _llvm: ir.Function
    _names: dict[str, Any]
    """Names that are defined outside of the function."""
    _slots: dict[str, Value]
    """Variables: kind and address on the stack."""
    _arrays: dict[str, KernelArray]

    @abstractmethod
    def _refuse(self, why: str) -> KernelError:
        """An error with the current line."""

    @abstractmethod
    def _compiled(self, function: FunctionType, kinds: tuple[str, ...]) -> tuple[ir.Function, str]:
        """The LLVM function for parameters of these kinds, and the kinds of its results."""

    @abstractmethod
    def _external(self, name: str) -> ir.Function:
        """A C function from a double to a double."""

    def _expression(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self._name(name)
            case ast.Attribute(owner, name):
                owned = self._expression(owner)
                return owned.shape if isinstance(owned, KernelArray) else getattr(owned, name)
            case ast.Tuple(parts):
                return tuple(self._expression(part) for part in parts)
            case ast.BinOp(left, op, right):
                return self._operate(type(op), self._expression(left), self._expression(right))
            case ast.UnaryOp(op, operand):
                return self._unary(type(op), self._expression(operand))
            case ast.BoolOp(op, parts):
                return self._shortcut(isinstance(op, ast.And), parts)
            case ast.Compare(left, ops, rights):
                return self._comparison(left, ops, rights)
            case ast.IfExp(test, then, other):
                return self._choice(test, then, other)
            case ast.Subscript():
                return self._element(node)
            case ast.Call(callee, arguments):
                return self._call(self._expression(callee), arguments)
        raise self._refuse(f"{type(node).__name__} is not in the language")

    def _name(self, name: str) -> Any:
        if name in self._arrays:
            return self._arrays[name]
        if name in self._slots:
            slot = self._slots[name]
            return Value(slot.kind, self._builder.load(slot.code))
        if name not in self._names:
            raise self._refuse(f"{name} has no value yet")
        referent = self._names[name]
        if isinstance(referent, np.uint64):
            return Value(WORD, i64(int(referent)))
        return int(referent) if isinstance(referent, np.integer) else referent

    def _value(self, operand: Any) -> Value:
        """A number as a `Value`; integer literals are ints."""
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, bool):
            return Value(BOOL, i1(int(operand)))
        if isinstance(operand, int):
            return Value(INT, i64(operand))
        if isinstance(operand, float):
            return Value(FLOAT, f64(operand))
        raise self._refuse(f"{operand!r} is not a number")

    def _as(self, operand: Any, kind: str) -> Value:
        """Convert a number to `kind` if that is lossless, else refuse it."""
        if isinstance(operand, int) and not isinstance(operand, bool) and kind in (INT, WORD, FLOAT):
            if kind == FLOAT:
                return Value(kind, f64(float(operand)))
            return Value(kind, i64(operand & 0xFFFFFFFFFFFFFFFF if kind == WORD else operand))
        value = self._value(operand)
        if value.kind == kind:
            return value
        if value.kind == BOOL and kind in (INT, WORD):
            return Value(kind, self._builder.zext(value.code, i64))
        if kind == FLOAT and value.kind == INT:
            return Value(FLOAT, self._builder.sitofp(value.code, f64))
        raise self._refuse(f"a value of kind {value.kind} where {kind} is needed: np.int64 or np.uint64 convert it")

    def _alike(self, left: Any, right: Any) -> tuple[Value, Value]:
        """Two numbers as values of one kind."""
        kinds = {v.kind for v in (left, right) if isinstance(v, Value)}
        kinds |= {FLOAT for v in (left, right) if isinstance(v, float)}
        kind = next((k for k in (FLOAT, WORD, INT) if k in kinds), INT)
        if kinds == {BOOL} and all(isinstance(v, (bool, Value)) for v in (left, right)):
            kind = BOOL
        return self._as(left, kind), self._as(right, kind)

    def _operate(self, op: type[ast.AST], left: Any, right: Any) -> Any:
        if not isinstance(left, Value) and not isinstance(right, Value):
            return _FOLD[op](left, right)
        builder = self._builder
        if op in (ast.LShift, ast.RShift):
            left = self._value(left)
            right = self._value(right)
            count = right.code if isinstance(right.code, ir.Constant) else builder.and_(right.code, i64(63))
            shift = builder.shl if op is ast.LShift else (builder.ashr if left.kind == INT else builder.lshr)
            return Value(left.kind, shift(left.code, count))
        a, b = self._alike(left, right)
        if op is ast.Div:
            a, b = self._as(a, FLOAT), self._as(b, FLOAT)
        if a.kind == FLOAT:
            if op not in _FLOATING:
                raise self._refuse("not an operation on floats")
            return Value(FLOAT, getattr(builder, _FLOATING[op])(a.code, b.code))
        if op in (ast.FloorDiv, ast.Mod):
            return Value(a.kind, self._divide(op is ast.Mod, a, b))
        if a.kind == BOOL and op not in (ast.BitAnd, ast.BitOr, ast.BitXor):
            a, b = self._as(a, INT), self._as(b, INT)
        if op not in _PLAIN:
            raise self._refuse(f"{op.__name__} is not in the language")
        return Value(a.kind, getattr(builder, _PLAIN[op])(a.code, b.code))

    def _divide(self, rest: bool, a: Value, b: Value) -> Any:
        builder, divisor = self._builder, b.code
        if a.kind == WORD:
            if not isinstance(divisor, ir.Constant):
                divisor = builder.select(builder.icmp_unsigned("==", divisor, i64(0)), i64(1), divisor)
            return (builder.urem if rest else builder.udiv)(a.code, divisor)
        if not isinstance(divisor, ir.Constant):
            divisor = builder.select(builder.icmp_signed("<", divisor, i64(1)), i64(1), divisor)
        left = builder.srem(a.code, divisor)
        below = builder.icmp_signed("<", left, i64(0))
        if rest:
            return builder.select(below, builder.add(left, divisor), left)
        return builder.sub(builder.sdiv(a.code, divisor), builder.zext(below, i64))

    def _unary(self, op: type[ast.AST], operand: Any) -> Any:
        if not isinstance(operand, Value) and op is not ast.Not:
            return operator.neg(operand) if op is ast.USub else operator.invert(operand)
        if op is ast.Not:
            return Value(BOOL, self._builder.not_(self._truth(operand)))
        if op is ast.USub:
            return self._operate(ast.Sub, 0.0 if operand.kind == FLOAT else 0, operand)
        return Value(operand.kind, self._builder.not_(operand.code))

    def _truth(self, operand: Any) -> Any:
        value = self._value(operand)
        if value.kind == BOOL:
            return value.code
        if value.kind == FLOAT:
            return self._builder.fcmp_unordered("!=", value.code, f64(0.0))
        return self._builder.icmp_signed("!=", value.code, i64(0))

    def _shortcut(self, both: bool, parts: Sequence[ast.expr]) -> Value:
        """`and` and `or` with short-circuit evaluation."""
        slot = self._entry.alloca(i1)
        after = self._llvm.append_basic_block("known")
        for part in parts:
            truth = self._truth(self._expression(part))
            self._builder.store(truth, slot)
            if part is parts[-1]:
                self._builder.branch(after)
                continue
            more = self._llvm.append_basic_block("more")
            self._builder.cbranch(truth, *((more, after) if both else (after, more)))
            self._builder.position_at_end(more)
        self._builder.position_at_end(after)
        return Value(BOOL, self._builder.load(slot))

    def _comparison(self, left: ast.expr, ops: Sequence[ast.cmpop], rights: Sequence[ast.expr]) -> Any:
        result: Any = None
        low = self._expression(left)
        for op, right in zip(ops, rights, strict=True):
            high = self._expression(right)
            truth = self._compare(_ORDER[type(op)], low, high)
            result = (
                truth if result is None else Value(BOOL, self._builder.and_(self._truth(result), self._truth(truth)))
            )
            low = high
        return result

    def _compare(self, order: str, left: Any, right: Any) -> Any:
        a, b = self._alike(left, right)
        builder = self._builder
        if a.kind == FLOAT:
            compare = builder.fcmp_unordered if order == "!=" else builder.fcmp_ordered
        else:
            compare = builder.icmp_signed if a.kind == INT else builder.icmp_unsigned
        return Value(BOOL, compare(order, a.code, b.code))

    def _choice(self, test: ast.expr, then: ast.expr, other: ast.expr) -> Any:
        truth = self._truth(self._expression(test))
        blocks = [self._llvm.append_basic_block(name) for name in ("then", "else", "chosen")]
        self._builder.cbranch(truth, blocks[0], blocks[1])
        branches = []
        for block, branch in zip(blocks, (then, other), strict=False):
            self._builder.position_at_end(block)
            value = self._expression(branch)
            branches.append((value, self._builder.block))
        kinds = self._kind_of(branches[0][0], branches[1][0])
        self._builder.position_at_end(blocks[2])
        chosen = self._builder.phi(TYPES[kinds])
        for value, block in branches:
            self._builder.position_at_end(block)
            chosen.add_incoming(self._as(value, kinds).code, block)
            self._builder.branch(blocks[2])
        self._builder.position_at_end(blocks[2])
        return Value(kinds, chosen)

    def _kind_of(self, left: Any, right: Any) -> str:
        kinds = {v.kind for v in (left, right) if isinstance(v, Value)}
        return kinds.pop() if len(kinds) == 1 else self._value(left).kind

    # -- arrays

    def _place(self, node: ast.Subscript) -> tuple[KernelArray, Any]:
        array = self._expression(node.value)
        if not isinstance(array, KernelArray):
            raise self._refuse("only arrays are indexed")
        indexes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(indexes) != len(array.shape):
            raise self._refuse(f"{len(indexes)} indexes of an array of {len(array.shape)} dimensions")
        at: Any = None
        for index, length in zip(indexes, array.shape, strict=True):
            number = self._expression(index)
            code = number.code if isinstance(number, Value) and number.kind == WORD else self._as(number, INT).code
            at = code if at is None else self._builder.add(self._builder.mul(at, length), code)
        base = self._builder.inttoptr(array.address, item_type(array.item).as_pointer())
        return array, self._builder.gep(base, [at])

    def _load(self, array: KernelArray, place: Any) -> Value:
        kind, builder = array.item[0], self._builder
        code = builder.load(place)
        if array.item == "f8":
            return Value(FLOAT, code)
        if kind == "b":
            return Value(BOOL, builder.icmp_unsigned("!=", code, i8(0)))
        if array.item[1] != "8":
            code = builder.sext(code, i64) if kind == "i" else builder.zext(code, i64)
        return Value(WORD if array.item == "u8" else INT, code)

    def _store(self, array: KernelArray, place: Any, operand: Any) -> None:
        builder = self._builder
        if array.item == "f8":
            builder.store(self._as(operand, FLOAT).code, place)
            return
        if array.item == "b1":
            builder.store(builder.zext(self._truth(operand), i8), place)
            return
        value = self._value(operand)
        if value.kind == BOOL:
            value = self._as(value, INT)
        narrow = item_type(array.item)
        builder.store(value.code if narrow.width == 64 else builder.trunc(value.code, narrow), place)

    def _element(self, node: ast.Subscript) -> Any:
        owner = node.value
        if isinstance(owner, ast.Name) and owner.id in self._arrays:
            return self._load(*self._place(node))
        elements = self._expression(owner)
        index = self._expression(node.slice)
        if not is_tuple(elements) or not isinstance(index, int):
            raise self._refuse("only arrays and tuples are indexed")
        part = elements[index]
        return part if isinstance(part, (Value, int, float)) else Value(INT, part)

    # -- calls

    def _call(self, callee: Any, arguments: Sequence[ast.expr]) -> Any:
        if isinstance(callee, Intrinsic):
            return self._intrinsic(callee, arguments)
        if callee is np.zeros:
            return self._zeros(arguments)
        operands = [self._expression(argument) for argument in arguments]
        function = function_of(callee)
        if function is not None:
            return self._call_function(function, operands)
        if callee in (min, max):
            best = operands[0]
            for other in operands[1:]:
                a, b = self._alike(best, other)
                wins = self._compare("<" if callee is min else ">", b, a)
                best = Value(a.kind, self._builder.select(wins.code, b.code, a.code))
            return best
        if callee is len:
            return Value(INT, operands[0].shape[0])
        return self._convert(callee, self._value(operands[0]))

    def _convert(self, callee: Any, value: Value) -> Value:
        builder = self._builder
        if callee is abs:
            return self._as(
                Value(value.kind, builder.select(
                    self._compare("<", value, 0).code, self._unary(ast.USub, value).code, value.code)), value.kind
            )  # fmt: skip
        if callee in (np.log2, np.log1p):
            external = self._external(callee.__name__)
            return Value(FLOAT, builder.call(external, [self._as(value, FLOAT).code]))
        if callee is bool:
            return Value(BOOL, self._truth(value))
        if callee is float:
            return self._as(value, FLOAT)
        if callee in (int, np.int64, np.uint64) or callee in _NARROW:
            code = builder.fptosi(value.code, i64) if value.kind == FLOAT else to_word(builder, value)
            if callee in _NARROW:
                bits, signed = _NARROW[callee]
                narrow = builder.trunc(code, ir.IntType(bits))
                code = builder.sext(narrow, i64) if signed else builder.zext(narrow, i64)
            return Value(WORD if callee is np.uint64 else INT, code)
        raise self._refuse(f"{callee!r} cannot be called here")

    def _call_function(self, function: FunctionType, operands: Sequence[Any]) -> Any:
        kinds: list[str] = []
        codes: list[Any] = []
        for argument in operands:
            if isinstance(argument, KernelArray):
                kinds.append(f"{argument.item}[{len(argument.shape)}]")
                codes += [argument.address, *argument.shape]
            else:
                value = self._value(argument)
                kinds.append(value.kind)
                codes.append(value.code)
        callee, results = self._compiled(function, tuple(kinds))
        out = self._builder.call(callee, codes)
        if len(results) < 2:
            return Value(results, from_word(self._builder, results, out)) if results else None
        parts = [self._builder.extract_value(out, i) for i in range(len(results))]
        return tuple(Value(k, from_word(self._builder, k, p)) for k, p in zip(results, parts, strict=True))

    def _intrinsic(self, callee: Intrinsic, arguments: Sequence[ast.expr]) -> Any:
        codes = []
        for kind, argument in zip(callee.parameters, arguments, strict=True):
            codes.append(self._pointer(argument) if kind == POINTER else self._bits(self._expression(argument), kind))
        out = callee.emit(self._builder, *codes)
        return Value(callee.result, out) if callee.result else None

    def _bits(self, operand: Any, kind: str) -> Any:
        """The code of an argument of an intrinsic, which accepts both ints and words."""
        value = self._as(operand, kind) if not isinstance(operand, Value) or operand.kind == BOOL else operand
        return value.code

    def _pointer(self, node: ast.expr) -> Any:
        """An address as a pointer. The first term of a sum is the base, so that LLVM can optimise loops over it."""
        moved: list[Any] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            moved.append(self._as(self._expression(node.right), INT).code)
            node = node.left
        pointer = self._builder.inttoptr(self._as(self._expression(node), INT).code, TYPES[POINTER])
        for offset in reversed(moved):
            pointer = self._builder.gep(pointer, [offset])
        return pointer

    def _zeros(self, arguments: Sequence[ast.expr]) -> KernelArray:
        """`np.zeros(4, np.uint64)`: an array of words on the stack."""
        count, item = (self._expression(argument) for argument in arguments)
        if not isinstance(count, int) or item is not np.uint64 or count > 64:
            raise self._refuse("np.zeros takes a small number and np.uint64")
        kind = ir.ArrayType(i64, count)
        slot = self._entry.alloca(kind)
        self._builder.store(ir.Constant(kind, None), slot)
        return KernelArray("u8", self._builder.ptrtoint(slot, i64), (i64(count),))


def item_type(item: str) -> Any:
    """LLVM's type of an array's items."""
    return f64 if item == "f8" else ir.IntType(8 * int(item[1]))


def is_tuple(operand: Any) -> bool:
    """Whether an expression is a tuple of values."""
    return isinstance(operand, tuple) and not isinstance(operand, (Value, KernelArray))
