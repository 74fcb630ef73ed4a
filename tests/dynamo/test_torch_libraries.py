"""Libraries over torch in captured code: distributions, custom operators, optimizers, and einops in
small.
"""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributions as D
from torch import nn

from dynamo.api.compile import compile
from tests.dynamo.torch_ops import check_program
from tests.dynamo.values_support import CountingBackend


def probabilities():
    return torch.tensor([0.2, 0.3, 0.5])


def matrix():
    return torch.arange(6.0).reshape(2, 3) + 0.5


# -- distributions --------------------------------------------------------------------------------
ONES = torch.ones(3)
CLASS = torch.tensor(1)
# name -> (the distribution of a parameter, a value, attributes to read)
DISTRIBUTIONS = {
    "normal": (lambda x: D.Normal(x, 1.0), ONES, "mean stddev variance"),
    "normal of numbers": (lambda x: D.Normal(0.0, 1.0), ONES, "mean"),
    "categorical": (lambda x: D.Categorical(probs=x), CLASS, "probs logits"),
    "categorical of logits": (lambda x: D.Categorical(logits=x), CLASS, "probs logits"),
    "bernoulli": (lambda x: D.Bernoulli(x), ONES, "mean logits"),
    "bernoulli of logits": (lambda x: D.Bernoulli(logits=x), ONES, "mean probs"),
    "uniform": (lambda x: D.Uniform(x, x + 1), ONES * 0.6, "mean"),
    "multivariate normal": (
        lambda x: D.MultivariateNormal(x, scale_tril=torch.eye(3)),
        ONES,
        "covariance_matrix precision_matrix",
    ),
    "independent": (
        lambda x: D.Independent(D.Normal(x, 1.0), 1),
        ONES,
        "batch_shape event_shape",
    ),
    "log-normal": (lambda x: D.LogNormal(x, 1.0), ONES, "mean"),
    "gamma": (lambda x: D.Gamma(x, x), ONES, "mean"),
    "beta": (lambda x: D.Beta(x, x), ONES * 0.5, "mean"),
    "dirichlet": (lambda x: D.Dirichlet(x), ONES / 3, "mean"),
    "exponential": (lambda x: D.Exponential(x), ONES, "mean"),
    "laplace": (lambda x: D.Laplace(x, x), ONES, "mean"),
    "gumbel": (lambda x: D.Gumbel(x, x), ONES, "mean"),
    "student": (lambda x: D.StudentT(x + 3), ONES, "mean"),
    "one-hot": (lambda x: D.OneHotCategorical(x), torch.eye(3)[0], "mean"),
    "cauchy": (lambda x: D.Cauchy(x, x), ONES, "mode"),
    "half-normal": (lambda x: D.HalfNormal(x), ONES, "mean"),
    "geometric": (lambda x: D.Geometric(x), ONES, "mean"),
    "expanded": (lambda x: D.Normal(x, 1.0).expand((2, 3)), ONES, "batch_shape"),
}


@pytest.fixture
def unchecked():
    """Checks of arguments look at values; some distributions make others that check theirs."""
    D.Distribution.set_default_validate_args(False)
    yield
    D.Distribution.set_default_validate_args(True)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(name):
    make, value, attributes = DISTRIBUTIONS[name]
    names = attributes.split()

    def program(x):
        d = make(x)
        read = [getattr(d, attribute) for attribute in names]
        return d.sample(), d.sample((2,)), d.log_prob(value), d.entropy(), read

    check_program(program, (probabilities,), 1, None)


def two_kl(x):
    return (
        D.kl_divergence(D.Normal(x, 1.0), D.Normal(0.0, x)),
        D.kl_divergence(D.Categorical(x), D.Categorical(x.flip(0))),
        D.kl_divergence(D.Bernoulli(x), D.Bernoulli(x.flip(0))),
    )


def rsample_has_gradient(x):
    w = x.clone()
    return D.Normal(w, 1.0).rsample((2,)), D.Uniform(w, w + 1).rsample()


def transformed(x):
    base = D.Normal(x, 1.0)
    parts = [D.transforms.ExpTransform(), D.transforms.AffineTransform(1.0, 2.0)]
    d = D.TransformedDistribution(base, parts)
    return d.sample(), d.rsample(), d.log_prob(x + 2)


def mixture(x):
    d = D.MixtureSameFamily(D.Categorical(x), D.Normal(x, 1.0))
    return d.sample(), d.log_prob(x)


def transforms(x):
    tanh = D.transforms.TanhTransform()
    exp = D.transforms.ComposeTransform([D.transforms.ExpTransform()])
    return D.transforms.SigmoidTransform()(x), tanh.log_abs_det_jacobian(x, x.tanh()), exp.inv(x)


def constraints(x):
    return D.constraints.positive.check(x), D.constraints.interval(0.0, 0.4).check(x)


def checked_matrices(x):
    one, other = torch.eye(3) + x.diag(), torch.eye(3) * 2
    normal = D.MultivariateNormal(x, one)
    others = torch.stack([one, -one, one + torch.ones(3, 3).triu()])
    definite, symmetric = D.constraints.positive_definite, D.constraints.symmetric
    checks = [definite.check(others), symmetric.check(others), definite.check(others[:, :2])]
    return checks, normal.rsample(), D.kl_divergence(normal, D.MultivariateNormal(x, other))


def test_matrices_are_checked_in_the_graph():
    check_program(checked_matrices, (probabilities,), 1, None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "program",
    [two_kl, rsample_has_gradient, transformed, mixture, transforms, constraints],
    ids=lambda f: f.__name__,
)
def test_distributions_together(program):
    check_program(program, (probabilities,), 1, None)


def validates(x):
    d = D.Normal(x, 1.0)
    return d.sample(), d.log_prob(x)


def refuses(x):
    return D.Normal(x, -1.0)


def from_outside(d, x):
    return d.log_prob(x), d.sample()


@pytest.fixture
def validation():
    """On, as Python has it; torch's compiler, once imported, turns it off."""
    before = D.Distribution._validate_args
    D.Distribution.set_default_validate_args(True)
    yield
    D.Distribution.set_default_validate_args(before)


def test_validation_is_checked_behind_the_graph(validation):
    check_program(validates, (probabilities,), 1, None)
    check_program(refuses, (probabilities,), 1, None)
    given = (lambda: D.Normal(torch.zeros(3), torch.ones(3)), probabilities)
    check_program(from_outside, given, 1, None)


# -- custom operators -----------------------------------------------------------------------------
@torch.library.custom_op("framegraph_tests::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@scale.register_fake
def _(x, factor):
    return torch.empty_like(x)


def _keep_factor(ctx, inputs, output):
    ctx.factor = inputs[1]


def _scale_backward(ctx, grad):
    return grad * ctx.factor, None


scale.register_autograd(_scale_backward, setup_context=_keep_factor)


@torch.library.custom_op("framegraph_tests::increment", mutates_args=("x",))
def increment(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("framegraph_tests::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("framegraph_tests::pair", mutates_args=())
def pair(
    x: torch.Tensor, others: list[torch.Tensor], k: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    return x * k, others[0] + 1


@pair.register_fake
def _(x, others, k=1):
    return torch.empty_like(x), torch.empty_like(others[0])


@torch.library.custom_op("framegraph_tests::places", mutates_args=())
def places(x: torch.Tensor) -> torch.Tensor:
    return x.nonzero()


@places.register_fake
def _(x):
    n = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((n, x.dim()), dtype=torch.long)


@torch.library.custom_op("framegraph_tests::halves", mutates_args=())
def halves(x: torch.Tensor, n: int) -> tuple[list[torch.Tensor], int]:
    return [x * n, x + n], n


@halves.register_fake
def _(x, n):
    return [torch.empty_like(x), torch.empty_like(x)], n


halves.register_autograd(
    lambda ctx, grads, _: (grads[0] * ctx.n + grads[1], None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]),
)


LIBRARY = torch.library.Library("framegraph_tests2", "FRAGMENT")
LIBRARY.define("mul(Tensor x, Tensor y) -> Tensor")
LIBRARY.impl("mul", lambda x, y: x * y, "CompositeImplicitAutograd")
LIBRARY.define("shifted(Tensor x) -> Tensor")
LIBRARY.impl("shifted", lambda x: x + 5, "CPU")
LIBRARY.impl("shifted", torch.empty_like, "Meta")
LIBRARY.define("fill_(Tensor(a!) x, float v) -> Tensor(a!)")
LIBRARY.impl("fill_", lambda x, v: x.copy_(torch.full_like(x, v)), "CompositeExplicitAutograd")


def calls_custom_op(x):
    return scale(x, 2.0) + 1, torch.ops.framegraph_tests.scale(x, 3.0)


def calls_overload(x):
    return torch.ops.framegraph_tests.scale.default(x, factor=3.0)


def mutates_input(x):
    increment(x)
    return x * 2


def mutates_own(x):
    y = x * 1
    z = y[0]
    increment(y)
    return y, z


def mutates_between(x):
    y = x * 2
    before = y.sum()
    increment(y)
    after = y + before
    increment(y[0])
    return after, y, y.t() * x.t()


@torch.library.custom_op("framegraph_tests::increment_all", mutates_args=("xs",))
def increment_all(xs: list[torch.Tensor], k: float) -> torch.Tensor:
    for x in xs:
        x.add_(k)
    return xs[0] * 2


@increment_all.register_fake
def _(xs, k):
    return torch.empty_like(xs[0])


def mutates_list(x):
    a, b = x + 1, x.clone()
    c = increment_all([a, b], 2.0)
    return a * b + c, b


def fills(x):
    y = x.clone()
    return torch.ops.framegraph_tests2.fill_(y, 2.0) + 1, y


def several_results(x):
    a, b = pair(x, [x, x], k=3)
    return a + b, pair(x, [x])


def library_ops(x):
    ops = torch.ops.framegraph_tests2
    return ops.mul(x, x) + ops.shifted(x)


def aten_ops(x):
    aten = torch.ops.aten
    return (
        aten.add(x, 1),
        aten.add.Tensor(x, x),
        aten.sum.dim_IntList(x, [0]),
        aten.topk(x, 2),
        aten.relu_(x.clone()),
        torch.ops.prims.add(x, x),
    )


@pytest.mark.parametrize(
    "program",
    [
        calls_custom_op,
        calls_overload,
        several_results,
        library_ops,
        aten_ops,
        mutates_input,
        mutates_own,
        mutates_between,
        mutates_list,
        fills,
    ],
    ids=lambda f: f.__name__,
)
def test_custom_operator(program):
    check_program(program, (matrix,), 1, None)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize(
    "program",
    [mutates_input, mutates_own, mutates_between, mutates_list, fills],
    ids=lambda f: f.__name__,
)
def test_what_custom_operators_write(program, needs_grad, backend):
    if needs_grad:
        one, other = matrix().requires_grad_(), matrix().requires_grad_()
        expected = program(one * 1)
        found = compile(program, backend=backend)(other * 1)
    else:
        one, other = matrix(), matrix()
        expected, found = program(one), compile(program, backend=backend)(other)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(one, other)


def test_custom_operators_break_where_they_must():
    check_program(lambda x: no_fake(x) + 1, (matrix,), 1, "OP_ERROR")
    check_program(lambda x: places(x), (matrix,), 1, None)
    check_program(lambda x: scale(x, "a"), (matrix,), 0, "OP_ERROR")


def test_gradient_of_a_custom_operator():
    x = matrix().requires_grad_()
    compile(lambda x: scale(x * 2, 2.0), backend=CountingBackend(), fullgraph=True)(
        x
    ).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 4.0))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradient_of_a_list_beside_a_number(backend):
    def f(x):
        (first, second), n = halves(x * 2, 3)
        return first * n + second

    x = matrix().requires_grad_()
    compile(f, backend=backend)(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 20.0))


# -- optimizers -----------------------------------------------------------------------------------
OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    (torch.optim.AdamW, {}),
    (torch.optim.RMSprop, {"momentum": 0.1, "centered": True}),
    (torch.optim.Adagrad, {}),
    (torch.optim.Adadelta, {}),
    (torch.optim.Adamax, {}),
    (torch.optim.NAdam, {}),
    (torch.optim.Rprop, {}),
    # Eager looks at the step, or at what depends on it; captured code counts in tensors.
    (torch.optim.RAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    (torch.optim.ASGD, {"t0": 1, "lambd": 0.1}),
]


def model_and_optimizer(cls, options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    options = {name: value() if callable(value) else value for name, value in options.items()}
    return model, cls(model.parameters(), **options)


def three_steps(model, optimizer, step):
    torch.manual_seed(1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        step()
        schedule.step()
    states = [optimizer.state[p] for p in model.parameters()]
    return list(model.parameters()), [list(state) for state in states], states


def check_optimizer(cls, options, graphs):
    """Steps count in tensors while capturing, so results agree up to rounding."""
    model, optimizer = model_and_optimizer(cls, options)
    expected = three_steps(model, optimizer, optimizer.step)
    model, optimizer = model_and_optimizer(cls, options)
    backend = CountingBackend()
    step = compile(lambda: optimizer.step(), backend=backend, fullgraph=True)
    found = three_steps(model, optimizer, step)
    assert found[1] == expected[1]
    torch.testing.assert_close(found[0], expected[0])
    for mine, theirs in zip(found[2], expected[2]):
        for name in theirs:
            torch.testing.assert_close(mine[name], theirs[name])
    assert backend.graphs <= graphs


@pytest.mark.parametrize("foreach", [False, True], ids=["for", "foreach"])
@pytest.mark.parametrize(
    ("cls", "options"), OPTIMIZERS, ids=lambda v: v.__name__ if isinstance(v, type) else "-".join(v)
)
def test_optimizer_step(cls, options, foreach):
    # The first step makes the state; the learning rate of each step is a constant of its graph.
    check_optimizer(cls, {**options, "foreach": foreach}, graphs=4)


@pytest.mark.parametrize("foreach", [False, True], ids=["for", "foreach"])
def test_later_steps_of_radam(foreach):
    """Numbers of the sixth step are differences of nearly equal ones."""
    results = []
    for make in (lambda step: step, lambda step: compile(step, backend="eager", fullgraph=True)):
        model, optimizer = model_and_optimizer(torch.optim.RAdam, {"foreach": foreach, "lr": 0.1})
        step = make(lambda optimizer=optimizer: optimizer.step())
        for _ in range(8):
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            step()
        results.append([p.detach() for p in model.parameters()])
        results.append([optimizer.state[p]["step"] for p in model.parameters()])
    torch.testing.assert_close(results[2], results[0], rtol=1e-4, atol=1e-5)
    assert results[3] == results[1]


@pytest.mark.parametrize("foreach", [False, True], ids=["for", "foreach"])
@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam])
def test_corrections_of_bias_are_exact(cls, foreach):
    """1 - beta2**step, in single precision, is wrong in the fifth digit."""
    steps = []
    for make in (lambda step: step, lambda step: compile(step, backend="eager", fullgraph=True)):
        parameter = nn.Parameter(torch.zeros(5))
        parameter.grad = torch.arange(1.0, 6.0)
        make(cls([parameter], foreach=foreach).step)()
        steps.append(parameter.detach())
    torch.testing.assert_close(steps[1], steps[0], rtol=1e-6, atol=0.0)


def test_learning_rate_in_a_tensor_is_no_constant():
    rate = {"lr": lambda: torch.tensor(0.1), "foreach": False}
    check_optimizer(torch.optim.SGD, rate, graphs=1)
    check_optimizer(torch.optim.Adam, rate, graphs=2)


def test_fused_optimizers():
    check_optimizer(torch.optim.Adam, {"fused": True}, graphs=4)
    check_optimizer(torch.optim.SGD, {"fused": True, "lr": 0.1}, graphs=4)


def test_gradients_cleared_in_the_frame():
    def program(parameters, x):
        for p in parameters:
            p.grad.zero_()
        first = [p.grad.clone() for p in parameters]
        for p in parameters:
            p.grad = None
        return x * 2, first, [p.grad for p in parameters]

    def parameters():
        made = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
        for p in made:
            p.grad = torch.ones_like(p)
        return made

    check_program(program, (parameters, matrix), 2, None)
    given = parameters()
    compile(program, backend=CountingBackend(), fullgraph=True)(given, matrix())
    assert all(p.grad is None for p in given)


# -- reshaping by text, as einops does it ---------------------------------------------------------
def _axes(side):
    groups, group = [], None
    for token in side.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            group = []
        elif token == ")":
            groups.append(group)
            group = None
        elif group is None:
            groups.append([token])
        else:
            group.append(token)
    return groups


@functools.lru_cache(256)
def recipe(pattern, ndim, names):
    """What to do for a pattern: cached, and made of immutable data."""
    left, right = (_axes(side) for side in pattern.split("->"))
    if len(left) != ndim:
        raise ValueError(f"{pattern!r} is for {len(left)} dimensions, not {ndim}")
    flat = [axis for group in left for axis in group]
    order = [flat.index(axis) for group in right for axis in group if axis in flat]
    dropped = tuple(i for i, axis in enumerate(flat) if i not in order)
    return (
        tuple(tuple(group) for group in left),
        tuple(order),
        dropped,
        tuple(tuple(group) for group in right),
    )


def sizes_of(shape, left, known):
    sizes = dict(known)
    for size, group in zip(shape, left):
        rest, missing = size, []
        for axis in group:
            if axis in sizes:
                rest //= sizes[axis]
            else:
                missing.append(axis)
        if len(missing) > 1:
            raise ValueError(f"sizes of {missing} are not known")
        if missing:
            sizes[missing[0]] = rest
    return sizes


def rearrange(x, pattern, reduction=None, **known):
    left, order, dropped, right = recipe(pattern, x.ndim, tuple(sorted(known)))
    sizes = sizes_of(x.shape, left, known)
    x = x.reshape([sizes[axis] for group in left for axis in group])
    if dropped:
        x = getattr(x, reduction)(dim=dropped, keepdim=True)
    x = x.permute(*order, *dropped)
    shape = []
    for group in right:
        size = 1
        for axis in group:
            size *= sizes[axis]
        shape.append(size)
    return x.reshape(shape)


PATTERNS = [
    ("a b -> b a", {}),
    ("a b -> (a b)", {}),
    ("a (b c) -> a c b", {"c": 3}),
    ("a b -> a", {"reduction": "amax"}),
    ("(a k) b -> k (a b)", {"k": 2}),
    ("a b -> b", {"reduction": "sum"}),
]


@pytest.mark.parametrize(("pattern", "options"), PATTERNS, ids=[p for p, _ in PATTERNS])
def test_rearrange(pattern, options):
    check_program(lambda x: rearrange(x, pattern, **options) * 2, (matrix,), 1, None)


def test_rearrange_refuses():
    def program(x):
        try:
            return rearrange(x, "a b c -> a")
        except ValueError as error:
            return x, str(error)

    check_program(program, (matrix,), 1, None)


class Plan:
    """What to do with an axis for a pattern: an object that caches tell by its identity."""

    def __init__(self, parts):
        self.parts = parts
        self.order = [1, 0]


def caches():
    """Functions with caches of their own, that take an object of the other's and sizes."""

    @functools.lru_cache(256)
    def plan(parts):
        return Plan(parts)

    @functools.lru_cache(1024)
    def shapes(plan, shape):
        split = list(shape)
        split[-1:] = [shape[-1] // plan.parts, plan.parts]
        return split, plan.order, {len(split): shape[-1]}

    def program(x):
        split, order, added = shapes(plan(3), x.shape)
        return x.reshape(split).transpose(*order), len(added), x.sum(0) * added[3]

    return program, shapes


@pytest.mark.parametrize("asked_before", [0, 1, 40])
def test_cached_functions_of_objects_and_sizes(asked_before):
    """Whatever their caches hold by eager calls, as those of einops do in a process."""
    program, cache = caches()
    twin, twin_cache = caches()
    for n in range(asked_before):
        for each in (program, twin):
            each(torch.ones(2 + n, 6))
    backend = CountingBackend()
    captured = compile(program, backend=backend, fullgraph=True)
    for rows, columns in [(2, 6), (2, 6), (2, 9), (2, 12), (5, 12), (2, 9), (7, 15)]:
        x = torch.rand(rows, columns)
        for result, expected in zip(captured(x), twin(x)):
            assert torch.equal(torch.as_tensor(result), torch.as_tensor(expected))
        assert cache.cache_info() == twin_cache.cache_info()
    assert backend.graphs <= 4


def test_a_cached_function_that_makes_tensors_keeps_them_for_each_size():
    """A tensor of the cache is the same one in each call: numbers that vary are constants there."""
    calls = []

    @functools.lru_cache
    def mask(n):
        calls.append(n)
        return torch.ones(n, n).tril()

    def program(x):
        m = mask(x.size(0))
        return x @ m, m

    backend = CountingBackend()
    captured = compile(program, backend=backend, dynamic=True)
    for n in [3, 4, 3, 4, 5]:
        x = torch.rand(n, n)
        result, kept = captured(x)
        assert torch.equal(result, x @ torch.ones(n, n).tril())
        assert kept is mask(n)
    assert calls == [3, 4, 5]


# -- tensors without strides ----------------------------------------------------------------------
def ragged(layout):
    return lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)


def sizes_of_a_ragged_tensor(nested):
    shape = nested.shape
    return nested.values() * 2 + shape[0], len(shape), shape[1] == shape[1]


WITHOUT_STRIDES = {
    "csr": (lambda x: (x.to_sparse_csr() @ x.T, x.to_sparse_csr().crow_indices() + 1), matrix),
    "csc": (lambda x: x.to_sparse_csc().to_dense() + 1, matrix),
    "nested inside": (
        lambda x: torch.nested.nested_tensor([x, x[:1]]).to_padded_tensor(0.0),
        matrix,
    ),
    "nested": (lambda nested: nested.to_padded_tensor(0.0) + 1, ragged(torch.strided)),
    "jagged": (lambda nested: (nested * 2).values() + 1, ragged(torch.jagged)),
    "jagged sizes": (sizes_of_a_ragged_tensor, ragged(torch.jagged)),
}


@pytest.mark.filterwarnings("error:a fault")
@pytest.mark.parametrize("name", WITHOUT_STRIDES)
def test_tensors_without_strides_stay_outside_of_graphs(name):
    function, make = WITHOUT_STRIDES[name]
    found = compile(function, backend="aot_eager")(make())
    torch.testing.assert_close(found, function(make()), rtol=0, atol=0)
