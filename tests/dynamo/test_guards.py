"""Each guard kind and each accessor: passes, fails, explains itself."""

import collections
import math
import sys
import threading
import types
import weakref
from types import SimpleNamespace

import pytest
import torch
import torch.utils._python_dispatch

from dynamo.guards import kinds as guards
from dynamo.guards import sources
from dynamo.guards.kinds import GlobalState, GuardSet
from dynamo.guards.shape_payload import OPS
from dynamo.guards.sources import (
    AttrSource,
    CallSource,
    CellContentsSource,
    ClosureCellSource,
    ClosureSource,
    DictItemSource,
    DictKeySource,
    DictValueSource,
    GlobalSource,
    InstanceDictSource,
    ItemSource,
    LocalSource,
    ModuleSource,
    SequenceItemSource,
    TypeSource,
)

X = LocalSource("x", 0)
Y = LocalSource("y", 1)
BUILTINS = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)


def build(*rows):
    guard_set = GuardSet()
    for source, kind, payload in rows:
        guard_set.add(source, kind, payload)
    return guard_set.build()


def holds(tree, *local_values, globals=None, closure=None):
    """Check twice (the second time a recorded program may answer), and against explain_failure."""
    arguments = (local_values, {} if globals is None else globals, BUILTINS, closure)
    first = tree.check(*arguments)
    assert [tree.check(*arguments) for _ in range(3)] == [first] * 3
    assert (tree.explain_failure(*arguments) == []) == first
    return first


def why(tree, *local_values, globals=None, closure=None):
    (text,) = tree.explain_failure(local_values, globals or {}, BUILTINS, closure)
    return text


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self):
        return 1


class Slotted:
    __slots__ = ("a",)


def function(a, b=2, *, c=3):
    return a


class TestKinds:
    def test_type(self):
        tree = build((X, "type", int))
        assert holds(tree, 3) and not holds(tree, True)
        assert why(tree, True) == "L['x']: type was <class 'int'>, is <class 'bool'>"

    def test_id(self):
        a, b = Plain(), Plain()
        tree = build((X, "id", a))
        assert holds(tree, a) and not holds(tree, b)
        assert "is another" in why(tree, b)
        assert holds(build((X, "id", len)), len)

    def test_none(self):
        tree = build((X, "none", None))
        assert holds(tree, None) and not holds(tree, 0)

    @pytest.mark.parametrize(
        ("payload", "value", "same"),
        [
            (1, 1, True),
            (1, True, False),
            (1, 1.0, False),
            (10**30, 10**30, True),
            (0.0, -0.0, False),
            (math.nan, float("nan"), True),
            (complex(0.0, -0.0), complex(0.0, 0.0), False),
            ("a", "a", True),
            (b"a", b"b", False),
            ((1, (2.0, "x")), (1, (2.0, "x")), True),
            ((1,), (True,), False),
            ((0.0,), (-0.0,), False),
            (frozenset({1, "a"}), frozenset({"a", 1}), True),
            (frozenset({1}), frozenset({True}), False),
            (slice(1, None, 2), slice(1, None, 2), True),
            (slice(1), slice(1.0), False),
            (range(3), range(3), True),
            (Ellipsis, Ellipsis, True),
            (torch.float32, torch.float32, True),
            (torch.float32, torch.float64, False),
            (torch.device("cpu"), torch.device("cpu", 0), False),
            (torch.strided, torch.strided, True),
            (torch.Size([2, 3]), torch.Size([2, 3]), True),
            (torch.Size([2, 3]), (2, 3), False),
            ([1, [2]], [1, [2]], True),
            ([1, [2]], [1, [2.0]], False),
            ({"a": 1}, {"a": 1}, True),
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ],
    )
    def test_constant(self, payload, value, same):
        tree = build((X, "constant", payload))
        assert holds(tree, payload)
        assert holds(tree, value) is same

    def test_constant_text(self):
        tree = build((X, "constant", 4))
        assert why(tree, 5) == "L['x']: was 4, is 5"
        assert why(tree, 4.0) == "L['x']: was 4 (int), is 4.0 (float)"
        assert why(build((X, "constant", "a" * 500)), "b").endswith("..., is 'b'")

    def test_constant_list_is_copied(self):
        payload = [1]
        tree = build((X, "constant", payload))
        payload.append(2)
        assert not holds(tree, payload)
        assert holds(tree, [1])

    def test_length(self):
        tree = build((X, "length", 2))
        for value in ([1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, collections.deque([1, 2]), "ab"):
            assert holds(tree, value)
        assert why(tree, [1]) == "L['x']: length was 2, is 1"
        assert not holds(tree, 5)
        assert why(tree, 5) == (
            "L['x']: cannot tell whether it has length 2 "
            "(TypeError: object of type 'int' has no len())"
        )

    def test_dict_keys(self):
        key = Plain()
        tree = build((X, "dict_keys", ["a", 1, key]))
        assert holds(tree, {"a": 0, 1: 0, key: 0})
        assert not holds(tree, {"a": 0, True: 0, key: 0})
        assert not holds(tree, {1: 0, "a": 0, key: 0})
        assert not holds(tree, {"a": 0, 1: 0, Plain(): 0})
        assert not holds(tree, {"a": 0, 1: 0})
        ordered = collections.OrderedDict([("a", 0), (1, 0), (key, 0)])
        assert holds(tree, ordered)
        ordered.move_to_end("a")
        assert not holds(tree, ordered)
        assert "keys were ['a', 1" in why(tree, ordered)

    def test_contains(self):
        tree = build((X, "contains", ("a", True)), (X, "contains", ("b", False)))
        assert holds(tree, {"a": 1}) and not holds(tree, {"a": 1, "b": 1}) and not holds(tree, {})
        assert holds(tree, types.MappingProxyType({"a": 1}))
        assert why(tree, {}) == "L['x']: no longer contains 'a'"

    def test_has_attr(self):
        tree = build((X, "has_attr", ("a", True)), (X, "has_attr", ("b", False)))
        assert (
            holds(tree, Plain(a=1))
            and not holds(tree, Plain())
            and not holds(tree, Plain(a=1, b=1))
        )
        assert why(tree, Plain()) == "L['x']: no longer has attribute 'a'"

    def test_unnoticed(self):
        asked = []
        tree = build((X, "unnoticed", (("k", "l"), lambda value: bool(asked.append(value)))))
        for value in ({}, {"k": None}, {"k": 1, "l": "a"}, {"k": torch.ones(1)}, {"other": []}):
            assert holds(tree, value)
            assert holds(tree, SimpleNamespace(**value))
        assert not asked
        referred = torch.ones(1)
        reference = weakref.ref(referred)
        for value in ({"k": []}, {"l": referred}):
            assert not holds(tree, value)
            assert not holds(tree, SimpleNamespace(**value))
        assert asked and reference() is referred

    def test_no_instance_attr(self):
        tree = build((X, "no_instance_attr", "method"))
        assert holds(tree, Plain()) and holds(tree, Slotted()) and not holds(tree, Plain(method=1))

    def test_function_code(self):
        tree = build((X, "function_code", function))
        clone = types.FunctionType(function.__code__, globals())
        elsewhere = types.FunctionType(function.__code__, {})
        assert holds(tree, function) and holds(tree, clone) and not holds(tree, elsewhere)
        assert not holds(tree, build) and not holds(tree, 1)

    def test_address(self):
        held = {}
        tree = build((X, "address", id(held)))
        assert holds(tree, held) and not holds(tree, {})

    def test_type_attr(self):
        class Base:
            a = None

        class Derived(Base):
            pass

        tree = build((X, "type_attr", ("method", None)), (X, "type_attr", ("a", None, True)))
        assert holds(tree, Derived())
        Base.method = 1
        assert not holds(tree, Derived())
        assert "class attribute 'method' was nothing, is 1" in why(tree, Derived())
        tree = build((X, "type_attr", ("method", Plain.method)))
        assert holds(tree, Plain()) and holds(tree, Plain(method=1)) and not holds(tree, 1)

    def test_type_attr_type(self):
        class Base:
            a = 1

        class Derived(Base):
            pass

        tree = build((X, "type_attr_type", ("a", int)))
        assert holds(tree, Derived())
        Base.a = 2
        assert holds(tree, Derived())
        Derived.a = True
        assert not holds(tree, Derived()) and holds(tree, Base())
        assert "class attribute 'a' was of type <class 'int'>, is True" in why(tree, Derived())
        del Derived.a, Base.a
        assert not holds(tree, Derived())

    def test_aliasing(self):
        a, b = torch.ones(1), torch.ones(1)
        tree = build((None, "not_aliased", (X, Y)))
        assert holds(tree, a, b) and not holds(tree, a, a)
        assert why(tree, a, a) == "L['x'] and L['y']: were different objects, are the same"
        tree = build((X, "aliased", Y))
        assert holds(tree, a, a) and not holds(tree, a, b)
        assert "were the same object" in why(tree, a, b)

    def test_predicate(self):
        def is_even(x):
            return x % 2 == 0

        tree = build((X, "predicate", is_even))
        assert holds(tree, 2) and not holds(tree, 3) and not holds(tree, "a" * 3)
        assert why(tree, 3) == "L['x']: no longer satisfies is_even, is 3"

    def test_unknown_kind_and_bad_payloads(self):
        with pytest.raises(KeyError):
            GuardSet().add(X, "no such kind")
        with pytest.raises(ValueError, match="unknown guard kind"):
            guards.GuardTree([], [(0, "no such kind", None)])
        with pytest.raises(ValueError, match="unknown accessor"):
            guards.GuardTree([(0, "nowhere", 1, None)], [])
        for kind, payload in [("type", 1), ("tensor", 1), ("contains", 1), ("length", "a")]:
            with pytest.raises(TypeError):
                build((X, kind, payload))

    def test_every_kind_is_known_to_the_tree(self):
        payloads = {
            "type": int,
            "length": 1,
            "dict_keys": [],
            "contains": ("a", True),
            "has_attr": ("a", True),
            "type_attr": ("a", None),
            "type_attr_type": ("a", int),
            "tensor": torch.ones(1),
            "static_tensor": torch.ones(1),
            "not_aliased": (X, Y),
            "aliased": Y,
            "not_among": (1, 2),
            "function_code": function,
            "address": id(self),
            "marks": (0, 0, 0),
            "lookups": ((vars(math), "pi", math.pi), (torch.Tensor, "relu", torch.Tensor.relu)),
            "class": (int, (), {}, {}, (), frozenset()),
            "unnoticed": (("a",), bool),
            "shapes": SimpleNamespace(
                reads=[(X, 0, 0, "x", ())],
                conditions=[([(OPS["read"], 0), (OPS["int"], 3), (OPS["eq"], 0)], "x == 3")],
            ),
        }
        for kind in guards.KINDS:
            tree = build((X, kind, payloads.get(kind)))
            listed = kind not in ("marks", "class")  # of which lists say nothing
            assert len(tree.describe()) == listed, kind
            assert str(tree).startswith("GuardTree\n")


class TestTensor:
    def test_passes(self):
        tree = build((X, "tensor", torch.zeros(4, 3)))
        assert holds(tree, torch.ones(4, 3))
        assert holds(tree, torch.ones(5, 3)[1:])  # the storage offset is not guarded

    @pytest.mark.parametrize(
        ("other", "text"),
        [
            (lambda: torch.zeros(5, 3), "size of dimension 0 was 4, is 5"),
            (lambda: torch.zeros(4), "number of dimensions was 2, is 1"),
            (lambda: torch.zeros(3, 4).t(), "stride of dimension 0 was 3, is 1"),
            (lambda: torch.zeros(4, 3, dtype=torch.float64), "dtype was float, is double"),
            (lambda: torch.zeros(4, 3, requires_grad=True), "requires_grad was False, is True"),
            (lambda: torch.zeros(4, 3, device="meta"), "device was cpu, is meta"),
            (lambda: torch.zeros(4, 3).to_sparse(), "layout was Strided, is Sparse"),
            (lambda: torch.nn.Parameter(torch.zeros(4, 3)), "type was <class 'torch.Tensor'>, is"),
            (lambda: 3, "type was <class 'torch.Tensor'>, is <class 'int'>"),
            (lambda: None, "is <class 'NoneType'>"),
        ],
    )
    def test_fails(self, other, text):
        tree = build((X, "tensor", torch.zeros(4, 3)))
        assert not holds(tree, other())
        assert why(tree, other()).startswith("tensor L['x']: ")
        assert text in why(tree, other())

    def test_conj_neg_and_inference_tensors(self):
        plain = torch.zeros(2, dtype=torch.complex64)
        tree = build((X, "tensor", plain))
        assert not holds(tree, plain.conj())
        assert not holds(tree, torch._neg_view(plain))
        assert "dispatch keys" in why(tree, plain.conj())
        with torch.inference_mode():
            inference = torch.zeros(2, dtype=torch.complex64)
        assert not holds(tree, inference)
        assert holds(build((X, "tensor", inference)), inference)

    def test_functorch_wrappers(self):
        tree = build((X, "tensor", torch.zeros(3)))
        seen = []

        def probe(x):
            seen.append(tree.check((x,), {}, None, None))
            return x

        torch.vmap(probe)(torch.zeros(2, 3))
        torch.func.grad(lambda x: probe(x).sum())(torch.zeros(3))
        assert seen == [False, False]

    def test_subclass(self):
        class Sub(torch.Tensor):
            pass

        tree = build((X, "tensor", torch.zeros(2).as_subclass(Sub)))
        assert holds(tree, torch.zeros(2).as_subclass(Sub))
        assert not holds(tree, torch.zeros(2))

    def test_free_dimensions(self):
        tree = build((X, "tensor", (torch.zeros(4, 3), (None, 3), None)))
        assert holds(tree, torch.zeros(9, 3)) and not holds(tree, torch.zeros(9, 2))
        tree = build((X, "tensor", (torch.zeros(4, 3), (None, None), (None, 1))))
        assert holds(tree, torch.zeros(9, 5)) and not holds(tree, torch.zeros(5, 9).t())
        assert "sizes (*, *), strides (*, 1)" in tree.describe()[0]
        with pytest.raises(ValueError, match="one entry per dimension"):
            build((X, "tensor", (torch.zeros(4, 3), (None,), None)))

    def test_zero_and_many_dimensions(self):
        for sizes in ((), (0,), (1,) * 9):
            tree = build((X, "tensor", torch.zeros(sizes)))
            assert holds(tree, torch.zeros(sizes)) and not holds(tree, torch.zeros(2))

    def test_static_tensor(self):
        parameter = torch.nn.Parameter(torch.zeros(4, 3))
        tree = build((X, "static_tensor", parameter))
        assert holds(tree, parameter) and not holds(tree, torch.nn.Parameter(torch.zeros(4, 3)))
        parameter.data = torch.ones(4, 3)
        assert holds(tree, parameter)
        parameter.data = torch.ones(5, 3)
        assert why(tree, parameter) == "tensor L['x']: size of dimension 0 was 4, is 5"
        parameter.data = torch.ones(3, 4).t()
        assert not holds(tree, parameter)
        parameter.data = torch.ones(4, 3, dtype=torch.float64)
        assert not holds(tree, parameter)
        parameter.data = torch.ones(4, 3)
        assert holds(tree, parameter)
        parameter.requires_grad_(False)
        assert not holds(tree, parameter)


class TestAccessors:
    def test_locals(self):
        tree = build((Y, "constant", 2))
        assert holds(tree, 1, 2) and not holds(tree, 2, 1) and not holds(tree, 2)
        assert "not bound" in why(tree, 2)

    def test_closure(self):
        content, cell = ClosureSource("a", 0), ClosureCellSource("a", 0)
        a = types.CellType(5)
        tree = build((content, "constant", 5), (cell, "id", a))
        assert holds(tree, closure=(a,)) and not holds(tree, closure=(types.CellType(5),))
        assert not holds(tree) and not holds(tree, closure=(types.CellType(),))
        assert why(tree) == "cell('a'): cannot be read, it is not bound"

    def test_globals_and_builtins(self):
        tree = build((GlobalSource("len"), "id", len), (GlobalSource("flag"), "constant", True))
        assert holds(tree, globals={"flag": True})
        assert not holds(tree, globals={"flag": True, "len": sum})
        assert not holds(tree, globals={"flag": 1})
        assert "KeyError" in why(tree, globals={})

    def test_modules(self):
        tree = build((AttrSource(ModuleSource("math"), "pi"), "constant", math.pi))
        assert holds(tree)
        saved = sys.modules.pop("math")
        try:
            assert why(tree) == "sys.modules['math']: cannot be read (KeyError: 'math')"
        finally:
            sys.modules["math"] = saved

    def test_containers(self):
        tree = build(
            (SequenceItemSource(X, 1), "constant", 2),
            (InstanceDictSource(Y), "length", 1),
            (DictItemSource(InstanceDictSource(Y), "d"), "length", 2),
            (DictKeySource(AttrSource(Y, "d"), 1), "constant", "b"),
            (DictValueSource(AttrSource(Y, "d"), 1), "constant", 4),
            (ItemSource(AttrSource(Y, "d"), "a"), "constant", 3),
            (TypeSource(Y), "id", Plain),
        )
        ordered = collections.OrderedDict
        for make in (dict, ordered):
            assert holds(tree, [1, 2], Plain(d=make(a=3, b=4)))
            assert not holds(tree, [1, 2], Plain(d=make(b=4, a=3)))
            assert not holds(tree, [1], Plain(d=make(a=3, b=4)))
            assert not holds(tree, 5, Plain(d=make(a=3, b=4)))
        assert "TypeError: not a list or tuple but int" in why(tree, 5, Plain())
        assert [str(sources.LocalSource("x", 0))] == ["L['x']"]

    def test_functions_and_cells(self):
        def make(n):
            def inner(k=7):
                return n + k

            return inner

        cell = SequenceItemSource(AttrSource(X, "__closure__"), 0)
        tree = build(
            (CellContentsSource(cell), "constant", 1),
            (SequenceItemSource(AttrSource(X, "__defaults__"), 0), "constant", 7),
            (AttrSource(AttrSource(Y, "__self__"), "a"), "constant", 3),
        )
        assert holds(tree, make(1), Plain(a=3).method)
        assert not holds(tree, make(2), Plain(a=3).method)
        assert not holds(tree, make(1), Plain(a=4).method)

    def test_call(self):
        tree = build((CallSource(X, abs, "abs"), "constant", 3))
        assert holds(tree, -3) and not holds(tree, 4) and not holds(tree, "a")
        assert why(tree, "a").startswith("abs(L['x']): cannot be read (TypeError")

    def test_shared_steps_are_taken_once(self):
        calls = []

        class Counting:
            @property
            def part(self):
                calls.append(1)
                return (1, 2)

        part = AttrSource(X, "part")
        tree = build(
            (SequenceItemSource(part, 0), "constant", 1),
            (SequenceItemSource(part, 1), "constant", 2),
            (part, "type", tuple),
            (part, "length", 2),
        )
        assert tree.check((Counting(),), {}, None, None)
        assert len(calls) == 1


class TestGlobalState:
    @pytest.mark.parametrize(
        ("change", "values", "text"),
        [
            (torch.set_grad_enabled, (False, True), "grad mode was on, is off"),
            (
                torch.set_default_dtype,
                (torch.float64, torch.float32),
                "default dtype was Float, is Double",
            ),
            (torch.use_deterministic_algorithms, (True, False), "deterministic algorithms was off"),
            (torch.set_float32_matmul_precision, ("medium", "highest"), "float32 matmul precision"),
            (torch.set_autocast_cache_enabled, (False, True), "autocast cache was on, is off"),
        ],
    )
    def test_settings(self, change, values, text):
        tree = build((None, "globals", None))
        assert holds(tree)
        change(values[0])
        try:
            assert not holds(tree)
            assert why(tree).startswith("global state: ") and text in why(tree)
        finally:
            change(values[1])
        assert holds(tree)

    @pytest.mark.parametrize(
        "context",
        [
            torch.no_grad,
            torch.inference_mode,
            lambda: torch.autocast("cpu", dtype=torch.bfloat16),
            lambda: torch.autocast("cpu", dtype=torch.float16),
            lambda: torch.device("meta"),
            lambda: torch._C.DisableTorchFunctionSubclass(),
            lambda: torch.utils._python_dispatch.TorchDispatchMode(),
        ],
    )
    def test_contexts(self, context):
        outside = build((None, "globals", GlobalState()))
        with context():
            inside = build((None, "globals", GlobalState()))
            assert holds(inside) and not holds(outside)
            assert why(outside)
        assert holds(outside) and not holds(inside)

    def test_autocast_dtype_matters(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            tree = build((None, "globals", None))
        with torch.autocast("cpu", dtype=torch.float16):
            assert "autocast dtype for cpu was BFloat16, is Half" in why(tree)

    def test_equal_default_devices(self):
        with torch.device("meta"):
            tree = build((None, "globals", None))
        with torch.device("meta"):
            assert holds(tree)
        with torch.device("cpu"):
            assert not holds(tree)
            assert "mode was" in why(tree)

    def test_grad_mode(self):
        tree = build((None, "grad_mode", True))
        assert holds(tree)
        with torch.no_grad():
            assert why(tree) == "global state: grad mode was on, is off"

    def test_snapshot(self):
        state = GlobalState()
        assert state.check() and state.difference() == "" and state.grad_mode
        with torch.no_grad():
            assert not state.check() and state.difference() == "grad mode was on, is off"
        assert "default dtype Float" in repr(state)

    def test_a_new_thread(self):
        """It has the settings of the process, and the usual ones in place of another thread's."""
        state, seen = GlobalState(), []
        thread = threading.Thread(target=lambda: seen.append(state.difference()))
        with torch.autocast("cpu"), torch.no_grad(), torch.device("meta"):
            thread.start()
            thread.join()
        assert seen == [""]


class TestOrderAndErrors:
    def test_what_fails_often_comes_first(self):
        seen = []

        def noting(name, answer):
            def predicate(value):
                seen.append(name)
                return answer

            return predicate

        tree = build((X, "predicate", noting("x", True)), (Y, "predicate", noting("y", False)))
        assert not tree.check((1, 2), {}, None, None)
        assert seen == ["x", "y"]
        assert not tree.check((1, 2), {}, None, None)
        assert seen == ["x", "y", "y"]

    def test_an_exception_is_a_failure(self):
        class Bad:
            @property
            def a(self):
                raise RuntimeError("no")

        tree = build((AttrSource(X, "a"), "constant", 1))
        assert not holds(tree, Bad())
        assert why(tree, Bad()) == "L['x'].a: cannot be read (RuntimeError: no)"

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
    def test_an_interrupt_propagates(self, error):
        class Bad:
            @property
            def a(self):
                raise error

        tree = build((AttrSource(X, "a"), "constant", 1))
        with pytest.raises(error):
            tree.check((Bad(),), {}, None, None)
        assert holds(tree, Plain(a=1))

    def test_bad_arguments(self):
        tree = build((X, "constant", 1))
        for arguments in [([1], {}), ((1,), None), ((1,), {}, 3, None)]:
            with pytest.raises(TypeError):
                tree.check(*arguments)

    def test_equal_guards_are_one(self):
        guard_set = GuardSet()
        for _ in range(3):
            guard_set.add(LocalSource("x", 0), "constant", 1)
            guard_set.add(LocalSource("x", 0), "constant", True)
        assert len(guard_set) == 2
