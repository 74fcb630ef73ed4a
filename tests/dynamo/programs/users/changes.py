"""Subclasses, modules and weights that change between calls, data loaders."""

from tests.dynamo.differential import SOME

PROGRAMS = {
    "torch_function": (
        1,
        """
        class Logged(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(getattr(func, "__name__", "?"))
                return super().__torch_function__(func, types, args, kwargs or {})
        def f(x): return (x * 2).sin() + 1
        ---
        run(T(3).as_subclass(Logged))
        run(T(3).as_subclass(Logged))
    """,
    ),
    "torch_function_with_tag": (
        2,
        """
        class Meta(torch.Tensor):
            @staticmethod
            def __new__(cls, d, tag): return torch.Tensor._make_subclass(cls, d)
            def __init__(self, d, tag): self.tag = tag
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                r = super().__torch_function__(func, types, args, kwargs or {})
                tags = [a.tag for a in args if isinstance(a, cls) and hasattr(a, "tag")]
                if isinstance(r, cls) and tags: r.tag = tags[0] + 1
                return r
        def f(x):
            y = x * 2
            return y, y.tag
        ---
        run(Meta(T(3), 1))
        run(Meta(T(3), 5))
    """,
    ),
    "inplace_views": (
        1,
        """
        def f(x):
            y = x.clone()
            v = y[1:]
            v.mul_(2)
            y.t_() if y.ndim == 2 else None
            w = y.view(-1)
            w[0] = 7
            x.unsqueeze_(0)
            return y, v, w, x.shape
        ---
        x = T(3)
        run(x)
        x
    """,
    ),
    "is_scripting": (
        1,
        """
        def f(x):
            if torch.jit.is_scripting() or torch.compiler.is_exporting(): return x
            y = x * 2
            if torch.jit.is_tracing(): y = y + 5
            if torch.onnx.is_in_onnx_export(): y = y * 0
            return y
        ---
        run(T(3))
    """,
    ),
    "removable_handle": (
        1,
        """
        from torch.utils.hooks import RemovableHandle
        reg = collections.OrderedDict()
        def f(x):
            h = RemovableHandle(reg)
            reg[h.id] = "hook"
            y = x * len(reg)
            h.remove()
            return y + 1, len(reg)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "manager_around_break": (
        2,
        """
        class CM:
            def __init__(self, n): self.n = n
            def __enter__(self): log.append(("in", self.n)); return self
            def __exit__(self, *e): log.append(("out", e[0] is None)); return True
        def f(x):
            with CM(1) as c:
                y = x + c.n
                torch._dynamo.graph_break()
                z = y * 2
                if z.sum() > 100: raise ValueError
            return z
        ---
        run(T(3))
        run(T(3) * 100)
    """,
    ),
    "module_changes": (
        4,
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(3, 3); self.n = 0; self.cache = {}; self.register_buffer("b", torch.zeros(3))
            def forward(self, x):
                self.n += 1
                self.b = self.b * 0.9 + x.mean(0).detach()
                self.cache[self.n] = x.shape
                if self.training: x = x + 1
                return self.l(x) * self.n
        m = M()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        m.eval()
        run(T(2, 3))
        m.l.weight.requires_grad_(False)
        run(T(2, 3))
        m.l = nn.Linear(3, 3, bias=False)
        run(T(2, 3))
        m.n, m.cache
        m.b
    """,
    ),
    "state_dict_loaded": (
        3,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        sd = {k: v.clone() * 0 + 1 for k, v in m.state_dict().items()}
        def f(x): return m(x)
        ---
        run(T(4, 3))
        m.load_state_dict(sd) and None
        run(T(4, 3))
        m.load_state_dict({k: v.double() for k, v in sd.items()}, assign=True) and None
        run(T(4, 3).double())
        m.to(torch.float32) and None
        run(T(4, 3))
    """,
    ),
    "loader": (
        2,
        """
        ds = torch.utils.data.TensorDataset(T(6, 3), T(6))
        m = nn.Linear(3, 1)
        o = torch.optim.SGD(m.parameters(), lr=0.01)
        def f(x, y):
            o.zero_grad()
            l = ((m(x).squeeze(-1) - y) ** 2).mean()
            l.backward()
            o.step()
            return l.detach()
        ---
        for x, y in torch.utils.data.DataLoader(ds, batch_size=4): log.append(float(run(x, y)))
        for x, y in torch.utils.data.DataLoader(ds, batch_size=4, drop_last=True): log.append(float(run(x, y)))
        o = None
    """,
    ),
    "contents_of_parameters_exchanged": (
        2,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        for p in m.parameters(): p.data = T(*p.shape)
        def f(x): return m(x).sum()
        def exchange(old, new): torch.utils.swap_tensors(old, new)
        ---
        run(T(4, 3)).backward()
        exchange(m[0].weight, nn.Parameter(T(3, 3) * 2))
        run(T(4, 3)).backward()
        m[0].weight.grad
        run(T(4, 3)).backward()
        m[0].weight.grad
    """,
    ),
    "contents_exchanged_and_back": (
        2,
        """
        m, other = nn.Linear(3, 3, bias=False), nn.Parameter(T(3, 3) * 2)
        m.weight.data = T(3, 3)
        def f(x): return m(x), m.weight.requires_grad
        ---
        run(T(4, 3))
        torch.utils.swap_tensors(m.weight, other)
        run(T(4, 3))
        torch.utils.swap_tensors(m.weight, other)
        m.weight
        run(T(4, 3))
    """,
    ),
    "module_converted_by_exchange": (
        2,
        """
        m = nn.Linear(3, 3)
        for p in m.parameters(): p.data = T(*p.shape)
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        def f(m, x): return m(x).sum()
        ---
        torch.__future__.set_swap_module_params_on_conversion(True)
        run(m, T(4, 3)).backward()
        o.step()
        m.zero_grad()
        m.to(torch.float64) and None
        run(m, T(4, 3).double()).backward()
        o.step()
        m.zero_grad()
        m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}) and None
        run(m, T(4, 3).double()).backward()
        m.weight, m.weight.grad
        torch.__future__.set_swap_module_params_on_conversion(False)
        o = None
    """,
    ),
    "contents_of_an_optimizers_parameter_exchanged": (
        None,
        """
        w = nn.Parameter(T(3, 3))
        o = torch.optim.SGD([w], lr=0.1, momentum=0.9)
        def f():
            o.step()
            return w.detach().clone()
        ---
        w.grad = T(3, 3)
        run()
        torch.utils.swap_tensors(w, nn.Parameter(T(3, 3) * 2))
        w.grad = T(3, 3)
        run()
        run()
        o = None
    """,
    ),
    "contents_of_an_argument_exchanged": (
        2,
        """
        w = nn.Parameter(T(3, 3))
        def f(w, x): return (x @ w).relu()
        ---
        run(w, T(2, 3))
        torch.utils.swap_tensors(w, nn.Parameter(T(3, 3) * 2))
        run(w, T(2, 3))
        w
    """,
    ),
    "layers_in_turn": (
        2,
        """
        layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(5)])
        for p in layers.parameters(): p.data = T(*p.shape)
        def f(layer, x): return layer(x).relu()
        ---
        for layer in layers: log.append(run(layer, T(2, 3)).detach())
        for layer in layers: log.append(run(layer, T(2, 3)).detach())
        layer = None
    """,
    ),
    "layers_in_turn_that_differ": (
        SOME,
        """
        layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)) for _ in range(6)])
        for p in layers.parameters(): p.data = T(*p.shape)
        layers[2][1].weight = layers[2][0].weight
        layers[3].requires_grad_(False)
        layers[4][0].register_forward_hook(lambda m, args, out: out * 2)
        layers[5].double()
        def f(layer, x):
            with torch.no_grad(): layer[0].weight.mul_(1.5)
            return layer(x).sum(), layer[0].weight is layer[1].weight
        def turn(layer, dtype):
            out, same = run(layer, T(2, 3, dtype=dtype))
            if out.requires_grad: out.backward()
            return out.detach(), same
        ---
        for layer in layers: log.append(turn(layer, layer[0].weight.dtype))
        for layer in layers: log.append(turn(layer, layer[0].weight.dtype))
        [p.grad for p in layers.parameters()]
        layer = None
    """,
    ),
    "bases_of_a_class": (
        3,
        """
        class One:
            def by(self): return 1
        class Two:
            def by(self): return 2
        class Scaling(One):
            def by(self): return super().by() * 10
        scaling = Scaling()
        def f(x): return x * scaling.by()
        ---
        run(T(3))
        Scaling.__bases__ = (Two,)
        run(T(3))
        Two.by = lambda self: 5
        run(T(3))
        Scaling.__bases__ = (One,)
        run(T(3))
    """,
    ),
    "class_and_dict_of_an_object": (
        SOME,
        """
        class One:
            def go(self, x): return x * self.a + self.b
        class Two(One):
            def go(self, x): return x - self.a
        one = One()
        one.a, one.b = 1, 2
        def f(x): return one.go(x)
        ---
        run(T(3))
        one.__class__ = Two
        run(T(3))
        one.__class__ = One
        one.__dict__ = {"b": 3, "a": 4}
        run(T(3))
        vars(one).update(a=5)
        run(T(3))
    """,
    ),
    "property_replaced": (
        SOME,
        """
        class A:
            @property
            def by(self): return 2
        a = A()
        def f(x): return x * a.by
        ---
        run(T(3))
        A.by = property(lambda self: 3)
        run(T(3))
        A.by = 4
        run(T(3))
        a.by = 5
        run(T(3))
        A.by = property(lambda self: self.__dict__["by"] * 2)
        run(T(3))
    """,
    ),
    "cached_properties_in_turn": (
        SOME,
        """
        class A:
            made = 0
            @functools.cached_property
            def number(self):
                A.made += 1
                return A.made
        held = [A(), A(), A()]
        def f(x, i): return x * held[i].number
        ---
        for i in (0, 0, 1, 2, 1): log.append((run(T(3), i), A.made))
        del held[0].number
        run(T(3), 0), A.made
    """,
    ),
    "a_function_registered_for_a_type": (
        SOME,
        """
        @functools.singledispatch
        def apply(value, x): return x
        @apply.register(int)
        def _(value, x): return x * value
        def f(x, value): return apply(value, x)
        ---
        for value in (1, "a", 1.5): log.append(run(T(3), value))
        register = apply.register(float, lambda value, x: x + value) and None
        for value in (1.5, 2.5, 2): log.append(run(T(3), value))
    """,
    ),
    "keywords_of_a_partial": (
        SOME,
        """
        scale = functools.partial(lambda x, a, b: x * a + b, a=2, b=1)
        def f(x): return scale(x)
        ---
        run(T(3))
        scale.keywords["a"] = 3
        run(T(3))
        scale = functools.partial(scale, b=4)
        run(T(3))
        scale.keywords["b"] = 5
        run(T(3))
    """,
    ),
    "depth_of_a_curriculum": (
        3,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.stages = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
                for p in self.parameters(): p.data = T(*p.shape)
                self.depth = 1
            def forward(self, x):
                for stage in self.stages[: self.depth]: x = stage(x).relu()
                return x
        model = Model()
        def f(x): return model(x)
        ---
        for model.depth in (1, 2, 3, 2, 1): log.append(run(T(2, 3)))
    """,
    ),
    "weights_moved_to_and_from_averages": (
        SOME,
        """
        model = nn.Linear(3, 3)
        for p in model.parameters(): p.data = T(*p.shape)
        averages = {k: v.clone() * 0.5 for k, v in model.state_dict().items()}
        def f(x): return model(x)
        def swap():
            for name, p in model.named_parameters():
                p.data, averages[name] = averages[name], p.data
        ---
        for _ in range(4):
            log.append(run(T(2, 3)).detach())
            swap()
    """,
    ),
    "functions_of_a_counter": (
        3,  # the last one raises
        """
        state = {"n": 0}
        def f(x):
            state["n"] += 1
            n = state["n"]
            return x * (n & 3) + n.bit_length() + math.gcd(n, 4) + math.isqrt(n)
        ---
        for _ in range(8): log.append(run(T(3)))
        state["n"] = -9
        try: run(T(3))
        except ValueError as error: log.append(str(error))
        state
    """,
    ),
    "patches_of_an_image": (
        2,
        """
        def f(x):
            side = math.isqrt(x.shape[1])
            return x.reshape(x.shape[0], side, side, -1).sum(1)
        ---
        for n in (4, 9, 16, 25, 4): log.append(run(T(2, n, 3)))
    """,
    ),
    "defaults_and_code_of_a_function": (
        SOME,
        """
        def scaled(x, by=2): return x * by
        def f(x): return scaled(x)
        ---
        run(T(3))
        scaled.__defaults__ = (3,)
        run(T(3))
        scaled.__defaults__ = (4.5,)
        run(T(3))
        scaled.__code__ = (lambda x, by=0: x - by).__code__
        run(T(3))
    """,
    ),
}
