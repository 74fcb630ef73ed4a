"""Copies, parameters, memory and gradients of tensors inside a frame."""

from tests.dynamo.programs import Family

PRELUDE = """
import copy
def P(*shape, grad=True):
    return nn.Parameter(T(*shape), grad)
def linear(k=1):
    m = nn.Linear(3, 2)
    for i, p in enumerate(m.parameters()):
        p.data = T(*p.shape) * (i + k) / 7
    return m
"""
FAMILY = Family(prelude=PRELUDE)

PROGRAMS = {
    # -- memory in which elements share a place
    "filled_repeated_memory": (
        [1],
        """
        def f(x):
            return x.new_empty_strided((3, 5), (0, 1)).zero_(), x + 1
        ---
        run(T(5))
        """,
    ),
    # -- copies
    "copied_tensor": (
        [1, 1],
        """
        def f(x):
            y = copy.copy(x)
            y.add_(1)
            return y, y is x, x * 2
        ---
        x = T(3)
        run(x)
        y = T(4, grad=True)
        with torch.no_grad(): run(y)
        """,
    ),
    "copied_parameter": (
        [1],
        """
        def f(p):
            q = copy.copy(p)
            return q, q * 2, type(q)
        ---
        p = P(3)
        r = run(p)
        r[1].sum().backward()
        r
        """,
    ),
    "deep_copied_tensors": (
        [1, 1],
        """
        def f(x, y):
            a, b, c = copy.deepcopy([x, y, x])
            a.mul_(2)
            return a, b, a is c, x + b
        ---
        x, y = T(3), T(4, 3).t()[:, :3]
        run(x, T(3))
        y = T(3, grad=True)
        r = run(x, y)
        (r[3] * r[1]).sum().backward()
        r
        """,
    ),
    "deep_copied_of_two_sizes": (
        [1, 1],
        """
        def f(p):
            q = copy.deepcopy(p)
            return q, (q * p).sum()
        ---
        run(T(3, grad=True))
        r = run(T(4, grad=True))
        r[1].backward()
        r
        run(T(5, grad=True))
        """,
    ),
    "deep_copied_after_a_write": (
        [1],
        """
        def f(p):
            with torch.no_grad():
                p.mul_(2)
            p.data.add_(1)
            q = copy.deepcopy(p)
            p.data.add_(1)
            return q, q * p
        ---
        p = P(3)
        r = run(p)
        r[1].sum().backward()
        r
        """,
    ),
    "deep_copied_before_a_write": (
        [1],
        """
        def f(p):
            q = copy.deepcopy(p)
            with torch.no_grad():
                p.mul_(2)
            return q, q * p
        ---
        p = P(3)
        run(p)
        run(p)
        """,
    ),
    "deep_copied_computed": (
        [1],
        """
        def f(x):
            y = copy.deepcopy(x * 2)
            y.add_(1)
            return y
        ---
        run(T(3))
        """,
    ),
    "deep_copied_with_history": (
        [1],
        """
        def f(x):
            y = x * 2
            return copy.deepcopy(y)
        ---
        run(T(3, grad=True))
        """,
    ),
    "deep_copied_with_a_gradient": (
        [0, 1],
        """
        def f(x):
            y = copy.deepcopy(x)
            return y, y * 2
        ---
        x = T(3, grad=True)
        x.grad = T(3)
        run(x)
        """,
    ),
    "deep_copied_with_attributes": (
        [1, 0, 1],
        """
        def f(x):
            y = copy.deepcopy(x)
            return y * 2, getattr(y, "tag", None)
        ---
        x = T(3)
        run(x)
        x.tag = [1]
        run(x)
        """,
    ),
    "deep_copied_sharing_memory": (
        [0, 1],
        """
        def f(x, y):
            a, b = copy.deepcopy((x, y))
            a.add_(1)
            return a, b
        ---
        x = T(6)
        run(x, x[2:])
        """,
    ),
    "deep_copied_module": (
        [1, 1],
        """
        def f(m, x):
            n = copy.deepcopy(m)
            return n, n(x) + m(x)
        ---
        m = nn.Sequential(linear(), nn.BatchNorm1d(2))
        n, y = run(m, T(4, 3))
        y.sum().backward()
        n, y
        m.eval()
        n, y = run(m, T(4, 3))
        n.training, y
        """,
    ),
    "deep_copied_module_is_frozen": (
        [1],
        """
        def f(m, x):
            n = copy.deepcopy(m)
            for p in n.parameters():
                p.requires_grad_(False)
            with torch.no_grad():
                for p, q in zip(n.parameters(), m.parameters()):
                    p.mul_(0.5).add_(q, alpha=0.5)
            return n, m(x) - n(x)
        ---
        m = linear()
        n, y = run(m, T(4, 3))
        y.sum().backward()
        n, m
        """,
    ),
    "clones_of_a_layer": (
        [1],
        """
        def f(layer, x):
            layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(3)])
            for one in layers:
                x = one(x)
            return layers, x
        ---
        layer = nn.Linear(2, 2)
        layer.weight.data = layer.bias.data = T(2)
        layer.weight.data = T(2, 2)
        layers, y = run(layer, T(3, 2))
        y.sum().backward()
        layers, layer
        """,
    ),
    "deep_copied_module_changes": (
        [1, 1],
        """
        def f(m, x):
            n = copy.deepcopy(m)
            return n(x) * n.scale, n.names
        ---
        m = linear()
        m.scale, m.names = 2, ["a"]
        run(m, T(4, 3))
        m.scale, m.names = 3, ["a", "b"]
        run(m, T(4, 3))
        """,
    ),
    # -- parameters
    "parameter_of_a_result": (
        [1],
        """
        def f(x):
            p = nn.Parameter(x * 2)
            return p, p + x, p.is_leaf, p.requires_grad, type(p)
        ---
        x = T(3, grad=True)
        p, y, *rest = run(x)
        y.sum().backward()
        p, y, rest
        """,
    ),
    "parameter_of_an_input": (
        [1],
        """
        def f(x):
            p = nn.Parameter(x, requires_grad=False)
            p.add_(1)
            return p, x * 2
        ---
        x = T(3)
        run(x)
        """,
    ),
    "parameter_in_a_module": (
        [1, 1],
        """
        def f(m, x):
            m.weight = nn.Parameter(m.weight * 2)
            return m(x)
        ---
        m = linear()
        y = run(m, T(4, 3))
        y.sum().backward()
        m.weight.grad
        run(m, T(4, 3))
        """,
    ),
    "parameter_is_trained": (
        [1],
        """
        def f(x):
            p = nn.Parameter(x.clone())
            for _ in range(3):
                p.grad = None
                ((p - 1) ** 2).sum().backward()
                with torch.no_grad():
                    p -= 0.1 * p.grad
            return p
        ---
        run(T(3))
        """,
    ),
    # -- memory
    "data_of_an_input": (
        [1],
        """
        def f(x, y):
            v = x.view(-1)
            x.data = y * 2
            x.add_(1)
            return x * 3, v
        ---
        x = T(3)
        run(x, T(3) + 1)
        x
        run(x, T(3) + 2)
        """,
    ),
    "data_of_another_input": (
        [1],
        """
        def f(x, y):
            x.data = y
            x.add_(1)
            y.mul_(2)
            return x + y
        ---
        x, y = T(3), T(3) + 1
        run(x, y)
        x, y
        """,
    ),
    "data_of_a_parameter": (
        [1],
        """
        def f(p, y):
            a = (p * 2).sum()
            p.data = p.data * 0.5 + y
            return a + (p * p).sum()
        ---
        p = P(3)
        run(p, T(3)).backward()
        p
        run(p, T(3)).backward()
        p
        """,
    ),
    "data_of_a_result": (
        [1],
        """
        def f(x, y):
            z = x * 2
            z.data = y + 1
            return z, z * 3
        ---
        x = T(3, grad=True)
        z, w = run(x, T(3))
        w.sum().backward()
        x
        """,
    ),
    "data_of_another_form": (
        [1],
        """
        def f(x, y):
            v = x.view(-1)
            x.data = y
            x.add_(1)
            return x.shape, x.dtype, x + 1, v * 2
        ---
        x, y = T(3), T(2, 2, dtype=torch.float64)
        run(x, y)
        x, y
        """,
    ),
    "data_of_sizes_that_vary": (
        [1, 1],
        """
        def f(x, y):
            v = x.view(-1)
            x.data = y
            x.add_(1)
            return x.shape, x + 1, v * 2, y.shape[0] + 1
        def step(n):
            x, y = T(3), T(n)
            return run(x, y), x, y
        ---
        step(4)
        step(5)
        step(3)
        step(6)
        """,
    ),
    "data_of_other_sizes_than_were_read": (
        None,
        """
        def f(x, y):
            n = x.shape[0]
            x.data = y
            print(end="")
            return n, x * n
        ---
        run(T(3), T(4))
        run(T(4), T(5))
        run(T(5), T(3))
        """,
    ),
    "data_of_another_form_with_gradients": (
        [1],
        """
        def f(p, q):
            (p * 2).sum().backward()
            p.data = p.data.double()
            p.grad.data = p.grad.data.double()
            (p * p).sum().backward()
            q.data = T(4)
            return (q * p.sum()).sum()
        ---
        p, q = P(3), P(2, 2)
        run(p, q).backward()
        p.grad, q.grad, p, q
        """,
    ),
    "data_of_another_form_with_a_history": (
        None,
        """
        def f(q):
            z = q * 3
            q.data = T(4)
            return z.detach(), (q * 2).sum()
        ---
        q = P(2, 2)
        z, y = run(q)
        try: y.backward()
        except RuntimeError: log.append("gradients of another shape")
        q.grad, q
        """,
    ),
    "data_without_gradients": (
        None,
        """
        def f(p):
            p.data = p.data.int()
            return p + 1
        ---
        p = P(3)
        run(p)
        p
        """,
    ),
    "data_of_a_view_and_a_result": (
        None,
        """
        def f(x, y):
            z = x * 2
            z.data = y.double()
            v = x[0]
            v.data = y.half()
            v.add_(1)
            return z, v, x
        ---
        x = T(2, 3)
        run(x, T(3))
        """,
    ),
    "module_changes_dtype": (
        [1],
        """
        def f(m, x):
            with torch.no_grad():
                y = m(x)
            m.double()
            return y, m(x.double())
        ---
        m = nn.Sequential(linear(), nn.BatchNorm1d(2))
        y, z = run(m, T(4, 3))
        z.square().sum().backward()
        m
        """,
    ),
    "module_changes_dtype_between_steps": (
        [1, 1],
        """
        def f(m, x):
            m.zero_grad(set_to_none=False)
            m.double()(x.double()).sum().backward()
            return m.float()(x).square().sum()
        ---
        m = linear()
        run(m, T(4, 3)).backward()
        m
        run(m, T(4, 3)).backward()
        m
        """,
    ),
    "module_made_in_another_dtype": (
        [1],
        """
        def f(m, x):
            n = copy.deepcopy(m).to(torch.float64)
            return n, n(x.double()).sum()
        ---
        m = linear()
        n, y = run(m, T(4, 3))
        y.backward()
        n, m
        """,
    ),
    "data_is_swapped": (
        [1],
        """
        def f(p, q):
            a = p.data
            p.data = q.data
            q.data = a
            return p * 2 + q
        ---
        p, q = P(3), P(3)
        q.data = q.data + 5
        r = run(p, q)
        p, q, r
        """,
    ),
    "data_is_an_average": (
        [1],
        """
        def f(m, n):
            for a, b in zip(m.parameters(), n.parameters()):
                a.data = a.data * 0.9 + b.data * 0.1
        ---
        m, n = linear(1), linear(2)
        run(m, n)
        run(m, n)
        m
        """,
    ),
    "detached_in_place": (
        [1],
        """
        def f(x):
            y = x * 2
            same = [y]
            y.detach_()
            y.add_(1)
            return y, same[0] * x, y.is_leaf
        ---
        x = T(3, grad=True)
        r = run(x)
        r[1].sum().backward()
        r, x
        """,
    ),
    "detached_in_place_after_use": (
        [1, 1],
        """
        def f(x):
            y = x * 2
            z = (y * y).sum()
            y.detach_()
            return z, y * x
        ---
        run(T(3, grad=True))
        """,
    ),
    "detached_base_of_a_view": (
        [1, 0],
        """
        def f(x):
            y = x * 2
            v = y[1:]
            y.detach_()
            v.mul_(2)
            return y, v
        ---
        run(T(3, grad=True))
        """,
    ),
    "detached_in_a_loop": (
        [1],
        """
        def f(x, h):
            outs = []
            for _ in range(3):
                h = torch.tanh(x + h)
                h.detach_()
                outs.append(h)
            return torch.stack(outs), h
        ---
        run(T(3, grad=True), T(3))
        """,
    ),
    "view_detached_in_place": (
        [1],
        """
        def f(x):
            y = (x * 2)[1:]
            y.detach_()
            return y + 1
        ---
        run(T(3, grad=True))
        """,
    ),
    # -- gradients
    "gradient_of_a_new_leaf": (
        [1],
        """
        def f(x):
            y = (x * 2).detach().requires_grad_()
            (y ** 3).sum().backward()
            first = y.grad.clone()
            (y ** 2).sum().backward()
            return y, first, y.grad
        ---
        run(T(3))
        """,
    ),
    "adversarial_steps": (
        [1],
        """
        def f(m, x):
            delta = torch.zeros_like(x, requires_grad=True)
            for _ in range(3):
                m(x + delta).square().sum().backward()
                delta.data = (delta + 0.1 * delta.grad.detach().sign()).clamp(-0.3, 0.3)
                delta.grad.zero_()
            return delta.detach(), m(x + delta)
        ---
        m = linear()
        run(m, T(4, 3))
        m
        """,
    ),
    "gradients_are_accumulated": (
        [1],
        """
        def f(m, parts):
            for x in parts:
                (m(x).square().sum() / len(parts)).backward()
            found = [p.grad.clone() for p in m.parameters()]
            for p in m.parameters():
                p.grad = None
            return found
        ---
        m = linear()
        run(m, [T(4, 3), T(4, 3) + 1])
        m
        """,
    ),
    "gradient_is_no_gradient_yet": (
        [1],
        """
        def f(x):
            y = x.clone().requires_grad_()
            return y.grad is None, y * 2
        ---
        run(T(3))
        """,
    ),
    # -- lists of tensors
    "foreach_with_a_scalar": (
        [1],
        """
        def f(xs, s):
            a = torch._foreach_mul(xs, s)
            r = torch._foreach_add_(xs, s, alpha=2)
            torch._foreach_div_(xs, [s, s])
            return a, r is xs, xs
        ---
        run([T(3), T(2)], torch.tensor(2.0))
        """,
    ),
    "foreach_with_a_tensor_of_scalars": (
        [1],
        """
        def f(xs, ys, s):
            r = torch._foreach_addcmul_(xs, ys, ys, s)
            return r, r is xs
        ---
        run([torch.arange(3.0), T(2)], [torch.arange(3.0), torch.ones(2)], torch.tensor([2.0, 4.0]))
        """,
    ),
    "foreach_refuses_scalars": (
        [1],
        """
        def f(xs, ys, s):
            a = xs[0] * 2
            try:
                torch._foreach_addcdiv_(xs, ys, ys, s)
            except (RuntimeError, TypeError) as e:
                return a, type(e)
        ---
        x, y = [T(3), T(2)], [T(3), T(2)]
        run(x, y, torch.tensor(2.0))
        run(x, y, torch.tensor([2.0, 4.0, 3.0]))
        run(x, y, [torch.tensor(2.0), torch.tensor(4.0)])
        """,
    ),
    "results_of_types_that_fake_tensors_do_not_tell": (
        None,
        """
        def f(x, target):
            half = x.bfloat16()
            loss = nn.functional.huber_loss(half, target)
            noise = torch.normal(half, target.abs())
            return [(y, y.dtype) for y in (loss + 1, half * 2, noise)]
        ---
        run(T(4), T(4) * 2)
        """,
    ),
}
