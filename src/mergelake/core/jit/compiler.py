"""Python's syntax tree to LLVM's intermediate representation in one pass. A variable's kind is that of its first value.

Every variable is a slot on the stack, which LLVM turns into registers. A function is compiled once for each combination
of argument kinds; its results are returned as 64-bit words.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import ir

from mergelake.core.jit.expressions import Expressions, from_word, function_of, is_tuple, to_word
from mergelake.core.jit.language import BOOL, FLOAT, INT, TYPES, KernelArray, KernelError, Value, f64, i64


def compile_kernel(function: FunctionType, kinds: Sequence[str], symbol: str) -> tuple[ir.Module, str]:
    """A module that exports `symbol`, and the kinds of its results, a letter each.

    `kinds` are those of the parameters; of an array, item and dimensions (`u1[2]`). The parameters of the C function
    are int64 and double; for an array its address and lengths; for several results, at the end, an address for them.
    """
    unit = _Unit()
    inner, results = unit.function(function, tuple(kinds))
    several = len(results) > 1
    flat = [TYPES[k] if k in TYPES and k != BOOL else i64 for k in _flat(kinds)]
    out = ir.VoidType() if several or not results else (f64 if results == FLOAT else i64)
    outer = ir.Function(unit.module, ir.FunctionType(out, [*flat, i64] if several else flat), symbol)
    builder = ir.IRBuilder(outer.append_basic_block())
    parameters = outer.args[:-1] if several else outer.args
    pairs = zip(_flat(kinds), parameters, strict=True)
    result = builder.call(inner, [from_word(builder, BOOL, code) if kind == BOOL else code for kind, code in pairs])
    if several:
        words = builder.inttoptr(outer.args[-1], i64.as_pointer())
        for i in range(len(results)):
            builder.store(builder.extract_value(result, i), builder.gep(words, [i64(i)]))
    if several or not results:
        builder.ret_void()
    else:
        builder.ret(from_word(builder, FLOAT, result) if results == FLOAT else result)
    return unit.module, results


def _flat(kinds: Sequence[str]) -> list[str]:
    """Kinds of the parameters of the LLVM function."""
    out: list[str] = []
    for kind in kinds:
        out += [INT] * (1 + int(kind[3])) if "[" in kind else [kind]
    return out


class _Unit:
    """One LLVM module: a kernel and the functions that it calls."""

    def __init__(self) -> None:
        self.module = ir.Module()
        self._done: dict[tuple[FunctionType, tuple[str, ...]], tuple[ir.Function, str]] = {}

    def function(self, function: FunctionType, kinds: tuple[str, ...]) -> tuple[ir.Function, str]:
        """The LLVM function for parameters of these kinds, and the kinds of its results."""
        key = (function, kinds)
        if key not in self._done:
            self._done[key] = _Function(self, function, kinds, f"{function.__name__}.{len(self._done)}").emit()
        return self._done[key]

    def external(self, name: str) -> ir.Function:
        """A C function from a double to a double."""
        function = self.module.globals.get(name)
        return function if function is not None else ir.Function(self.module, ir.FunctionType(f64, [f64]), name)


@cache
def _tree(function: FunctionType) -> ast.FunctionDef:
    """The syntax tree, with the file's line numbers."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    ast.increment_lineno(tree, first - 1)
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"{function.__name__} is not a function")
    return tree


def names_of(function: FunctionType) -> dict[str, Any]:
    """Globals and closure variables of a function, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}


_BUILTINS: dict[str, Any] = {f.__name__: f for f in (min, max, abs, len, int, bool, float, range)}


class _Function(Expressions):
    """Compiles one function."""

    def __init__(self, unit: _Unit, function: FunctionType, kinds: tuple[str, ...], name: str) -> None:
        self._unit = unit
        self._python = function
        self._tree = _tree(function)
        self._names = {**_BUILTINS, **names_of(function)}
        self._arity = _arity(self._tree, self._names)
        word = [i64] * self._arity
        out = ir.LiteralStructType(word) if self._arity > 1 else (i64 if self._arity else ir.VoidType())
        self._llvm = ir.Function(unit.module, ir.FunctionType(out, [TYPES[k] for k in _flat(kinds)]), name)
        self._llvm.linkage = "internal"
        self._llvm.attributes.add("nounwind")
        self._entry = ir.IRBuilder(self._llvm.append_basic_block("entry"))
        self._builder = ir.IRBuilder(self._llvm.append_basic_block("body"))
        self._slots: dict[str, Value] = {}
        self._arrays: dict[str, KernelArray] = {}
        self._loops: list[tuple[Any, Any]] = []
        self._results: str | None = None
        self._line = 0
        parameters = [a.arg for a in self._tree.args.args]
        if len(parameters) != len(kinds):
            raise self._refuse(f"{len(kinds)} arguments for {len(parameters)} parameters")
        arguments = iter(self._llvm.args)
        for parameter, kind in zip(parameters, kinds, strict=True):
            if "[" in kind:
                address = next(arguments)
                self._arrays[parameter] = KernelArray(
                    kind[:2], address, tuple(next(arguments) for _ in range(int(kind[3])))
                )
            else:
                self._assign_name(parameter, Value(kind, next(arguments)))

    def emit(self) -> tuple[ir.Function, str]:
        """Compile the body."""
        body = self._builder.block
        self._block(self._tree.body)
        if not self._builder.block.is_terminated:
            if self._arity:
                self._builder.ret(ir.Constant(self._llvm.function_type.return_type, None))
            else:
                self._builder.ret_void()
        self._entry.branch(body)
        return self._llvm, self._results or ""

    def _refuse(self, why: str) -> KernelError:
        return KernelError(f"{self._python.__code__.co_filename}:{self._line}: {why}")

    # -- statements

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._builder.block.is_terminated:
                return
            self._line = statement.lineno
            handler = getattr(self, "_do_" + type(statement).__name__.lower(), None)
            if handler is None:
                raise self._refuse(f"{type(statement).__name__} is not in the language")
            handler(statement)

    def _do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._expression(node.value)

    def _do_pass(self, node: ast.Pass) -> None:
        pass

    def _do_assign(self, node: ast.Assign) -> None:
        value = self._expression(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self._expression(node.value))

    def _do_augassign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            old = self._name(target.id)
            self._assign_name(target.id, self._operate(type(node.op), old, self._expression(node.value)))
        elif isinstance(target, ast.Subscript):
            array, place = self._place(target)
            new = self._operate(type(node.op), self._load(array, place), self._expression(node.value))
            self._store(array, place, new)
        else:
            raise self._refuse("this cannot be assigned to")

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(name):
                self._assign_name(name, value)
            case ast.Tuple(parts):
                if not isinstance(value, tuple) or isinstance(value, (Value, KernelArray)) or len(value) != len(parts):
                    raise self._refuse(f"not {len(parts)} values")
                for part, one in zip(parts, value, strict=True):
                    self._assign(part, one)
            case ast.Subscript():
                self._store(*self._place(target), value)
            case _:
                raise self._refuse("this cannot be assigned to")

    def _assign_name(self, name: str, value: Any) -> None:
        if isinstance(value, KernelArray):
            self._arrays[name] = value
            return
        slot = self._slots.get(name)
        if slot is None:
            value = self._value(value)
            slot = self._slots[name] = Value(value.kind, self._entry.alloca(TYPES[value.kind], name=name))
            self._entry.store(ir.Constant(TYPES[value.kind], None), slot.code)
        self._builder.store(self._as(value, slot.kind).code, slot.code)

    def _do_return(self, node: ast.Return) -> None:
        result = self._expression(node.value) if node.value is not None else ()
        values = [self._value(v) for v in (result if is_tuple(result) else (result,))]
        kinds = "".join(v.kind for v in values)
        if self._results is None:
            self._results = kinds
        if len(values) != len(self._results):
            raise self._refuse("returns a different number of values than before")
        words = [to_word(self._builder, self._as(v, k)) for v, k in zip(values, self._results, strict=True)]
        if not words:
            self._builder.ret_void()
        elif len(words) == 1:
            self._builder.ret(words[0])
        else:
            out = ir.Constant(self._llvm.function_type.return_type, ir.Undefined)
            for i, word in enumerate(words):
                out = self._builder.insert_value(out, word, i)
            self._builder.ret(out)

    def _do_if(self, node: ast.If) -> None:
        test = self._expression(node.test)
        if isinstance(test, (bool, int)):  # constant
            self._block(node.body if test else node.orelse)
            return
        then, other, after = (self._llvm.append_basic_block(name) for name in ("then", "else", "after"))
        self._builder.cbranch(self._truth(test), then, other)
        for block, body in ((then, node.body), (other, node.orelse)):
            self._builder.position_at_end(block)
            self._block(body)
            if not self._builder.block.is_terminated:
                self._builder.branch(after)
        self._builder.position_at_end(after)

    def _do_while(self, node: ast.While) -> None:
        head, body, after = (self._llvm.append_basic_block(name) for name in ("while", "do", "done"))
        self._builder.branch(head)
        self._builder.position_at_end(head)
        self._builder.cbranch(self._truth(self._expression(node.test)), body, after)
        self._builder.position_at_end(body)
        self._loop(node.body, head, after)

    def _do_for(self, node: ast.For) -> None:
        call = node.iter
        if not isinstance(call, ast.Call) or self._expression(call.func) is not range or node.orelse:
            raise self._refuse("for goes over range(…) only")
        ends = [self._as(self._expression(a), INT).code for a in call.args]
        step = ends[2] if len(ends) == 3 else i64(1)
        first, stop = (ends[0], ends[1]) if len(ends) > 1 else (i64(0), ends[0])
        counter = self._entry.alloca(i64)
        self._builder.store(first, counter)
        head, body, more, after = (self._llvm.append_basic_block(name) for name in ("for", "do", "next", "done"))
        self._builder.branch(head)
        self._builder.position_at_end(head)
        at = self._builder.load(counter)
        if not isinstance(step, ir.Constant):
            raise self._refuse("the step of a range is a number")
        self._builder.cbranch(self._builder.icmp_signed("<" if step.constant > 0 else ">", at, stop), body, after)
        self._builder.position_at_end(body)
        self._assign(node.target, Value(INT, at))
        self._loop(node.body, more, after)
        self._builder.position_at_end(more)
        self._builder.store(self._builder.add(self._builder.load(counter), step, flags=("nsw",)), counter)
        self._builder.branch(head)
        self._builder.position_at_end(after)

    def _loop(self, body: Sequence[ast.stmt], again: Any, after: Any) -> None:
        self._loops.append((again, after))
        self._block(body)
        self._loops.pop()
        if not self._builder.block.is_terminated:
            self._builder.branch(again)
        self._builder.position_at_end(after)

    def _do_break(self, node: ast.Break) -> None:
        self._builder.branch(self._loops[-1][1])

    def _do_continue(self, node: ast.Continue) -> None:
        self._builder.branch(self._loops[-1][0])

    def _compiled(self, function: FunctionType, kinds: tuple[str, ...]) -> tuple[ir.Function, str]:
        return self._unit.function(function, kinds)

    def _external(self, name: str) -> ir.Function:
        return self._unit.external(name)


def _arity(tree: ast.FunctionDef, names: dict[str, Any]) -> int:
    """Number of values that a function returns, from its source: calls need it before the body is compiled."""
    most = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            most = max(most, _values(node.value, names))
    return most


def _values(node: ast.expr, names: dict[str, Any]) -> int:
    if isinstance(node, ast.Tuple):
        return len(node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        function = function_of(names.get(node.func.id))
        if function is not None:
            return _arity(_tree(function), names_of(function))
    return 1
