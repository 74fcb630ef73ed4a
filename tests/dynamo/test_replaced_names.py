"""Functions of torch, methods of Tensor and of nn.Module, builtins and functions of C modules
replaced between two calls of a compiled function, and before the first.
"""

import builtins
import math
import operator
import sys
import types
import unittest.mock as mock

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo
from dynamo.values.functions.monkey_patches import is_programs
from tests.children import run_script

cos = torch.cos
Tensor = torch.Tensor


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.gelu = nn.GELU()

    def forward(self, x):
        return self.gelu(self.linear(x))


torch.manual_seed(0)
block, linear, norm = Block(), nn.Linear(4, 4), nn.LayerNorm(4)
relu, sin, abs_, isinstance_ = Tensor.relu, torch.sin, abs, isinstance


def call_linear(x):
    return linear(x)


def imports(x):
    from torch import sin

    return sin(x)


def patches_inside(x):
    with mock.patch.object(torch, "sin", cos):
        inside = torch.sin(x)
    return inside + 2 * torch.sin(x)


def assigns_inside(x):
    before = torch.sin(x)
    torch.sin = cos
    try:
        return before + 2 * torch.sin(x)
    finally:
        torch.sin = sin


def _copy_of(module, **changed):
    made = types.ModuleType(module.__name__)
    vars(made).update(vars(module), **changed)
    return made


# (function, owner, name, what is put there)
ROWS = {
    "torch_function": (lambda x: torch.sin(x) + 1, torch, "sin", lambda x: cos(x)),
    "torch_function_by_torchs_own": (lambda x: torch.sin(x), torch, "sin", torch.sigmoid),
    "torch_function_by_torchs_own_in_a_function": (
        lambda x: F.relu(x),
        torch,
        "relu",
        torch.tanh,
    ),
    "operator_behind_a_namespace": (
        lambda x: torch.einsum("ij,kj->ik", x, x),
        torch._VF,
        "einsum",
        lambda equation, operands: cos(operands[0]),
    ),
    "torch_function_deleted": (
        lambda x: torch.sin(x) if hasattr(torch, "sin") else x,
        torch,
        "sin",
        None,
    ),
    "torch_function_that_wraps": (lambda x: torch.sin(x), torch, "sin", lambda x: sin(x) * 3),
    "torch_function_imported": (imports, torch, "sin", lambda x: cos(x)),
    "torch_constant": (lambda x: x * torch.pi, torch, "pi", 3),
    "torch_dtype": (lambda x: x.to(torch.float32), torch, "float32", torch.float64),
    "torch_folded": (lambda x: x * torch.is_tensor(3), torch, "is_tensor", lambda x: 7),
    "torch_operator": (lambda x: torch.ops.aten.sin(x), torch.ops.aten, "sin", lambda x: cos(x)),
    "torch_class": (lambda x: nn.ReLU()(x), nn, "ReLU", nn.Sigmoid),
    "torch_module": (
        lambda x: torch.nn.functional.relu(x),
        torch.nn,
        "functional",
        _copy_of(F, relu=cos),
    ),
    "functional": (lambda x: F.gelu(x), F, "gelu", lambda x: cos(x)),
    "functional_in_module": (block, F, "gelu", lambda x, approximate: cos(x)),
    "functional_linear_in_module": (block, F, "linear", lambda x, w, b: cos(x)),
    "behind_functional": (lambda x: F.relu(x), torch, "relu", lambda x: cos(x)),
    "behind_functional_module": (norm, torch, "layer_norm", lambda x, *a, **k: cos(x)),
    "behind_functional_method": (
        lambda x: F.softmax(x, 0),
        Tensor,
        "softmax",
        lambda x, *a, **k: cos(x),
    ),
    "behind_method": (lambda x: x.norm(), torch, "norm", lambda x, *a, **k: cos(x)),
    "behind_two": (
        lambda x: torch.norm(x),
        torch.linalg,
        "vector_norm",
        lambda x, *a, **k: cos(x),
    ),
    "builtin_behind_functional": (lambda x: F.normalize(x, dim=0), F, "len", lambda x: 3),
    "method": (lambda x: x.relu(), Tensor, "relu", lambda x: cos(x)),
    "method_by_torchs_own": (lambda x: x.relu(), Tensor, "relu", Tensor.sigmoid),
    "method_that_wraps": (lambda x: x.relu(), Tensor, "relu", lambda x: relu(x) * 3),
    "method_unbound": (lambda x: Tensor.relu(x), Tensor, "relu", lambda x: cos(x)),
    "method_static": (lambda x: x.relu(), Tensor, "relu", staticmethod(lambda: torch.ones(2))),
    "method_added": (
        lambda x: x.half_of(2) if hasattr(x, "half_of") else x,
        Tensor,
        "half_of",
        lambda x, n: cos(x) * n,
    ),
    "method_shadowed": (lambda x: x.clone(), Tensor, "clone", lambda x: cos(x)),
    "method_of_parameter": (
        lambda x: linear.weight.relu(),
        nn.Parameter,
        "relu",
        lambda x: cos(x),
    ),
    "constant_added": (lambda x: x * getattr(x, "mine", 1), Tensor, "mine", 3),
    "property": (lambda x: x.T, Tensor, "T", property(lambda x: cos(x))),
    "property_relied_on": (lambda x: x * x.shape[0], Tensor, "shape", property(lambda x: (7,))),
    "add": (lambda x: x + 1, Tensor, "__add__", lambda x, y: cos(x)),
    "add_not_implemented": (lambda x: x + x, Tensor, "__add__", lambda x, y: NotImplemented),
    "radd": (lambda x: 1 + x, Tensor, "__radd__", lambda x, y: cos(x)),
    "iadd": (lambda x: operator.iadd(x.clone(), 1), Tensor, "__iadd__", lambda x, y: cos(x)),
    "lt": (lambda x: x < 1, Tensor, "__lt__", lambda x, y: cos(x)),
    "neg": (lambda x: -x, Tensor, "__neg__", lambda x: cos(x)),
    "getitem": (lambda x: x[0], Tensor, "__getitem__", lambda x, i: cos(x)),
    "setitem": (lambda x: operator.setitem(x, 0, 3), Tensor, "__setitem__", lambda x, i, v: None),
    "len": (lambda x: x * len(x), Tensor, "__len__", lambda x: 3),
    "bool": (lambda x: x if x.sum() else x + 1, Tensor, "__bool__", lambda x: False),
    "contains": (lambda x: x * (3 in x), Tensor, "__contains__", lambda x, y: True),
    "iter": (lambda x: sum(list(x)), Tensor, "__iter__", lambda x: iter([cos(x)])),
    "forward": (block, nn.Linear, "forward", lambda self, x: cos(x)),
    "forward_of_global": (call_linear, nn.Linear, "forward", lambda self, x: cos(x)),
    "call_of_one_class": (call_linear, nn.Linear, "__call__", lambda self, x: cos(x)),
    "call": (call_linear, nn.Module, "__call__", lambda self, x: cos(x)),
    "call_of_root": (block, nn.Module, "__call__", lambda self, x: cos(x)),
    "call_impl": (call_linear, nn.Module, "_call_impl", lambda self, x: cos(x)),
    "call_impl_of_root": (block, nn.Module, "_call_impl", lambda self, x: cos(x)),
    "builtin": (lambda x: x * abs(-3), builtins, "abs", lambda x: 7),
    "builtin_that_wraps": (lambda x: x * abs(-3), builtins, "abs", lambda x: abs_(x) + 1),
    "builtin_len": (lambda x: x * len([1, 2]), builtins, "len", lambda x: 7),
    "builtin_sum": (lambda x: x * sum([1, 2]), builtins, "sum", lambda x: 7),
    "builtin_isinstance": (
        lambda x: x * isinstance(x, int),
        builtins,
        "isinstance",
        lambda x, kind: kind is int or isinstance_(x, kind),
    ),
    "builtin_print": (lambda x: (print("a"), x * 2)[1], builtins, "print", lambda *x: None),
    "builtin_added": (
        lambda x: x * my_own if "my_own" in dir(builtins) else x,  # noqa: F821
        builtins,
        "my_own",
        5,
    ),
    "math_constant": (lambda x: x * math.pi, math, "pi", 3),
    "math_function": (lambda x: x * math.sqrt(3), math, "sqrt", lambda x: 3),
    "math_polyfill": (lambda x: x * math.prod([3]), math, "prod", lambda x: 31),
    "operator": (lambda x: operator.add(x, 2), operator, "add", lambda x, y: cos(x)),
    "nothing_but_inside": (patches_inside, torch, "not_there", None),
    "assigned_inside": (assigns_inside, torch, "not_there", None),
}
# Python keeps the sequence slot of a type that had `__getitem__` once, and torch.tensor asks any
# value with that slot for a length: torch.tensor([x[0]]) raises for the rest of the process.
_LASTING = ("getitem",)
_DEFAULT = ("torch_function", "functional_in_module", "method", "add", "builtin", "property")


class Change:
    """`owner.name = new`, or the name deleted for None, and back. What is a function counts how
    often captured code calls it.
    """

    def __init__(self, owner, name, new):
        self.owner, self.name, self.calls = owner, name, []
        self.new = self._counting(new) if type(new) is types.FunctionType else new
        self.held = vars(owner).get(name, self) if hasattr(owner, "__dict__") else self

    def _counting(self, new):
        calls = self.calls

        def replaced(*args, **kwargs):
            calls.append("called")
            return new(*args, **kwargs)

        return replaced

    def __enter__(self):
        if self.new is not None:
            setattr(self.owner, self.name, self.new)
        elif self.name in vars(self.owner):
            delattr(self.owner, self.name)

    def __exit__(self, *_):
        if self.held is not self:
            setattr(self.owner, self.name, self.held)
        elif self.name in vars(self.owner):
            delattr(self.owner, self.name)


def outcome(function):
    x = torch.linspace(0.1, 2, 16).reshape(4, 4)
    try:
        result = function(x)
    except Exception as error:
        return type(error), x
    return result, x


def agree(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.allclose(one, other)
    if isinstance(one, tuple):
        return all(map(agree, one, other))
    return one == other


def check(row, backend, first):
    function, owner, name, new = ROWS[row]
    change = Change(owner, name, new)
    counted = name not in ("isinstance", "len")  # which everything calls
    compiled = dynamo.compile(function, backend=backend)

    def compare():
        expected, calls = outcome(function), len(change.calls)
        change.calls.clear()
        found, called = outcome(compiled), len(change.calls)
        change.calls.clear()
        assert agree(expected, found), (expected, found)
        assert called == calls or not counted

    if not first:
        compare()
    for _ in range(3):
        with change:
            compare()
            compare()
        compare()


@pytest.mark.parametrize("first", [False, True], ids=["between", "before"])
@pytest.mark.parametrize(
    ("row", "backend"),
    [(row, "aot_eager") for row in ROWS if row not in _LASTING]
    + [(row, "inductor") for row in _DEFAULT],
)
def test_replaced(row, backend, first):
    check(row, backend, first)


@pytest.mark.parametrize("first", [False, True], ids=["between", "before"])
@pytest.mark.parametrize("row", _LASTING)
def test_replaced_in_another_process(row, first):
    done = run_script(f"from {__name__} import check; check({row!r}, 'aot_eager', {first})")
    assert done.returncode == 0, done.stderr


def test_a_patch_that_comes_and_goes_is_compiled_once():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    function = dynamo.compile(lambda x: torch.sin(x).relu(), backend=backend)
    x = torch.ones(3)
    for _ in range(20):
        assert torch.equal(function(x), sin(x).relu())
        with mock.patch.object(torch, "sin", cos), mock.patch.object(Tensor, "exp", relu):
            assert torch.equal(function(x), cos(x).relu())
        with mock.patch.object(torch, "cos", sin), mock.patch.object(math, "pi", 3):  # not read
            assert torch.equal(function(x), sin(x).relu())
    assert len(graphs) == 2


def test_a_module_replaced_in_sys_modules():
    def function(x):
        import math

        return x * math.sqrt(4)

    compiled = dynamo.compile(function, backend="eager")
    x = torch.ones(2)
    assert compiled(x).tolist() == [2, 2]
    other = types.ModuleType("math")
    other.sqrt = lambda x: 5
    with mock.patch.dict(sys.modules, {"math": other}):
        assert compiled(x).tolist() == [5, 5]
    assert compiled(x).tolist() == [2, 2]


def test_builtins_of_a_namespace_of_its_own():
    """A function whose globals bring their own builtins shares its code with one that has
    Python's.
    """

    def function(x):
        return x * len([1, 2])

    other = types.FunctionType(
        function.__code__, {"__builtins__": {**vars(builtins), "len": lambda x: 9}}
    )
    x = torch.ones(2)
    for one, expected in ((function, 2), (other, 9), (function, 2)):
        assert dynamo.compile(one, backend="eager")(x).tolist() == [expected] * 2


def test_a_subclass_of_tensor_with_a_method_of_its_own():
    class Mine(torch.Tensor):
        pass

    compiled = dynamo.compile(lambda x: x.relu() + 1, backend="aot_eager")
    x = torch.linspace(-1, 1, 4).as_subclass(Mine)

    def values():
        return compiled(x).tolist()

    plain = (x.relu() + 1).tolist()
    assert values() == plain
    with mock.patch.object(Tensor, "relu", lambda x: cos(x)):
        assert values() == (cos(x) + 1).tolist()
        with mock.patch.object(Mine, "relu", lambda x: x * 5, create=True):
            assert values() == (x * 5 + 1).tolist()
    assert values() == plain


def test_many_threads():
    """Each thread sees what is there when it calls."""
    import threading

    compiled = dynamo.compile(lambda x: torch.sin(x) + len([1]), backend="eager")
    x, wrong = torch.ones(4), []
    stop = threading.Event()

    def change():
        while not stop.is_set():
            torch.a_new_name = 1
            del torch.a_new_name

    def call():
        for _ in range(300):
            if not torch.equal(compiled(x), sin(x) + 1):
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(3)]
    changer = threading.Thread(target=change)
    changer.start()
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    stop.set()
    changer.join()
    assert not wrong


def test_whose_code():
    assert is_programs(test_whose_code) and is_programs(mock.Mock())
    own = [torch.sin, F.relu, F.interpolate, Tensor.norm, Tensor.relu, math.sqrt, print, nn.Linear]
    assert not any(map(is_programs, own))


def test_a_module_that_another_takes_the_place_of(monkeypatch):
    """In sys.modules, in which imports look; a global that leads to a module is not asked again."""
    settings = types.ModuleType("settings_of_the_test")
    settings.scale = torch.ones(3)
    monkeypatch.setitem(sys.modules, settings.__name__, settings)

    def by_global(x):
        return x * settings.scale

    def by_import(x):
        from settings_of_the_test import scale

        return x * scale

    def by_both(x):
        settings.last = x
        return by_import(x)

    runs = {f: dynamo.compile(f, backend="eager") for f in (by_global, by_import, by_both)}
    x = torch.ones(3)
    for scale in (1.0, 5.0, 7.0):
        for function, run in runs.items():
            assert torch.equal(run(x), function(x))
        other = types.SimpleNamespace(scale=torch.full((3,), scale + 1))
        monkeypatch.setitem(sys.modules, settings.__name__, other)
        for function, run in runs.items():
            assert torch.equal(run(x), function(x))
