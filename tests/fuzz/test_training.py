"""Random training programs: each step leaves what eager leaves.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

import textwrap

import pytest

from tests.fuzz.training import BACKENDS, Programs, difference, disagreements


@pytest.mark.parametrize("seed", range(2))
def test_programs(seed):
    wrong = disagreements(Programs(seed), 12, "aot_eager")
    assert not wrong, wrong


def test_eager():
    wrong = disagreements(Programs(100), 12, "eager")
    assert not wrong, wrong


@pytest.mark.slow
def test_inductor():
    wrong = disagreements(Programs(101), 5, "inductor")
    assert not wrong, wrong


FOUND = {
    "a result and a view of it, behind a backward": """
        w = T(4, 4, grad=True)
        def f(x):
            y = x @ w
            v = y[0]
            y.sum().backward()
            return y, v, y.t()[1], v.detach()
        ---
        result = run(T(3, 4, grad=True))
        result[1].sum().backward()
    """,
    "a view made without gradients, written in inference mode": """
        w = T(4, 4, grad=True)
        def f(x):
            y = x @ w
            with torch.inference_mode():
                x.add_(1)
            y.sum().backward()
            return y
        a = T(3, 4, grad=True)
        ---
        with torch.no_grad(): result = run(a[:])
    """,
    "a view made without gradients, written behind a new hook": """
        def f(x):
            y = x * 1
            x.register_hook(lambda g: g + 1)
            x.mul_(3)
            return y
        a = T(3, 4, grad=True)
        ---
        with torch.no_grad(): result = run(a[:])
    """,
    "the strides of a gradient of which one part arrives": """
        b = T(4, grad=True)
        def f(x):
            y = x * b
            return y, x.sum(), x.sum(0)
        a = T(3, 4, grad=True)
        ---
        log.append(torch.autograd.grad(f(a)[1], a))
        log.append(torch.autograd.grad(run(a)[1], a))
        log.append(torch.autograd.grad(run(a)[2].sum(), a))
        run(a)[1].backward()
        a.grad
    """,
    "a write to one of several views behind a backward, which autograd refuses": """
        b, w = T(4, grad=True), T(4, 4, grad=True)
        def f(x):
            y = x * b
            v = x.split(2, 1)[0]
            y.mean().backward(inputs=[w])
            v.add_(y.sum())
            return y
        ---
        result = run(T(3, 4))
    """,
    "refused by kernels, and unused": """
        net = nn.LayerNorm(4)
        def f(x):
            z = torch.nn.functional.layer_norm(x * 1, (4,), net.weight)
            return x * 2
        ---
        net.double()
        run(T(3, 4))
    """,
    "a function of autograd behind a branch, in inference mode": """
        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x.exp()
            @staticmethod
            def backward(ctx, g): return g
        def f(x):
            z = x * 1
            if z.sum() > 0:
                z = Exp.apply(x)
            return z
        ---
        with torch.inference_mode(): result = run(T(3, 4))
        with torch.inference_mode(): result = run(-T(3, 4))
    """,
    "an input returned by a module with a hook": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(4, 4)
            def forward(self, x):
                log.append(x)
                return self.inner(x), x
        f = net = Net()
        net.register_full_backward_hook(lambda *args: None)
        ---
        result = run(T(3, 4))
        result[0].sum().backward()
        result = run(T(3, 4, grad=True))
        result[0].sum().backward()
    """,
    "clipped without gradients": """
        net = nn.Linear(4, 4)
        def f(x):
            torch.nn.utils.clip_grad_value_(net.parameters(), 0.5)
            return net(x)
        ---
        run(T(3, 4))
        run(T(3, 4)).sum().backward()
        run(T(3, 4))
    """,
    "grad mode inside of inference mode": """
        def f(x, n):
            with torch.set_grad_enabled(n > 0):
                x.sin_()
            return x * 2
        ---
        x = T(3, grad=True)
        with torch.inference_mode(): run(x, 1)
        with torch.inference_mode(): run(T(3), 1)
    """,
    "a row of a tensor beside an assignment of data": """
        w = T(4, 4, grad=True)
        mean = torch.zeros(4)
        def f(x):
            y = x * 1
            with torch.no_grad():
                w.data = w.data * 0.5
            mean.copy_(y.detach()[0])
            return y
        ---
        run(T(3, 4, grad=True))
        run(T(5, 4, grad=True)).sum().backward()
    """,
    "data whose writes autograd does not count": """
        w = T(3, grad=True)
        def f(x):
            y = (x * w).exp()
            return y, y.data, x.data, x.data[1:]
        ---
        a = T(3, grad=True)
        x = a * 1
        squared = x * x
        y, z, u, v = run(x)
        z.mul_(1)
        u.add_(0)
        v.mul_(1)
        x._version, y._version
        y.sum().backward()
        squared.sum().backward()
        w.grad, a.grad
    """,
    "data of an input in inference": """
        def f(x): return x.data, x * 2
        ---
        x = T(3)
        y, z = run(x)
        y.add_(1)
        x._version, y._version
    """,
    "a view that autograd refuses": """
        def f(x):
            with torch.no_grad():
                v = x.expand(2, -1, -1)[1]
            v.t_()
            v.data = v.data * 2
            return x * 1
        ---
        a = T(3, 4, grad=True)
        with torch.no_grad(): run(a[:])
    """,
    "a gradient kept of a view that autograd refuses": """
        def f(x):
            x.neg_()
            x.retain_grad()
            return x
        ---
        a = T(3, 4, grad=True)
        with torch.inference_mode(): run(a[:])
    """,
    "versions of a tensor whose copy is written": """
        w = T(4, 4, grad=True)
        def f(x):
            y, made = x @ w, x * 1
            z, other = copy.copy(x), copy.copy(made)
            z[-1:] = z[:1]
            other.add_(1)
            return x, y, z, made, other
        a, b = T(3, 4, grad=True), T(3, 4)
        import copy
        ---
        with torch.no_grad(): result = run(a[:])
        x, y, z, made, other = run(b)
        x._version, made._version
        y.sum().backward()
    """,
    "a gradient that is a view, of another dtype": """
        from torch import nn
        net = nn.Linear(4, 4)
        def f(x): return net(x) * 2
        ---
        net.weight.grad = torch.ones(4, 4).t()
        net.double()
        run(T(3, 4, dtype=torch.float64)).sum().backward()
        run(T(5, 4, dtype=torch.float64)).sum().backward()
        net.weight.grad = torch.zeros(20)[:16].view(4, 4)
        net.float()
        run(T(3, 4)).sum().backward()
        run(T(2, 4)).sum().backward()
    """,
    "a gradient behind a branch in inference mode": """
        w = T(4, grad=True)
        def f(x):
            y = x * w
            if y.sum() > 0:
                log.append(torch.autograd.grad(y.sum(), x, allow_unused=True))
            return y.sum()
        ---
        with torch.inference_mode(): run(T(3, 4, grad=True))
        with torch.inference_mode(): run(-T(3, 4, grad=True))
        run(T(3, 4, grad=True))
    """,
    "a buffer of inference mode": """
        mean = [torch.ones(4)]
        w = T(4, grad=True)
        def f(x):
            mean[0] = mean[0] + x.mean(0)
            return x * w + mean[0]
        ---
        with torch.inference_mode(): run(T(3, 4))
        run(T(3, 4)).sum().backward()
        run(T(5, 4)).sum().backward()
    """,
    "the history of a view of inference mode, whose memory was written": """
        a = T(3, 4, grad=True)
        def f(x):
            y = x * 1
            x[x > 0] = 0.5
            return y, x.grad_fn is None
        ---
        with torch.inference_mode(): run(a[:])
    """,
    "whether results of a graph are views": """
        def f(x):
            y = x + 1
            log.append(y.unflatten(1, (2, 2))._is_view())
            z = x.t().contiguous()
            log.append((z._is_view(), z[1:]._is_view()))
            return x.sum()
        ---
        run(T(3, 4))
        run(T(4, 3).t())
    """,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FOUND)
def test_found(name, backend):
    definitions, _, steps = textwrap.dedent(FOUND[name]).partition("\n---\n")
    told = difference(definitions, steps, backend)
    assert told is None, told
