"""Programs that call torch and Python wrongly: the exception, its text and where it can be caught
are eager's.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import operator
import traceback
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import dynamo
from fxgraph import type_trials

# Wrong shapes, dtypes, dimensions, numbers and kinds of arguments, keywords and names.
CALLS = """
x + y | torch.add(x, y) | x @ y | torch.mm(m, m) | x.view(7) | x.reshape(2, 2) | x[5] | m[:, 7]
x['a'] | x[1, 1] | torch.cat([x, m]) | torch.cat([]) | torch.cat(3) | torch.stack([x, y])
torch.sin('a') | torch.sin() | torch.sin(x, wrong=1) | x.sum(dim=5) | torch.sum(x, dim='q')
F.linear(x, y) | F.conv2d(x, y) | F.relu(3) | F.softmax(x, dim=4) | F.log_softmax(m, 3)
F.cross_entropy(m, x) | F.layer_norm(x, (5,)) | F.embedding(x, m) | F.embedding(i + 9, m)
x.nope | torch.nope | float(x) | bool(x) | x.item() | ~x | x & 1 | x << i | i / 0 | i // 0
x.to('nope') | x.to(3, 4, 5) | torch.zeros(-1) | torch.zeros('a') | torch.ones(2, dtype=3)
torch.arange(3, 1) | torch.full((2,), 'a') | torch.tensor([[1], [1, 2]]) | torch.tensor(object())
x.expand(2, 2) | x.permute(1) | x.transpose(0, 3) | x.unsqueeze(9) | x.gather(0, y)
x.gather(1, i) | x.index_select(0, i + 5) | x.scatter(0, i + 5, x) | x[i + 7] | x[b] | x[[0, 9]]
x.masked_fill(b, 0) | x.chunk(0) | x.split([1, 1]) | x.unflatten(0, (2, 2)) | x.add_(y)
i.add_(0.5) | i.requires_grad_() | torch.einsum('ij,jk', m, m) | torch.einsum('i->j', x)
torch.bmm(x, x) | torch.linalg.inv(m) | torch.linalg.cholesky(-torch.eye(2)) | F.pad(x, (1,))
F.dropout(x, p=3.0) | F.max_pool2d(x, 2) | torch.nn.Linear(2, 3)(x) | torch.float32(1)
torch.Size('a') | torch.finfo(torch.int32) | torch.device('nope') | F.one_hot(i, 1)
torch.bucketize(x, m) | torch.as_strided_scatter(m, m, (2, 3), (99, 9))
torch.multinomial(-x, 1) | torch.bernoulli(x * 5) | x.uniform_(2, 1) | x.dot(i) | m.cumsum(3)
torch.zeros(range(1, 3)) | m.permute(range(2)) | m.sum(range(2)) | x.expand(range(2, 4))
F.pad(m, range(2)) | m.split(range(1, 3)) | operator.concat(x, x)
m.sort(5) | m.argsort(7) | m.softmax(-4) | x.topk(9) | m.max(7) | m.norm(dim=9) | m.flip(5)
i.mul_(x) | b.mul_(i[:2]) | i.addcmul_(x, x) | i.__imul__(x.sum()) | b.mul_(1.5)
m.tril('a') | x ** 'a' | x + None | 'a' + x | x < 'a' | x[None, 'a'] | x[1.5] | x[..., ..., 0]
torch.Tensor('a') | torch.FloatTensor(x, x) | x.new(object()) | x.mro() | torch.sin.nope
complex(1, 2, 3) | complex('a', 1) | len(z) | list(z) | (*z,) | [q for q in z] | max(z) | dict(z)
zip(z) | enumerate(z) | 3 in z | tuple(map(str, z)) | torch.stack(z) | sum(z) | z[0] | iter(z)
torch.zeros(range(2)) | m.permute(range(2)) | m.expand(range(2, 4)) | m[range(1)]
m.sum(range(2)) | operator.concat(x.numpy(), x.numpy()) | F.dropout(x, 0.0, 0)
x.view(range(3, 4)) | operator.concat(x, x) | F.dropout(x, 0.5, None)
F.dropout2d(m, 0.0, 1) | torch.dropout(x, 0.0, 0.0)
""".replace("\n", " | ").split(" | ")
CALLS = [text for text in CALLS if text]
BATCH = 14
FRAMES = [CALLS[start : start + BATCH] for start in range(0, len(CALLS), BATCH)]


def arguments():
    x, y, i = torch.ones(3), torch.ones(4), torch.arange(3)
    return x, y, i, torch.tensor(1.5), torch.ones(2, 3), torch.tensor([True, False])


def program(texts):
    """A function that catches what each of the expressions raises."""
    lines = ["def f(x, y, i, z, m, b):", "    x = x * 1", "    raised = []"]
    for text in texts:
        lines += ["    try:", f"        r = {text}", "    except Exception as error:"]
        lines += ["        raised.append((type(error), str(error)))"]
        lines += ["    else:", f"        raised.append(({text!r}, r))"]
    namespace = {"torch": torch, "F": F, "operator": operator}
    exec("\n".join([*lines, "    return x, raised"]), namespace)
    return namespace["f"]


def raised_by(function, *args):
    try:
        return "returned", repr(function(*args))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("texts", FRAMES, ids=[frame[0] for frame in FRAMES])
def test_caught(texts):
    function = program(texts)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # of a fault in capture
        found = dynamo.compile(function, backend="eager")(*arguments())[1]
    assert list(map(repr, found)) == list(map(repr, function(*arguments())[1]))


@pytest.mark.parametrize("text", CALLS[::17])
def test_uncaught(text):
    namespace = {"torch": torch, "F": F, "operator": operator}
    exec(f"def f(x, y, i, z, m, b):\n    x = x * 1\n    return {text}", namespace)
    function = namespace["f"]
    compiled = dynamo.compile(function, backend="eager")
    assert raised_by(compiled, *arguments()) == raised_by(function, *arguments())


@pytest.mark.parametrize("texts", [FRAMES[1]])
def test_caught_with_the_default_backend(texts):
    function = program(texts)
    found = dynamo.compile(function)(*arguments())[1]
    assert list(map(repr, found)) == list(map(repr, function(*arguments())[1]))


def unpacked(x):
    a, b = x.sum()
    return a


def unpacked_single(x):
    (a,) = x.sum()
    return a


def unpacked_wrong(x):
    a, b = x
    return a


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [unpacked, unpacked_single, unpacked_wrong])
def test_tensors_unpacked(function, backend):
    x = torch.ones(3)
    assert raised_by(dynamo.compile(function, backend=backend), x) == raised_by(function, x)


# -- what fake tensors and stand-ins of ours take, and the real ones do not ------------------------
class Refusing:
    """Operators that break the graph and refuse."""

    def __radd__(self, other):
        dynamo.graph_break()
        return NotImplemented

    __rmul__ = __radd__


def takes(a, *, b=0):
    return a


def group_of(kinds):
    try:
        raise ValueError(1)
    except* kinds:
        pass


# Statements and expressions, which raise or not.
STATEMENTS = """
i ** -1 | torch.pow(i, exponent=-2) | i.pow(-1) | i **= -1 | x ** -1
x.as_strided((9,), (1,)) | torch.as_strided(x, (2,), (1,), 4) | torch.as_strided(x, (2,), (2,))
e.add_(1) | e += 1 | e.copy_(m) | e[:] = m | e[:] = 4 | e[0] = 4 | e.unsqueeze_(0) | e.fill_(3)
e.mul_(2) | e[:, 1] = 2 | torch.zeros(2, device='cuda:99') | x.to('cuda:98')
torch.div(i, i * 0, rounding_mode='floor') | torch.div(i, 2) | torch._check(x.sum() > 5)
torch._assert_async(x.sum() > 5) | torch._assert_async(x.sum() < 5)
[1] + Refusing() | 'a' + Refusing() | (1,) * Refusing() | x = [1]; x += Refusing() | 3 + Refusing()
dataclasses.fields(3) | group_of(3) | group_of(ExceptionGroup) | group_of(ValueError)
takes(**3) | takes(1, **{'b': 1}, **{'b': 2}) | takes(*[1], b=2, **{'b': 3}) | x.sum(**3)
takes(**{'a': 1}, **{'b': 2}) | takes(1, **{3: 4}) | x.sum(dim=0, **{'dim': 0}) | Refusing.nope(**3)
F.binary_cross_entropy(x * 2, x) | F.binary_cross_entropy(x - 2, x)
F.binary_cross_entropy(x * 1.5, x) | F.binary_cross_entropy(x / 2, x * 1.5)
F.binary_cross_entropy(x / 2, x - 1.5)
torch.index_select(x, 0, m.long()) | torch.index_select(x, 0, x)
torch.select_scatter(m, x, 0, 9) | torch.select_scatter(m, m, 0, 0) | torch.slice_scatter(m, m, 2)
torch.slice_scatter(m, m[:1], 0) | torch.slice_scatter(m, m, 0, 1, 1)
torch.diagonal_scatter(m, x[:1])
torch.diagonal_scatter(m, x, 0, 1, 1) | torch.as_strided_scatter(m, x[:1], (2,), (1,))
m.index_copy(0, i[:1].int() * 0, m[:1]) | m.index_fill(0, i.int() * 0, 1) | m.index_fill(0, x, 1)
F.binary_cross_entropy(x / 0 * 0, x)
F.binary_cross_entropy(x / 3, x) | F.binary_cross_entropy(x / 3, x / 2, x * 3, reduction='sum')
F.binary_cross_entropy(x * 0, x, reduction='none') | F.binary_cross_entropy(x, x / 5)
""".replace("\n", " | ").split(" | ")
STATEMENTS = [text for text in STATEMENTS if text]


def report(error):
    """Type, text, context, and the lines of this file's programs in the traceback."""
    if error is None:
        return None
    lines = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    lines = [line for line in lines if line[0] in ("f", "inlined", "group_of")]
    return type(error), str(error), lines, report(error.__context__)


def outcome(function):
    """What a call of it returns or raises, and the tensors that it was given."""
    args = torch.ones(3), torch.arange(3), torch.ones(2, 3), torch.ones(3).expand(2, 3)
    try:
        result = function(*args)
    except Exception as error:
        result = report(error)
    return repr((result, args))


@pytest.mark.parametrize(
    ("backend", "where"), [("eager", "f"), ("eager", "inlined"), ("inductor", "inlined")]
)
def test_statements(where, backend):
    different = []
    for text in STATEMENTS:
        try:
            ast.parse(text, mode="eval")
            statement = f"r = {text}"
        except SyntaxError:
            statement = text
        lines = ["def inlined(x, i, m, e):", "    x = x * 1", "    r = None", f"    {statement}"]
        lines += ["    return x, r", "def f(x, i, m, e):", "    y = x + 1"]
        lines += ["    return inlined(y - 1, i, m, e)"]
        namespace = dict(globals())
        exec("\n".join(lines), namespace)
        function = namespace[where]
        wanted, got = outcome(function), outcome(dynamo.compile(function, backend=backend))
        if got != wanted:
            different.append((text, wanted, got))
    assert not different


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_the_rules_of_operators_do_not_refuse(backend):
    """They run as eager would in a graph with them, and so raise at its call."""
    ones, half = torch.ones(3), torch.full((3,), 0.5)
    calls = [lambda: F.celu(ones, 0.0), lambda: F.binary_cross_entropy(ones * 1.5, half)]
    calls += [lambda: F.binary_cross_entropy(half, ones * 1.5), lambda: F.celu(-ones, 0.5)]
    calls += [lambda: F.smooth_l1_loss(ones, half, beta=-1.0), lambda: F.smooth_l1_loss(ones, half)]
    calls += [lambda: torch.heaviside(ones.long(), half), lambda: torch.heaviside(ones, half)]
    calls += [lambda: F.nll_loss(ones.expand(2, 3), torch.tensor([0, 1], dtype=torch.int32))]
    calls += [lambda: torch.addcmul(ones.long(), ones.long(), ones.long(), value=0.5)]
    calls += [lambda: torch.diag(ones, out=torch.zeros(3, 3, dtype=torch.float64))]
    calls += [lambda: torch.add(ones, 1, out=torch.zeros(3, dtype=torch.float64))]
    calls += [lambda: ones.clone().masked_scatter_(ones.expand(2, 3) > 0, ones)]
    calls += [lambda: ones[:1].clone().atan2_(ones)] * 2  # the second finds what the first has kept
    for call in calls:
        assert raised_by(dynamo.compile(call, backend=backend)) == raised_by(call)


def refused_mask(x):
    return x.masked_select(x + 1)


def refused_bytes(x):
    return x.masked_select((x > 0).byte())


def refused_target(x):
    return F.binary_cross_entropy(x.sigmoid(), x.sigmoid().double())


def refused_slope(x):
    return F.celu(x + 1, 0.0)


def refused_threshold(x):
    return F.smooth_l1_loss(x + 1, x, beta=-1)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "function", [refused_mask, refused_bytes, refused_target, refused_slope, refused_threshold]
)
def test_a_refused_operation_raises_in_its_line(function, backend):
    """Kernels of ours would take some of them."""
    where = []
    for call in (function, dynamo.compile(function, backend=backend)):
        with pytest.raises(RuntimeError) as caught:
            call(torch.ones(2, 3))
        frames = traceback.extract_tb(caught.tb)
        where.append((str(caught.value), [f.line for f in frames if f.filename == __file__][1:]))
    assert where[0] == where[1]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_types_that_kernels_do_not_take(backend):
    """Rules and loops would take them: operators stay whole for these types."""
    i = torch.arange(12).reshape(3, 4)
    b, f, c, classes = i > 3, i.float(), i.to(torch.complex64), torch.tensor([0, 1, 2])
    h = f.half()
    calls = [lambda: torch.vdot(b[0], b[0]), lambda: b.trace(), lambda: F.threshold(b, 1, 5)]
    calls += [lambda: torch.addcmul(b, b, b), lambda: torch.addcdiv(b, b, b), lambda: c.aminmax()]
    calls += [lambda: F.tanhshrink(b), lambda: F.poisson_nll_loss(b, b), lambda: F.mse_loss(c, c)]
    calls += [lambda: F.pad(b, (1, 1), mode="reflect"), lambda: F.prelu(i, classes[:1])]
    calls += [lambda: F.unfold(i[None, None], 2), lambda: F.fold(i.reshape(1, 4, 3), (2, 4), 2)]
    calls += [lambda: F.interpolate(i[None], scale_factor=2, mode="linear")]
    calls += [
        lambda: F.interpolate(i[None], scale_factor=2),
        lambda: F.avg_pool3d(h[None, None], 1),
    ]
    calls += [lambda: F.multi_margin_loss(i, classes), lambda: F.multi_margin_loss(h, classes)]
    calls += [lambda: torch.special.log_ndtr(h), lambda: torch.heaviside(c, c)]
    calls += [lambda: torch.cross(b[:, :3], b[:, :3], dim=1), lambda: c.nan_to_num()]
    calls += [lambda: torch.cross(f[:, :3], h[:, :3], dim=1)]
    calls += [lambda: F.cross_entropy(f, classes, weight=h[0])]
    calls += [lambda: torch.isin(classes.to(torch.uint16), classes.to(torch.uint16))]  # taken
    for call in calls:
        assert raised_by(dynamo.compile(call, backend=backend)) == raised_by(call)


REFUSED_TYPES = {
    "median": lambda x: (x > 0).median(),
    "softplus": lambda x: F.softplus(x.int()),
    "bilinear": lambda x: F.interpolate(x.long()[None, None], scale_factor=2, mode="bilinear"),
    "order": lambda x: x.to(torch.complex64) < x,
    "two types": lambda x: torch.cdist(x, x.half()),
    "flip of a type without kernels": lambda x: x[0].to(torch.complex32).flip(0),
    "in place": lambda x: x.half().fill_(1e6),
    "a number": lambda x: torch.full((2,), 300, dtype=torch.uint8),
    "random": lambda x: torch.rand_like(x.long()),
    "a method in Python": lambda x: x.to(torch.float8_e4m3fn).norm(),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", REFUSED_TYPES)
def test_refused_types_are_caught(name, backend):
    """Whether the result is used or not: a program that asks so what it can use."""
    tried = REFUSED_TYPES[name]

    def asked(x, used):
        with contextlib.suppress(ValueError):
            try:
                result = tried(x)
            except RuntimeError as error:
                return x + 1, str(error)
        return (x * 2, result) if used else x * 2

    x = torch.arange(12.0).reshape(3, 4)
    for used in (False, True):
        state = torch.get_rng_state()
        compiled = dynamo.compile(asked, backend=backend)(x, used)
        assert torch.equal(torch.get_rng_state(), state)
        expected = asked(x, used)
        assert expected[1] == compiled[1]
        assert torch.equal(expected[0], compiled[0])


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_effects_before_a_refused_type_are_kept(backend, capsys):
    """Of Python, on tensors, shown ones, and of a mode that sees each call; nobody catches."""

    class Log(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    def appends(x, y):
        seen.append("before")
        return x.median()

    def writes(x, y):
        y.add_(1)
        return x.median()

    def prints(x, y):
        seen.append(y.add_(1))
        print("before")
        return x.median()

    def shows_calls(x, y):
        with Log():
            return x.logical_not().median()

    flags = torch.tensor([True, False])
    for program in (appends, writes, prints, shows_calls):
        outcomes = []
        for call in (program, dynamo.compile(program, backend=backend)):
            seen, y = [], torch.zeros(2)
            raised = raised_by(lambda: call(flags, y))
            same = [one is y for one in seen]
            outcomes.append((raised, str(seen), same, y.tolist(), capsys.readouterr().out))
        assert outcomes[0] == outcomes[1] and outcomes[0][0] is not None


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_types_of_recurrent_layers_are_not_tried(kind):
    """With weights of other sizes than its own such a layer reads past their ends."""
    layer = kind(8, 16).bfloat16()
    x = torch.randn(3, 2, 8, dtype=torch.bfloat16)
    with torch.no_grad():
        expected = layer(x)[0]
        torch.testing.assert_close(dynamo.compile(layer, backend="eager")(x)[0], expected)


def test_types_are_not_tried_with_large_numbers(monkeypatch):
    tried = []
    monkeypatch.setattr("fxgraph.type_trials._try", lambda function, *_: tried.append(function))

    def f(x, times):
        return x.repeat(times), x.sort()

    dynamo.compile(f, backend="eager")(torch.ones(1, dtype=torch.int16), 1 << 17)
    assert torch.Tensor.sort in tried and torch.Tensor.repeat not in tried


def test_a_trial_of_types_leaves_warnings_to_the_program():
    """Those that torch gives once in a process."""
    found = []
    type_trials._try(lambda: found.append(torch.is_warn_always_enabled()), (), {})
    assert found == [True] and not torch.is_warn_always_enabled()


def test_a_layer_norm_of_another_shape_with_a_number_that_varies():
    compiled, x = dynamo.compile(F.layer_norm, dynamic=True), torch.ones(3, 4)
    for shape, weight in (((5,), None), ((4,), torch.ones(1)), ((3, 5), None)):
        wanted = raised_by(lambda: F.layer_norm(x, shape, weight, eps=0.5))
        assert wanted is not None
        assert raised_by(lambda: compiled(x, shape, weight, eps=0.5)) == wanted


def test_the_errors_of_our_own_are_documented():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    section = text.partition("## Exceptions\n")[2].partition("\n## ")[0]
    for name, kind in inspect.getmembers(dynamo.errors, inspect.isclass):
        assert f"`{name}`" in section or kind.__module__ != "dynamo.errors", name


# -- anomaly mode ---------------------------------------------------------------------------------
def loss(x):
    return (x.sqrt() * 0).sum()


def backward_inside(x):
    with torch.autograd.detect_anomaly():
        loss(x).backward()
    return x.grad


class AnomalyInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad(), torch.autograd.detect_anomaly():
            z = x.detach().requires_grad_()
            loss(z).backward()
        return grad * z.grad


def custom(x):
    return AnomalyInBackward.apply(x).sum()


def around(function):
    def run(x):
        with torch.autograd.detect_anomaly():
            function(x).backward()
        return x.grad

    return run


def without(function):
    def run(x):
        function(x).backward()
        return x.grad

    return run


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    ("function", "run"), [(loss, around), (custom, without), (backward_inside, lambda f: f)]
)
@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_anomaly_mode(function, run, value, backend):
    """A compiled backward is one node of autograd, which has the name of its function."""

    def found(called):
        kind, text = raised_by(run(called), torch.full((3,), value, requires_grad=True))
        return kind, text.partition(" returned nan values")[1:] if kind is RuntimeError else text

    assert found(dynamo.compile(function, backend=backend)) == found(function)


# -- bound methods of C from outside --------------------------------------------------------------
def test_another_method_of_the_same_object():
    def call(x, method):
        return x + 1, method(1)

    compiled, numbers = dynamo.compile(call, backend="eager"), [5, 6, 1]
    methods = [numbers.count, numbers.index, numbers.__contains__, (3).__add__, (3).__sub__]
    methods += [numbers.__eq__, numbers.__ne__]
    for method in methods:
        assert compiled(torch.ones(1), method)[1] == method(1)
