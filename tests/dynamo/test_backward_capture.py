"""backward() inside a compiled frame: captured, and everything that it leaves as in eager."""

from __future__ import annotations

import textwrap

import pytest
import torch

import dynamo
from tests.dynamo.differential import check

PRELUDE = """
m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
for i, p in enumerate(m.parameters()):
    p.data = T(*p.shape, dtype=torch.float64) * (i + 1) / 7
X = T(5, 3, dtype=torch.float64)
"""

# name -> (number of graphs of each frame and continuation compiled, program)
CASES: dict[str, tuple[list[int], str]] = {
    "loss": (
        [1],
        """
        def f(m, x):
            loss = m(x).square().mean()
            loss.backward()
            return loss.detach()
        ---
        run(m, X)
        """,
    ),
    # As containers of tensors: calls of torch with plain tensors are torch's.
    "beside_an_object_that_overrides_torch": (
        [1],
        """
        class Nest:
            def __init__(self, held): self.held = held
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return Nest(func(*(getattr(a, "held", a) for a in args)))
        def f(m, x):
            loss = torch.sub(Nest(m(x)), 1.0).held.square().mean()
            loss.backward()
            return loss.detach()
        ---
        run(m, X)
        """,
    ),
    "gradient_beside_a_number_that_varies": (
        [1, 1],
        """
        def f(x, n):
            x = x.detach().requires_grad_()
            return torch.autograd.grad((x * n).exp().sum(), x)[0]
        ---
        run(X, 2)
        run(X, 3)
        run(X, 4)
        """,
    ),
    "accumulates": (
        [1, 1],
        """
        def f(m, x):
            m(x).square().mean().backward()
        ---
        run(m, X)
        run(m, X * 2)
        run(m, X * 3)
        """,
    ),
    "twice_in_a_frame": (
        [1],
        """
        def f(m, x):
            for part in x.split(2):
                (m(part).square().sum() / len(x)).backward()
        ---
        run(m, X)
        """,
    ),
    "loss_is_spent": (
        [1],
        """
        def f(m, x):
            loss = m(x).square().mean()
            loss.backward()
            return loss
        ---
        loss = run(m, X)
        loss.requires_grad, loss.is_leaf
        loss.backward()
        """,
    ),
    "spent_for_grad_too": (
        [1],
        """
        def f(a, b):
            y = (a * b).exp().sum()
            y.backward()
            return y
        ---
        a, b = T(4, grad=True), T(4, grad=True)
        y = run(a, b)
        torch.autograd.grad(y, a)
        torch.autograd.grad(y, b, allow_unused=True)
        """,
    ),
    "loss_with_nothing_saved_is_not_spent": (
        [1],
        """
        def f(w):
            loss = w.sum()
            loss.backward()
            return loss
        ---
        w = T(4, grad=True)
        loss = run(w)
        loss.backward()
        """,
    ),
    "prediction_returned": (
        [1],
        """
        def f(m, x):
            y = m(x)
            y.square().mean().backward()
            return y
        ---
        y = run(m, X)
        y.sum().backward()
        """,
    ),
    "retain_graph": (
        [1],
        """
        def f(m, x):
            y = m(x)
            y.square().mean().backward(retain_graph=True)
            return y
        ---
        y = run(m, X)
        y.sum().backward()
        y.sum().backward()
        """,
    ),
    "retain_graph_then_again": (
        [1],
        """
        def f(m, x):
            loss = m(x).square().mean()
            loss.backward(retain_graph=True)
            loss.backward()
        ---
        run(m, X)
        """,
    ),
    "gradient_given": (
        [1],
        """
        def f(m, x, g):
            y = m(x)
            y.backward(g)
        ---
        run(m, X, T(5, 2, dtype=torch.float64))
        """,
    ),
    "gradient_given_is_not_shared": (
        [1],
        """
        def f(w, g):
            (w * 1.0 + 0).view(-1).backward(g)
            w.view(-1).backward(g)
        ---
        w, g = T(4, grad=True), T(4)
        run(w, g)
        g.zero_()
        w.grad
        """,
    ),
    "of_a_leaf_itself": (
        [1],
        """
        def f(w, g):
            w.backward(g)
        ---
        w, g = T(4, grad=True), T(4)
        run(w, g)
        g.zero_()
        w.grad
        """,
    ),
    "one_gradient_for_two": (
        [1],
        """
        def f(a, b):
            (a + b).exp().sum().backward()
        ---
        a, b = T(4, grad=True), T(4, grad=True)
        run(a, b)
        a.grad.zero_()
        b.grad
        """,
    ),
    "expanded_gradient": (
        [1],
        """
        def f(a):
            a.sum().backward()
        ---
        a = T(3, 4, grad=True)
        run(a)
        a.grad.stride()
        a.grad[0, 0] = 5
        a.grad
        """,
    ),
    "strides_of_the_leaf": (
        [1],
        """
        def f(a, x):
            (a.t() @ x).sum().backward()
        ---
        a = T(4, 3).t().requires_grad_()
        run(a, T(3, 2))
        a.grad.stride()
        """,
    ),
    "not_dense_leaf": (
        [1],
        """
        def f(a):
            a.exp().sum().backward()
        ---
        a = T(4, 6)[:, ::2].detach().requires_grad_()
        run(a)
        a.grad.stride()
        """,
    ),
    "unused_leaf": (
        [1],
        """
        def f(a, b):
            c = b * 2
            a.exp().sum().backward()
            return c
        ---
        a, b = T(4, grad=True), T(4, grad=True)
        c = run(a, b)
        b.grad is None
        c.sum().backward()
        b.grad
        """,
    ),
    "function_of_torch": (
        [1],
        """
        def f(a, b):
            torch.autograd.backward([a.exp().sum(), a * b], [None, torch.ones(4)])
        ---
        a, b = T(4, grad=True), T(4, grad=True)
        run(a, b)
        """,
    ),
    "inputs_given": (
        [1],
        """
        def f(a, b):
            (a * b).sum().backward(inputs=[b])
        ---
        a, b = T(4, grad=True), T(4, grad=True)
        run(a, b)
        a.grad is None
        """,
    ),
    "leaf_made_in_the_frame": (
        [1],
        """
        def f(x):
            a = x.detach().clone().requires_grad_()
            (a * a).sum().backward()
            return a, a.grad
        ---
        run(T(4))
        """,
    ),
    "grad_read_in_the_frame": (
        [1],
        """
        def f(m, x):
            m(x).square().mean().backward()
            with torch.no_grad():
                for p in m.parameters():
                    p -= 0.1 * p.grad
            total = sum(p.grad.norm() for p in m.parameters())
            m.zero_grad()
            return total
        ---
        run(m, X)
        run(m, X)
        """,
    ),
    "zero_grad_keeps_tensors": (
        [1, 1],
        """
        def f(m, x):
            m.zero_grad(set_to_none=False)
            m(x).square().mean().backward()
        ---
        run(m, X)
        kept = m[0].weight.grad
        run(m, X * 2)
        kept is m[0].weight.grad
        """,
    ),
    "under_no_grad": (
        [1],
        """
        def f(a):
            y = a.exp().sum()
            with torch.no_grad():
                y.backward()
            return a.grad * 2
        ---
        run(T(4, grad=True))
        """,
    ),
    "detached_branch": (
        [1],
        """
        def f(a, b):
            y = (a * b.detach()).sum() + (a.detach() * b).exp().sum().detach()
            y.backward()
        ---
        a, b = T(4, grad=True), T(4, grad=True)
        run(a, b)
        b.grad is None
        """,
    ),
    "in_a_method": (
        [1],
        """
        class Trainer:
            def __init__(self, m):
                self.m, self.steps = m, 0
            def step(self, x):
                loss = self.m(x).square().mean()
                loss.backward()
                self.steps += 1
                return loss.detach()
        def f(t, x):
            return t.step(x)
        ---
        t = Trainer(m)
        run(t, X)
        t.steps
        """,
    ),
    # -- what is left to eager, one break each ---------------------------------------------------
    "create_graph_breaks": (
        [1, 1],
        """
        def f(a):
            y = a.exp().sum()
            y.backward(create_graph=True)
            return a.grad * 2
        ---
        a = T(4, grad=True)
        run(a).sum().backward()
        """,
    ),
    "history_outside_breaks": (
        [1, 1],
        """
        def f(h):
            y = h.exp().sum()
            y.backward()
            return y * 2
        ---
        a = T(4, grad=True)
        run(a * 2)
        """,
    ),
    "hook_breaks": (
        [1, 1],
        """
        def f(a):
            y = a.exp().sum()
            y.backward()
            return y.detach() * 2
        ---
        a = T(4, grad=True)
        h = a.register_hook(lambda g: log.append(g.clone()) or g * 2)
        run(a)
        log
        """,
    ),
    "hook_after_breaks": (
        [1, 1],
        """
        def f(a):
            y = a.exp().sum()
            y.backward()
            return y.detach() * 2
        ---
        a = T(4, grad=True)
        h = a.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))
        run(a)
        log
        """,
    ),
    "hook_comes_later": (
        [1, 1, 1],
        """
        def f(a):
            y = a.exp().sum()
            y.backward()
            return y.detach() * 2
        ---
        a = T(4, grad=True)
        run(a)
        a.grad = None
        h = a.register_hook(lambda g: log.append(g.clone()) or g * 2)
        run(a)
        log
        """,
    ),
    "hook_of_the_accumulator_breaks": (
        [1, 1],
        """
        def f(a):
            y = a.exp().sum()
            y.backward()
            return y.detach() * 2
        ---
        a = T(4, grad=True)
        node = a.expand_as(a).grad_fn.next_functions[0][0]
        h = node.register_hook(lambda into, outof: log.append(outof[0].clone()))
        run(a)
        log
        """,
    ),
    "hook_of_the_accumulator_comes_later": (
        [1, 1, 1],
        """
        def f(a):
            y = a.exp().sum()
            y.backward()
            return y.detach() * 2
        ---
        a = T(4, grad=True)
        node = a.expand_as(a).grad_fn.next_functions[0][0]
        run(a)
        a.grad = None
        h = node.register_prehook(lambda outof: log.append(outof[0].clone()) or (outof[0] * 2,))
        run(a)
        log
        """,
    ),
    "hook_that_was_removed": (
        [1],
        """
        def f(a):
            y = a.exp().sum()
            y.backward()
            return y.detach() * 2
        ---
        a = T(4, grad=True)
        a.register_hook(lambda g: log.append(g.clone()) or g * 2).remove()
        run(a)
        log
        """,
    ),
    "hook_in_the_frame_breaks": (
        [1, 1],
        """
        def f(a):
            b = a * 2
            b.register_hook(lambda g: log.append(g.clone()))
            y = b.exp().sum()
            y.backward()
            return y.detach() * 2
        ---
        run(T(4, grad=True))
        log
        """,
    ),
    "anomaly_breaks": (
        [1, 1],
        """
        def f(a):
            y = a.exp().sum()
            y.backward()
            return y.detach() * 2
        ---
        with torch.autograd.detect_anomaly(): run(T(4, grad=True))
        """,
    ),
    "nothing_to_differentiate": (
        [1, 1],
        """
        def f(a):
            y = a.exp().sum()
            try:
                y.backward()
            except RuntimeError as e:
                y = y + 1
            return y * 2
        ---
        run(T(4))
        """,
    ),
    "not_a_scalar": (
        [1, 1],
        """
        def f(a):
            y = a.exp()
            try:
                y.backward()
            except RuntimeError as e:
                y = y.detach() + 1
            return y * 2
        ---
        run(T(4, grad=True))
        """,
    ),
    "freed_in_the_frame": (
        [1, 0],
        """
        def f(a):
            y = a.exp().sum()
            y.backward()
            try:
                y.backward()
            except RuntimeError as e:
                return str(e)
        ---
        run(T(4, grad=True))
        """,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_program(name):
    graphs, program = CASES[name]
    records = check(PRELUDE + textwrap.dedent(program))
    found = [len(record.graphs) for record in records]
    assert found == graphs, found


def keeps_a_part(weight):
    """As caches of prefix tuning: of two halves, one is returned, whose graph is not freed."""
    keys, values = weight.view(2, 3, 4)
    kept = torch.cat([keys, torch.ones(1, 4)])
    loss = kept.sin().sum() * values.sum()
    loss.backward()
    return loss.detach(), kept


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_part_of_what_was_differentiated_is_returned(backend):
    weights = [torch.linspace(0, 1, 24).requires_grad_() for _ in (0, 1)]
    for function, weight in zip(
        (keeps_a_part, dynamo.compile(keeps_a_part, backend=backend)), weights
    ):
        _, kept = function(weight)
        kept.sum().backward()
    torch.testing.assert_close(weights[1].grad, weights[0].grad)


def marks_a_view(x):
    """The view says that it requires grad, as x does, and gets none before it is marked."""
    with torch.no_grad():
        y = x.view(-1)
    y.requires_grad_()
    (y * y).sum().backward()
    return y


def marks_a_legacy_view(x):
    with torch.no_grad():
        y = torch.Tensor(x)
    y.requires_grad = True
    return y, (y * x).sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", [marks_a_view, marks_a_legacy_view])
def test_views_made_without_gradients_get_some_once_marked(function, backend):
    found = []
    for run in (function, dynamo.compile(function, backend=backend)):
        x = torch.linspace(1, 2, 4).requires_grad_()
        y, *results = run(x) if function is marks_a_legacy_view else (run(x),)
        for result in results:
            result.backward()
        found.append((y.grad, x.grad, *(r.detach() for r in results)))
    torch.testing.assert_close(found[1], found[0])
    assert found[0][0] is not None
