"""Hooks of tensors inside a frame."""

from tests.dynamo.programs.tensors.state import FAMILY

__all__ = ["FAMILY", "PROGRAMS"]

PROGRAMS = {
    "hook_of_a_result": (
        [1],
        """
        def f(x):
            y = x * 2
            z = y.exp()
            y.register_hook(lambda g: g * 3)
            return (z * y).sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x
        run(x).backward()
        x
        """,
    ),
    "hook_of_what_is_detached_in_place": (
        [1, 1],
        """
        def f(x):
            y = x * 2
            y.register_hook(lambda g: g * 3)
            y.detach_()
            return y + 1
        ---
        x = T(3, grad=True)
        run(x)
        run(x)
        """,
    ),
    "hook_with_effects": (
        [1],
        """
        def f(x):
            y = x * 2
            seen = []
            y.register_hook(lambda g: log.append(g.clone()))
            y.register_hook(lambda g: seen.append(g.clone()) or g + 1)
            return y.sin().sum(), seen
        ---
        x = T(3, grad=True)
        loss, seen = run(x)
        loss.backward()
        x, seen, log
        """,
    ),
    "hook_of_an_input": (
        [1],
        """
        def f(x):
            h = x.register_hook(lambda g: g * 3)
            return x.sin().sum(), h
        ---
        x = T(3, grad=True)
        y, h = run(x)
        y.backward()
        h.remove()
        x.cos().sum().backward()
        x
        y = x * 2
        z, h = run(y)
        z.backward()
        x
        """,
    ),
    "hook_with_a_result_of_the_graph": (
        [1],
        """
        def f(x, s):
            y = x * 2
            z = y.detach() + s
            y.register_hook(lambda g: g * z)
            return y.sin().sum()
        ---
        x = T(3, grad=True)
        run(x, T(3)).backward()
        x
        run(x, T(3) + 1).backward()
        x
        """,
    ),
    "hook_of_an_unused_result": (
        [1],
        """
        def f(x):
            y = x * 2
            y.register_hook(log.append)
            return x.sin().sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x, log
        """,
    ),
    "hooks_in_order": (
        [1],
        """
        def f(x):
            y = x * 2
            z = y * 3
            z.register_hook(lambda g: log.append("z"))
            y.register_hook(lambda g: log.append("y"))
            z.register_hook(lambda g: log.append("again"))
            x.register_hook(lambda g: log.append("x"))
            return z.sum(), y.max(0)[0]
        ---
        x = T(3, grad=True)
        loss, m = run(x)
        loss.backward(retain_graph=True)
        m.backward()
        x, log
        """,
    ),
    "hooks_of_independent_results": (
        [1],
        """
        def f(x):
            y, w, z = x * 2, x * 3, x * 4
            for name, one in ("y", y), ("w", w), ("z", z):
                one.register_hook(lambda g, name=name: log.append(name))
            return (y * y).sum(), (w * w).sum(), (y * w * z).sum(), y
        ---
        x = torch.arange(3.0, requires_grad=True)
        for one in run(x): one.sum().backward(retain_graph=True)
        x, log
        """,
    ),
    "hook_of_one_of_several_results": (
        [1, 1],
        """
        def f(x):
            a, b = x.unbind()
            a.register_hook(lambda g: log.append(g.clone()))
            return (a * b).sum()
        ---
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        run(x).backward()
        x, log
        """,
    ),
    "hook_and_a_graph_break": (
        [1, 1],
        """
        def f(x):
            y = x * 2
            y.register_hook(lambda g: log.append(g.clone()) or g * 3)
            z = y.sin()
            if z.sum() > 100:
                z = z[:1] + 1
            return (z * y).sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x, log
        """,
    ),
    "hook_of_a_base": (
        [1],
        """
        def f(x):
            y = x * 2
            v = y.view(-1)
            y.register_hook(lambda g: g * 3)
            w = y[1:]
            return (v * v).sum() + (w * w).sum() + y.sum()
        ---
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        run(x).backward()
        x
        """,
    ),
    "hook_and_a_second_derivative": (
        [1],
        """
        def f(x):
            y = x ** 2
            y.register_hook(lambda g: g * 2)
            return (y * y).sum()
        ---
        x = torch.arange(3.0, requires_grad=True)
        (g,) = torch.autograd.grad(run(x), x, create_graph=True)
        (g * g).sum().backward()
        x, g.detach()
        """,
    ),
    "hook_removed": (
        [1],
        """
        def f(x):
            y = x * 2
            h = y.register_hook(lambda g: g * 3)
            k = y.register_hook(lambda g: g + 1)
            h.remove()
            return y, y.sin().sum()
        ---
        x = T(3, grad=True)
        y, loss = run(x)
        loss.backward()
        x
        """,
    ),
    "hook_before_a_write": (
        [1, 1],
        """
        def f(x):
            y = x * 2
            y.register_hook(lambda g: g * 3)
            y.mul_(4)
            return y.sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x
        """,
    ),
    "hook_after_a_write": (
        [1],
        """
        def f(x):
            y = x * 2
            z = y + 1
            y[0] = 4
            y.mul_(z)
            y.register_hook(lambda g: g * 3)
            return (y * z).sum()
        ---
        x = torch.arange(3.0, requires_grad=True)
        run(x).backward()
        x
        """,
    ),
    "hook_of_a_view": (
        [1],
        """
        def f(x):
            y = (x * 2)[1:]
            y.register_hook(lambda g: g * 3)
            return (y * y).sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x
        """,
    ),
    "hook_without_a_gradient": (
        [1],
        """
        def f(x):
            y = x * 2
            y.register_hook(lambda g: g * 3)
            return y
        ---
        run(T(3))
        """,
    ),
    "hook_in_a_module": (
        [1],
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = linear(), nn.ReLU()
                self.gradients = None
            def save(self, g):
                self.gradients = g
            def forward(self, x):
                x = self.a(x)
                x.register_hook(self.save)
                return self.b(x)
        def f(m, x):
            return m(x).sum()
        ---
        m = M()
        run(m, T(4, 3)).backward()
        m.gradients, m.a.weight.grad
        """,
    ),
    "hook_of_the_accumulator": (
        [1],
        """
        def step(p):
            with torch.no_grad():
                p.sub_(p.grad * 0.1)
            p.grad = None
        def f(p, x):
            h = p.register_post_accumulate_grad_hook(step)
            return (p * x).sum(), h
        ---
        p = P(3)
        loss, h = run(p, T(3))
        loss.backward()
        h.remove()
        p
        """,
    ),
    "hook_before_a_backward": (
        [1, 1],
        """
        def f(p, x):
            h = p.register_hook(lambda g: g * 2)
            y = (p * x).sum()
            y.backward()
            return p.grad * 2, h
        ---
        p = P(3)
        r, h = run(p, T(3))
        h.remove()
        r, p
        """,
    ),
    "retained_gradient": (
        [1],
        """
        def f(x):
            y = x * 2
            y.retain_grad()
            return y.sin().sum(), y, y.retains_grad
        ---
        x = T(3, grad=True)
        loss, y, flag = run(x)
        loss.backward()
        x, y.grad, flag, y.retains_grad
        """,
    ),
}
