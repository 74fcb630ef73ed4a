"""Backward hooks of modules: the order of their calls, what they see and what they change."""

_SEEN = """
        def seen(name, scale=None):
            def hook(mod, gi, go):
                log.append((name, [None if g is None else g.tolist() for g in gi], [None if g is None else g.tolist() for g in go]))
                if scale: return tuple(None if g is None else g * scale for g in gi)
            return hook
"""

PROGRAMS = {
    "module_hooks_of_many_layers": (
        1,
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(20))
            def forward(self, x):
                for layer in self.layers:
                    x = x + layer(x)
                return x
        m = M()
        for i, layer in enumerate(m.layers):
            layer.register_full_backward_hook(lambda mod, gi, go, i=i: log.append(i))
        def f(x): return m(x)
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        x.grad, log
    """,
    ),
    "module_hooks_residual": (
        1,
        _SEEN
        + """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 3); self.b = nn.Linear(3, 3); self.c = nn.Linear(3, 3)
            def forward(self, x):
                h = self.a(x).relu()
                return x + self.b(h) * h + self.c(self.b(x)) * self.b(x)
        m = M()
        for i, name in enumerate("abc"):
            getattr(m, name).register_full_backward_hook(seen(name, i + 2))
        m.register_full_backward_hook(seen("m", 0.5))
        m.register_full_backward_pre_hook(lambda mod, go: log.append("pre"))
        def f(x): return m(x)
        ---
        x = T(2, 3, grad=True)
        y = run(x)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        x.grad, [p.grad for p in m.parameters()]
    """,
    ),
    "module_hooks_other_arguments": (
        1,
        _SEEN
        + """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(T(3))
            def forward(self, x, mask, n, scale=None):
                return (x * self.w).masked_fill(mask, 0.0) * n * scale, mask, 5
        m = M()
        m.register_full_backward_hook(seen("m"))
        m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3, *go[1:]))
        def f(x, mask): return m(x, mask, 3, scale=T(3))[0].sin()
        ---
        x = T(3, grad=True)
        run(x, T(3) > 0).sum().backward()
        x.grad, m.w.grad
    """,
    ),
    "module_hooks_without_gradient_of_inputs": (
        1,
        _SEEN
        + """
        m = nn.Sequential(nn.Linear(3, 3), nn.Flatten(), nn.Identity(), nn.ReLU())
        for i in range(4): m[i].register_full_backward_hook(seen(i))
        def f(x): return m(x)
        ---
        run(T(2, 3)).sum().backward()
        run(T(2, 3)).sum().backward()
        [p.grad for p in m.parameters()]
    """,
    ),
    "module_hooks_of_all": (
        3,
        _SEEN
        + """
        modules = nn.modules.module
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        m[1].register_full_backward_hook(seen("own"))
        def f(x): return m(x) * 2
        ---
        a = modules.register_module_full_backward_hook(seen("all", 2))
        b = modules.register_module_full_backward_pre_hook(lambda mod, go: log.append("before"))
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        a.remove()
        run(x).sum().backward()
        b.remove()
        run(x).sum().backward()
        x.grad
    """,
    ),
    "module_hooks_and_forward_hooks": (
        1,
        _SEEN
        + """
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
        kept = {}
        m[0].register_full_backward_hook(seen("b", 2))
        m[0].register_forward_hook(lambda mod, i, o: kept.__setitem__("out", o * 2))
        m[0].register_forward_hook(lambda mod, i, o: o * 3)
        m[2].register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
        m[2].register_full_backward_pre_hook(lambda mod, go: (log.append("p"), (go[0] * 5,))[1])
        def f(x): return m(x)
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        x.grad, kept["out"], m[2].weight.grad
    """,
    ),
    "module_hooks_several_outputs": (
        1,
        _SEEN
        + """
        Pair = collections.namedtuple("Pair", "first second")
        class M(nn.Module):
            def forward(self, x): return Pair(x.t() * 2, 5)
        class State(nn.Module):
            def forward(self, x): return x * 3, (x + 1, x + 2)
        state, pair = State(), M()
        state.register_full_backward_hook(seen("state"))
        pair.register_full_backward_hook(seen("pair", 2))
        def f(x): return state(pair(x).first)[0] + pair(x).first
        ---
        x = T(2, 3, grad=True)
        run(x).sum().backward()
        x.grad
    """,
    ),
    "module_hooks_expanded": (
        3,
        _SEEN
        + """
        class M(nn.Module):
            def forward(self, x): return x.expand(2, 3)
        m = M()
        m.register_full_backward_hook(seen("m", 2))
        def f(x): return m(x) * m(x).sin()
        ---
        x = T(3, grad=True)
        run(x).sum().backward()
        x.grad
    """,
    ),
    "module_hooks_that_fail": (
        3,
        """
        def fails(mod, gi, go): raise KeyError("no")
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        hooks = [fails, lambda mod, gi, go: (gi[0], gi[0])]
        def f(x): return m(x).sum()
        def outcome(hook, pre=False):
            make = m[1].register_full_backward_pre_hook if pre else m[1].register_full_backward_hook
            handle = make(hook)
            try:
                run(T(2, 3, grad=True)).backward()
            except Exception as error:
                return type(error), str(error)
            finally:
                handle.remove()
        ---
        outcome(hooks[0])
        outcome(hooks[1])
        outcome(lambda mod, go: (), True)
    """,
    ),
    "module_hooks_twice_differentiated": (
        1,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        m[1].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
        def f(x): return m(x).sum()
        ---
        x = T(2, 3, grad=True)
        g = torch.autograd.grad(run(x), x, create_graph=True)[0]
        g.pow(2).sum().backward()
        x.grad, g.detach()
        g = None
    """,
    ),
    "module_hooks_without_grad": (
        2,
        _SEEN
        + """
        m = nn.Linear(3, 3)
        m.register_full_backward_hook(seen("m"))
        def f(x): return m(x).sum()
        ---
        with torch.no_grad(): run(T(2, 3))
        run(T(2, 3, grad=True)).backward()
    """,
    ),
    "module_hooks_two_gradients": (
        2,
        _SEEN
        + """
        m = nn.Bilinear(3, 3, 2)
        m.register_full_backward_hook(seen("m", 2))
        def f(x, y): return m(x.sin(), y) * 2
        ---
        x, y = T(2, 3, grad=True), T(2, 3, grad=True)
        run(x, y).sum().backward()
        x.grad, y.grad
    """,
    ),
    "module_hooks_registered_inside": (
        1,
        _SEEN
        + """
        m = nn.Linear(3, 3)
        def f(x):
            handle = m.register_full_backward_hook(seen("m", 2))
            y = m(x).sum()
            handle.remove()
            return y
        ---
        x = T(2, 3, grad=True)
        run(x).backward()
        x.grad, len(m._backward_hooks)
    """,
    ),
    "module_hooks_that_stop_gradients": (
        2,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
        h = m[1].register_full_backward_hook(lambda mod, gi, go: (None,))
        def f(x):
            y = m[0](x)
            return m[1](y), m[2](y)
        ---
        x = T(2, 3, grad=True)
        run(x)[0].sum().backward()
        x.grad, [p.grad for p in m.parameters()]
        sum(y.sum() for y in run(x)).backward()
        x.grad, [p.grad for p in m.parameters()]
        h.remove()
        run(x)[0].sum().backward()
        x.grad, [p.grad for p in m.parameters()]
    """,
    ),
    "module_hooks_behind_stopped_gradients": """
        m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        m[1].register_full_backward_hook(lambda mod, gi, go: (None,))
        m[0].register_full_backward_hook(lambda mod, gi, go: log.append((gi[0].tolist(), go)))
        def f(x): return m(x)
        ---
        run(T(2, 3, grad=True)).sum().backward()
        log
    """,
    "module_hooks_and_gradients_of_results": (
        1,
        """
        m = nn.Linear(3, 3)
        m.register_full_backward_hook(lambda mod, gi, go: log.append(1))
        def f(x):
            y = m(x)
            return y, y.sin()
        ---
        x = T(2, 3, grad=True)
        y, z = run(x)
        torch.autograd.grad(z.sum(), y, retain_graph=True), log
        torch.autograd.grad(z.sum(), x, retain_graph=True), log
        y.retain_grad(); y.register_hook(lambda g: g * 3) and None
        z.sum().backward()
        y.grad, x.grad, log
    """,
    ),
    "module_hooks_and_writes": """
        class M(nn.Module):
            def __init__(self, k):
                super().__init__()
                self.l, self.k = nn.Linear(3, 3), k
            def forward(self, x):
                if self.k == 1: x.add_(1)
                if self.k == 2: x.detach().add_(1)
                y = self.l(x)
                if self.k == 3: y.relu_()
                return y
        def f(m, x, write=False):
            x = x * 2
            y = m(x)
            if write: y[0].mul_(2)
            return y
        def outcome(k, write=False):
            m = M(k)
            handle = m.register_full_backward_hook(lambda mod, gi, go: log.append(gi[0].tolist()))
            x = T(2, 3, grad=True)
            try:
                run(m, x, write).sum().backward()
                return x.grad
            except RuntimeError as error:
                return str(error)
        ---
        outcome(0)
        outcome(1)
        outcome(2)
        outcome(3)
        outcome(0, True)
        log
    """,
    "inputs_with_a_history_where_warnings_are_errors": (
        1,
        """
        import warnings
        def f(x): return x.sin()
        ---
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            y = run(T(2, 3, grad=True) * 2)
    """,
    ),
    "hooks_registered_and_removed_in_each_call": (
        3,
        """
        m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        m[1].register_forward_hook(lambda mod, i, o: o + 1)
        kept = []
        def f(x, keep):
            seen = []
            h = m[0].register_forward_hook(lambda mod, i, o: seen.append(o))
            pre = m[1].register_forward_pre_hook(lambda mod, a, k: ((a[0] * 2,), k), with_kwargs=True)
            with m.register_forward_hook(lambda mod, i, o: o * 3, always_call=True, prepend=True): y = m(x)
            pre.remove()
            if keep: kept.append(h)
            else: h.remove()
            return y, seen, h.id == pre.id, h.id in m[0]._forward_hooks
        ---
        run(T(3, 2), False)
        run(T(3, 2), False)
        run(T(3, 2), True)
        run(T(3, 2), False)
        [h.id in m[0]._forward_hooks for h in kept]
        [h.remove() for h in kept] and None
        [len(l._forward_hooks) + len(l._forward_pre_hooks) for l in m]
        m.register_forward_hook(print).id
    """,
    ),
    "module_hooks_prepended": (
        5,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        def hook(name, scale):
            def after(mod, i, o): log.append(name); return o * scale + 1
            return after
        def before(name):
            def pre(mod, i): log.append(name); return (i[0] * 2 + 1,)
            return pre
        def f(x): return m(x)
        ---
        run(T(2, 3))
        m[0].register_forward_hook(hook("a", 2))
        b = m[0].register_forward_hook(hook("b", 3), prepend=True)
        run(T(2, 3))
        run(T(2, 3))
        m[0].register_forward_pre_hook(before("c"))
        m[0].register_forward_pre_hook(before("d"), prepend=True)
        run(T(2, 3))
        run(T(2, 3))
        b.remove()
        run(T(2, 3))
        run(T(2, 3))
        m[0]._forward_pre_hooks.move_to_end(next(iter(m[0]._forward_pre_hooks)))
        run(T(2, 3))
        log
    """,
    ),
    "module_hooks_registered_for_each_call": (
        2,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        def f(x): return m(x)
        def watched(x, n):
            hooks = [m[0].register_forward_hook(lambda mod, i, o: (log.append(n), o * 2)[1]),
                     m[1].register_forward_pre_hook(lambda mod, i: log.append("pre")),
                     m[1].register_full_backward_hook(lambda mod, gi, go: log.append("back"))]
            run(x).sum().backward()
            for h in hooks: h.remove()
            return x.grad
        ---
        watched(T(2, 3, grad=True), "a")
        watched(T(2, 3, grad=True), "a")
        run(T(2, 3))
        for i in range(8): watched(T(2, 3, grad=True), "a")
        log
    """,
    ),
    "module_hooks_with_keywords_for_each_call": (
        3,
        """
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(3, 3)
            def forward(self, x, *, scale=1): return self.linear(x) * scale
        m = Scaled()
        def f(x): return m(x, scale=2)
        def change(mod, args, kwargs): return args, dict(kwargs, scale=kwargs["scale"] + 3)
        def double(mod, args, kwargs, out): return out * kwargs["scale"]
        def plainly(mod, args, out): return out + 1
        def either(mod, args, *rest): return rest[-1] + len(rest)
        def called(x, *hooks):
            handles = [m.register_forward_pre_hook(change, with_kwargs=True)]
            handles += [m.register_forward_hook(hook, with_kwargs=keywords) for hook, keywords in hooks]
            y = run(x)
            for handle in handles: handle.remove()
            return y
        ---
        for i in range(5): called(T(2, 3), (double, True), (plainly, False), (either, True))
        called(T(2, 3), (double, True), (plainly, False), (either, True))
        called(T(2, 3), (double, True), (plainly, False), (either, False))
        for i in range(5): called(T(2, 3), (double, True), (plainly, False), (either, False))
        run(T(2, 3))
    """,
    ),
    "module_hooks_with_keywords_for_all_modules": (
        2,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        def f(x): return m(x)
        def hook(mod, args, *rest): return rest[-1] * (1 + len(rest))
        def called(x, keywords):
            handle = nn.modules.module.register_module_forward_hook(hook, with_kwargs=keywords)
            y = run(x)
            handle.remove()
            nn.modules.module._global_forward_hooks_with_kwargs.clear()  # torch leaves the number there
            return y
        ---
        for i in range(5): called(T(2, 3), True)
        called(T(2, 3), True)
        for i in range(5): called(T(2, 3), False)
        called(T(2, 3), False)
    """,
    ),
    "module_hooks_always_called_after_an_error": (
        None,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        def f(x): return m(x) + 1
        def plain(mod, args, out): log.append("plain")
        def always(mod, args, out): log.append("always")
        def keyed(mod, args, kwargs, out): log.append("keyed")
        def fails(mod, args, out): raise KeyError("fails")
        for hook, options in ((plain, {}), (always, {"always_call": True}), (keyed, {"with_kwargs": True})):
            m.register_forward_hook(hook, **options)
        ---
        run(T(2, 3))
        handle = m.register_forward_hook(fails)
        last = m.register_forward_hook(keyed, with_kwargs=True, always_call=True)
        run(T(2, 3))
        run(T(2, 4))
        handle.remove()
        run(T(2, 3))
    """,
    ),
    "module_hooks_on_memory_of_inputs": (
        None,
        """
        class M(nn.Module):
            def forward(self, x): return x.view(-1), x
        m = M(); m.register_full_backward_hook(lambda mod, gi, go: log.append("m"))
        same = nn.Identity(); same.register_full_backward_pre_hook(lambda mod, go: log.append("same"))
        def f(x): return m(x), same(x * 2), same(x)
        ---
        x = T(2, 3, grad=True)
        (flat, y), z, same = run(x * 1)
        flat.data.mul_(3), same.data.add_(1)
        (flat.sum() + y.sum() + z.sum() + same.sum()).backward()
        flat, y, same, x.grad, [one._base is None for one in (flat, y, same)]
    """,
    ),
    "module_hooks_on_memory_of_two_results": (
        None,
        """
        m = nn.Identity(); m.register_full_backward_hook(lambda mod, gi, go: log.append("m"))
        class Kept(nn.Module):
            def forward(self, x):
                self.last = x.sin()
                return m(self.last)
        kept = Kept()
        def f(x): return kept(x)
        ---
        x = T(2, 3, grad=True)
        y = run(x)
        kept.last.data.mul_(3)
        (y + kept.last).sum().backward()
        y, kept.last, x.grad, y._base is None
    """,
    ),
    "module_hooks_on_memory_behind_a_break": (
        None,
        """
        m = nn.Identity(); m.register_full_backward_hook(lambda mod, gi, go: log.append("m"))
        def f(x):
            y = x.sin()
            z = m(y)
            print("between")
            with torch.no_grad(): y.mul_(2)
            return z * 3
        ---
        x = T(2, 3, grad=True)
        y = run(x)
        y.sum().backward()
        y, x.grad
    """,
    ),
}
