"""Normalisation, assembly, the Emitter, liveness: on functions of the standard library."""

from __future__ import annotations

import dis
import gc
import importlib.util
import types
from pathlib import Path

import pytest

from dynamo.api import convert  # noqa: F401
from dynamo.bytecode import (
    CANONICAL,
    FAMILIES,
    Emitter,
    Instruction,
    NormalizeError,
    normalize,
    versions,
)
from dynamo.bytecode.assemble import CodeShape, assemble, stack_depths
from dynamo.bytecode.cache import CodeMap, when_gone
from dynamo.bytecode.decode import _PAIRS, decode
from dynamo.bytecode.listing import format_code
from dynamo.bytecode.liveness import live_before
from dynamo.bytecode.normalize import _RULES
from dynamo.bytecode.opcodes import NO_FALLTHROUGH, stack_effect
from dynamo.errors import Unsupported
from dynamo.interp.opcodes import calls
from dynamo.interp.registry import HANDLERS
from tests.dynamo.bytecode_corpus import CASES
from tests.dynamo.reassembly import all_codes, reassemble, reassemble_all
from tests.dynamo.test_resume import arguments, outcome

MODULES = (
    "argparse ast asyncio.base_events asyncio.tasks contextlib dataclasses difflib enum fractions "
    "functools inspect json.decoder json.encoder pickle statistics textwrap typing"
).split()


def source_code(module: str) -> types.CodeType:
    path = importlib.util.find_spec(module).origin
    return compile(Path(path).read_text(encoding="utf-8"), path, "exec")


@pytest.fixture(scope="module", params=MODULES)
def codes(request) -> list[types.CodeType]:
    """The functions' and classes' code of one module."""
    return list(all_codes(source_code(request.param)))[1:]


# -- opcodes --------------------------------------------------------------------------------------
# Opcodes that decoded code never contains.
REMOVED = frozenset({"CACHE", "EXTENDED_ARG", "PRECALL", "RETURN_CONST", *_PAIRS})
# Opcodes of dis.opmap that function code never holds: the compiler's pseudo-ops, the interpreter's
# own, those of modules and interactive input, and instrumented ones (co_code shows the plain ones).
UNSUPPORTED = frozenset(
    name for name, op in versions.OPMAP.items()
    if op > 255 or name.startswith("INSTRUMENTED_")
) | {
    "INTERPRETER_EXIT", "RESERVED", "ENTER_EXECUTOR", "EXIT_INIT_CHECK",
    "IMPORT_STAR", "PRINT_EXPR",
}  # fmt: skip


# Jumps, of which decoding makes JUMP and conditional jumps.
DIRECTED = frozenset(
    {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
    | {name for name in versions.OPMAP if name.startswith("POP_JUMP_")}
)


def test_every_opcode_is_normalised_or_named():
    normalised = {*REMOVED, *_RULES, *DIRECTED, *CANONICAL}
    assert set(dis.opmap) <= normalised | UNSUPPORTED


def test_families_partition_the_table():
    assert sorted(name for ops in FAMILIES.values() for name in ops) == sorted(CANONICAL)
    assert stack_effect("CALL", 2) == (4, 1)
    assert stack_effect("UNPACK_EX", 1 | 2 << 8) == (1, 4)
    assert stack_effect("FOR_ITER", 0) == (1, 2)
    assert stack_effect("FOR_ITER", 0, jump=True) == (1, 0)


def test_every_canonical_opcode_is_captured_or_breaks_by_name():
    """Of except*, which breaks the graph, and of coroutines, whose frames run eagerly."""
    asynchronous = {"GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "END_ASYNC_FOR", "BEFORE_ASYNC_WITH"}
    assert set(CANONICAL) - set(HANDLERS) == {"CHECK_EG_MATCH", *asynchronous}


def test_every_intrinsic_is_captured_or_breaks_by_name():
    names = [*versions.INTRINSICS_1, *versions.INTRINSICS_2]
    operations = [name.removeprefix("INTRINSIC_") for name in names]
    for operation in set(operations) - set(calls.INTRINSICS) - set(HANDLERS):
        with pytest.raises(Unsupported) as caught:
            calls.call_intrinsic(None, Instruction("CALL_INTRINSIC_1", argval=operation))
        assert caught.value.reason.code == "UNSUPPORTED_OPCODE"
        assert operation in str(caught.value.reason)


# -- whole modules --------------------------------------------------------------------------------
def describe(code: types.CodeType) -> list:
    """Instructions without what may differ between equal codes (indices of tables, sizes)."""

    def constant(value):
        return value.co_name if isinstance(value, types.CodeType) else repr(value)

    def region(native):
        handler = native.handler
        return handler and (handler.depth, handler.push_lasti, handler.target.op)

    natives = decode(code)
    reached, _ = stack_depths(natives)
    return [
        (n.op, constant(n.value), n.flags, n.positions, n.target and n.target.positions, region(n))
        for n in natives
        if id(n) in reached
    ]


def test_assembly_of_decoded_code_is_the_same_code(codes):
    for code in codes:
        new = assemble(decode(code), CodeShape.of(code))
        assert describe(new) == describe(code), code.co_qualname
        assert new.co_varnames == code.co_varnames
        assert new.co_stacksize <= max(1, code.co_stacksize), code.co_qualname


def canonical_depths(instructions) -> dict[int, int]:
    depths: dict[int, int] = {}
    todo = [(instructions[0], 0)]
    while todo:
        instr, depth = todo.pop()
        if instr.index in depths:
            assert depths[instr.index] == depth, instr
            continue
        depths[instr.index] = depth
        handler = instr.handler
        if handler is not None:
            todo.append((handler.target, handler.depth + handler.push_lasti + 1))
        if instr.target is not None:
            popped, pushed = stack_effect(instr.op, instr.arg, True)
            todo.append((instr.target, depth - popped + pushed))
        if instr.op not in NO_FALLTHROUGH:
            popped, pushed = stack_effect(instr.op, instr.arg)
            assert depth >= popped, instr
            todo.append((instructions[instr.index + 1], depth - popped + pushed))
    return depths


def test_canonical_stack_corresponds_to_the_real_one(codes):
    """Depths agree on all paths, and with the native depths as `real_stack` says."""
    for code in codes:
        natives = decode(code)
        real, _ = stack_depths(natives)
        instructions = normalize(code)
        for index, depth in canonical_depths(instructions).items():
            instr = instructions[index]
            if instr.op == "END_SEND" and natives[instr.native].op != "END_SEND":
                continue  # 3.11 has none
            expected = depth + len(instr.pending_nulls) - (instr.op == "CALL_KW")
            assert real[id(natives[instr.native])] == expected, (code.co_qualname, instr)


def test_liveness_of_whole_modules(codes):
    for code in codes:
        live = live_before(code)
        assert len(live) == len(normalize(code))
        names = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
        assert all(names >= entry for entry in live)
        format_code(code)


def test_module_runs_reassembled(codes):
    for code in codes:
        reassemble(code)  # assembly checks depths; that it runs is the next tests' matter


@pytest.mark.parametrize("module", ["fractions", "textwrap", "statistics", "difflib"])
def test_reassembled_modules_work(module, monkeypatch):
    import sys

    original = importlib.import_module(module)
    code = reassemble_all(source_code(module))
    copy = types.ModuleType(module)
    copy.__file__ = original.__file__
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, module, copy)
        exec(code, copy.__dict__)
    assert _use(module, copy) == _use(module, original)


def _use(module: str, m) -> object:
    match module:
        case "fractions":
            return str(m.Fraction(3, 4) ** 3 + m.Fraction("1.5")), f"{m.Fraction(1, 3)!r:>20}"
        case "textwrap":
            return (
                m.fill("hello big world " * 9, 30),
                m.dedent("  a\n   b"),
                m.shorten("a b c " * 5, 12),
            )
        case "statistics":
            return (
                m.quantiles(range(9)),
                m.stdev([1, 2, 4]),
                m.NormalDist(1, 2).cdf(3),
                m.mode("aab"),
            )
        case "difflib":
            return list(m.ndiff(["abc", "d"], ["abd", "e"])), m.get_close_matches(
                "ape", ["apple", "b"]
            )
    raise NotImplementedError(module)


@pytest.mark.parametrize(("function", "make"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_reassembled_functions_behave_the_same(function, make):
    log, args = arguments(function, make)
    expected = outcome(lambda: function(*args), log)
    new = types.FunctionType(
        reassemble_all(function.__code__), function.__globals__, argdefs=function.__defaults__,
        closure=function.__closure__,
    )  # fmt: skip
    log, args = arguments(function, make)
    assert outcome(lambda: new(*args), log) == expected


# -- the Emitter ----------------------------------------------------------------------------------
def template(a, b=2):
    """template's doc"""
    return lambda: a


def build(write, argnames=("a", "b"), globals_=None):
    """A function whose body is what `write(emit)` emits."""
    emit = Emitter()
    write(emit)
    code = emit.assemble(
        plain.__code__, varnames=argnames, argcount=len(argnames), name="built", qualname="built"
    )
    return types.FunctionType(code, globals_ or globals())


def plain(a, b):
    return a


def test_emitter_keeps_the_frame_of_its_template():
    emit = Emitter()
    emit.load_const(1)
    emit.store_fast("temporary")
    emit.load_deref("a")
    emit.load_fast("temporary")
    emit.binary_op("+")
    emit.return_value()
    code = emit.assemble(template.__code__)
    old = template.__code__
    assert code.co_varnames == (*old.co_varnames, "temporary")
    for name in ("argcount", "posonlyargcount", "kwonlyargcount", "cellvars", "freevars", "flags"):
        assert getattr(code, f"co_{name}") == getattr(old, f"co_{name}"), name
    for name in ("name", "qualname", "filename", "firstlineno"):
        assert getattr(code, f"co_{name}") == getattr(old, f"co_{name}"), name
    function = types.FunctionType(code, globals())
    assert function(4, None) == 5
    assert function.__doc__ == "template's doc"


def test_calls():
    def target(*args, **kwargs):
        return args, kwargs

    def write(emit):
        emit.load_callable(lambda: emit.load_const(target))
        emit.load_fast("a")
        emit.load_fast("b")
        emit.load_const(3)
        emit.call_kw(3, ["k", "w"])
        emit.load_callable(lambda: emit.load_const(target))
        emit.load_fast("a")
        emit.build_tuple(1)
        emit.load_const("key")
        emit.load_fast("b")
        emit.build_map(1)
        emit.emit("CALL_FUNCTION_EX", 1)
        emit.load_const("x,y")
        emit.load_method("split")
        emit.load_const(",")
        emit.call(1)
        emit.load_callable(lambda: emit.load_global("len"))
        emit.copy(3)
        emit.call(1)
        emit.build_tuple(4)
        emit.return_value()

    assert build(write)(1, 2) == (
        ((1,), {"k": 2, "w": 3}),
        ((1,), {"key": 2}),
        ["x", "y"],
        2,
    )


def test_control_flow():
    def write(emit):
        """Add up `a`, no item counting for more than 5; negative if `b` is None."""
        top, end, skip, negate = (emit.label() for _ in range(4))
        emit.load_const(0)
        emit.store_fast("total")
        emit.load_fast("a")
        emit.emit("GET_ITER")
        emit.place(top)
        emit.for_iter(end)
        emit.store_fast("x")
        emit.load_fast("x")
        emit.pop_jump_if_false(top)  # backward
        emit.load_fast("x")
        emit.load_const(5)
        emit.compare_op("<")
        emit.pop_jump_if_true(skip)
        emit.load_const(5)
        emit.store_fast("x")
        emit.place(skip)
        emit.load_fast("total")
        emit.load_fast("x")
        emit.binary_op("+=")
        emit.store_fast("total")
        emit.jump(top)
        emit.place(end)
        emit.load_fast("b")
        emit.pop_jump_if_none(negate)
        emit.load_fast("total")
        emit.return_value()
        emit.place(negate)
        emit.load_fast("total")
        emit.emit("UNARY_NEGATIVE")
        emit.return_value()

    function = build(write)
    assert function([1, 0, 7, 2], 1) == 8
    assert function([1, 0, 7, 2], None) == -8


def test_exception_regions():
    def write(emit):
        handler = emit.label()
        emit.load_const("kept")
        with emit.exception_region(handler):
            emit.load_fast("a")
            emit.load_fast("b")
            emit.binary_op("/")
        emit.build_tuple(2)
        emit.return_value()
        emit.place(handler)
        emit.push_exc_info()
        emit.load_attr("args")
        emit.swap(2)
        emit.pop_except()
        emit.build_tuple(2)
        emit.return_value()

    function = build(write)
    assert function(4, 2) == ("kept", 2.0)
    assert function(4, 0) == ("kept", ("division by zero",))


def test_make_function_with_everything():
    def inner(x, y=1, *, z=2):
        return x, y, z, free

    free = "free"

    def outer(free):
        return lambda x, y, *, z: (x, y, z, free)

    lambda_code = next(c for c in outer.__code__.co_consts if isinstance(c, types.CodeType))
    emit = Emitter()
    emit.make_function(lambda_code)
    emit.return_value()
    made = types.FunctionType(emit.assemble(outer.__code__), globals())("cell")
    assert made(1, 10, z=20) == (1, 10, 20, "cell")


def test_constants_are_kept_apart():
    values = [1, 1.0, True, -0.0, 0.0, (1, 2), (1.0, 2), [1], len, None, "a", b"a"]

    def write(emit):
        for value in values:
            emit.load_const(value)
        emit.build_list(len(values))
        emit.return_value()

    result = build(write, ())()
    assert list(map(repr, result)) == list(map(repr, values))
    assert result[7] is values[7]


def test_long_jumps_and_many_names():
    """Operands over one byte, and jumps that grow because of each other."""

    def write(emit):
        end = emit.label()
        emit.load_fast("a")
        emit.pop_jump_if_false(end)
        for i in range(400):
            emit.load_const(f"value {i}")
            emit.store_fast(f"local{i}")
        emit.load_fast("local399")
        emit.return_value()
        emit.place(end)
        emit.load_fast("b")
        emit.return_value()

    function = build(write)
    assert (function(1, 2), function(0, 2)) == ("value 399", 2)


def test_lines():
    def write(emit):
        emit.set_location(100)
        emit.load_fast("a")
        emit.set_location(90)
        emit.load_fast("b")
        emit.binary_op("/")
        emit.return_value()

    with pytest.raises(ZeroDivisionError) as error:
        build(write)(1, 0)
    assert error.traceback[-1].lineno == 89  # pytest counts from 0


def test_unbound_locals_raise():
    def write(emit):
        emit.load_fast("missing")
        emit.return_value()

    with pytest.raises(UnboundLocalError):
        build(write)(1, 2)


# -- liveness, listing, cache ---------------------------------------------------------------------
def live_example(a, b, c):
    total = a
    try:
        for x in b:
            total += x
    except TypeError:
        return c
    return total


def test_liveness():
    code = live_example.__code__
    instructions = normalize(code)
    live = live_before(code)
    by_op = {(i.op, i.argval): live[i.index] for i in reversed(instructions)}
    assert live[0] == {"a", "b", "c"}
    assert by_op["STORE_FAST", "total"] == {"b", "c"}
    assert by_op["STORE_FAST", "x"] == {"c", "total"}  # c: the handler reads it
    assert live[instructions[-1].index] <= {"c", "total"}


def test_locals_keep_everything_alive():
    def function(a, b):
        a = 1
        return locals()

    assert all(entry == {"a", "b"} for entry in live_before(function.__code__))


def test_listing():
    text = format_code(live_example.__code__)
    assert text.splitlines()[0].startswith("live_example (")
    assert "FOR_ITER" in text and "to " in text and "; except to" in text


def test_code_map_is_by_identity():
    one, two = (compile("x", "f", "eval") for _ in range(2))
    assert one == two
    codes: CodeMap[int] = CodeMap()
    codes.set(one, 1)
    assert (codes.get(one), codes.get(two)) == (1, None)
    del one
    assert len(codes) == 0


def test_code_that_is_not_a_function():
    code = compile("from os import *", "f", "exec")
    if "IMPORT_STAR" in dis.opmap:
        with pytest.raises(NormalizeError):
            normalize(code)


def test_when_code_is_gone():
    """Also of code that is equal to other code."""
    first, second = (compile("1", "same", "eval") for _ in range(2))
    gone: list[str] = []
    when_gone(first, lambda: gone.append("first"))
    when_gone(second, lambda: gone.append("second"))
    del second
    gc.collect()
    assert gone == ["second"]
    del first
    gc.collect()
    assert gone == ["second", "first"]
