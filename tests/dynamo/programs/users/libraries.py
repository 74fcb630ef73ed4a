"""What users write around their models: distributions, optimizers, hooks, results, functools,
custom operators.
"""

PROGRAMS = {
    "dist_module": (
        1,
        """
        import torch.distributions as D
        class P(nn.Module):
            def __init__(self):
                super().__init__(); self.l = nn.Linear(3, 4)
            def forward(self, x):
                mu, s = self.l(x).chunk(2, -1)
                return D.Normal(mu, s.exp())
        m = P()
        def f(x):
            d = m(x)
            a = d.rsample()
            return (d.log_prob(a) * a).sum() + d.entropy().mean()
        ---
        run(T(2, 3)).backward()
        m.l.weight.grad
    """,
    ),
    "opt_closure": (
        2,
        """
        m = nn.Linear(3, 2)
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        def f(x):
            def closure():
                o.zero_grad()
                l = m(x).pow(2).sum()
                l.backward()
                return l
            return o.step(closure).detach()
        ---
        run(T(2, 3))
        run(T(2, 3))
        o = None
    """,
    ),
    "ema": (
        2,
        """
        from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
        m = nn.Linear(3, 2)
        e = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        def f(x):
            l = m(x).sum()
            e.update_parameters(m)
            return l + e(x).sum()
        ---
        run(T(2, 3))
        run(T(2, 3))
        e.n_averaged
    """,
    ),
    "scaler": (
        2,
        """
        m = nn.Linear(3, 2)
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        s = torch.amp.GradScaler("cpu", init_scale=8.0)
        def f(x):
            o.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                l = m(x).pow(2).sum()
            s.scale(l).backward()
            s.step(o)
            s.update()
            return l.detach()
        ---
        run(T(2, 3))
        run(T(2, 3))
        o = s = None
    """,
    ),
    "clip": (
        1,
        """
        m = nn.Linear(3, 2)
        def f(x):
            for p in m.parameters(): p.grad = None
            m(x).pow(2).sum().backward()
            a = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            nn.utils.clip_grad_value_(m.parameters(), 0.1)
            v = nn.utils.parameters_to_vector(m.parameters())
            nn.utils.vector_to_parameters(v * 2, m.parameters())
            b = nn.utils.get_total_norm([p.grad for p in m.parameters()])
            return a, v, b
        ---
        run(T(2, 3))
        run(T(2, 3))
    """,
    ),
    "param_user": (
        2,
        """
        import torch.nn.utils.parametrize as P
        class Sym(nn.Module):
            def forward(self, w): return w.triu() + w.triu(1).T
            def right_inverse(self, w): return w.triu()
        a = nn.Linear(3, 3)
        P.register_parametrization(a, "weight", Sym())
        def f(x):
            with P.cached():
                return a(x).sum() + a.weight.sum()
        ---
        run(T(2, 3)).backward()
        P.remove_parametrizations(a, "weight")
        run(T(2, 3))
    """,
    ),
    "generator_argument": (
        2,
        """
        def f(x, g): return x + torch.rand(3, generator=g), torch.randperm(4, generator=g), torch.empty(3).normal_(generator=g)
        ---
        g = torch.Generator().manual_seed(3)
        run(T(3), g)
        run(T(3), g)
        float(torch.rand(1, generator=g))
    """,
    ),
    "generator_made": (
        1,
        """
        def f(x):
            g = torch.Generator()
            g.manual_seed(5)
            return x + torch.rand(3, generator=g)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "seed_mid": (
        1,
        """
        def f(x):
            y = x + torch.rand(3)
            torch.manual_seed(4)
            return y + torch.rand(3)
        ---
        run(T(3))
        run(T(3))
        float(torch.rand(1))
    """,
    ),
    "shuffle": (
        2,
        """
        import random
        def f(x):
            l = [0, 1, 2]
            random.shuffle(l)
            k = random.sample(range(5), 2)
            c = random.choices([1., 2.], k=2)
            return x[l] * k[0] + c[0], l
        ---
        run(T(3))
        run(T(3))
        random.random()
    """,
    ),
    "linalg_train": (
        1,
        """
        def f(x):
            a = x @ x.T + torch.eye(3)
            return torch.linalg.inv(a).sum() + torch.linalg.solve(a, x).sum() + torch.linalg.det(a) + torch.linalg.cholesky(a).sum()
        ---
        x = T(3, 3, grad=True)
        run(x).backward()
    """,
    ),
    "version": (
        1,
        """
        def f(x):
            v = x._version
            x.add_(1)
            return x * 2, x._version - v
        ---
        x = T(3)
        run(x)
        run(x)
        x._version
    """,
    ),
    "storage_resize": (
        2,
        """
        def f(x):
            y = x * 2
            n = x.untyped_storage().nbytes()
            x.untyped_storage().resize_(0)
            x.untyped_storage().resize_(n)
            x.copy_(y)
            return y + 1
        ---
        x = T(3)
        run(x)
        x
    """,
    ),
    "full_backward_hook": (
        2,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        def hook(mod, gi, go):
            log.append(type(mod).__name__)
            return (gi[0] * 2,)
        def pre(mod, go): log.append("pre"); return (go[0] * 3,)
        h = m[0].register_full_backward_hook(hook)
        h2 = m[1].register_full_backward_pre_hook(pre)
        def f(x): return m(x.sin()).sum()
        ---
        x = T(2, 3, grad=True)
        run(x).backward()
        x.grad
        h.remove()
        run(x).backward()
        h = h2 = None
    """,
    ),
    "forward_hooks": (
        1,
        """
        m = nn.Linear(3, 2)
        feats = []
        h = m.register_forward_hook(lambda mod, a, kw, o: feats.append(o) or o * 2, with_kwargs=True)
        h2 = m.register_forward_pre_hook(lambda mod, a: (a[0] + 1,))
        def f(x):
            y = m(x)
            return y.sum()
        ---
        run(T(2, 3)).backward()
        len(feats)
        m.weight.grad
        h = h2 = None
    """,
    ),
    "hook_in_frame": (
        1,
        """
        m = nn.Linear(3, 2)
        def f(x):
            got = []
            with m.register_forward_hook(lambda mod, a, o: got.append(o.detach())):
                y = m(x)
            h = m.register_forward_hook(lambda mod, a, o: o * 2)
            z = m(x)
            h.remove()
            return y + z, got, len(m._forward_hooks)
        ---
        run(T(2, 3))
        run(T(2, 3))
    """,
    ),
    "lazy": (
        1,
        """
        class L(nn.modules.lazy.LazyModuleMixin, nn.Module):
            cls_to_become = None
            def __init__(self):
                super().__init__(); self.w = nn.parameter.UninitializedParameter()
            def initialize_parameters(self, x):
                if self.has_uninitialized_params():
                    with torch.no_grad():
                        self.w.materialize((x.shape[-1],)); self.w.fill_(0.5)
            def forward(self, x): return x * self.w
        m = L()
        def f(x): return m(x) + 1
        ---
        run(T(2, 3))
        run(T(2, 3))
        m.w
    """,
    ),
    "quant": (
        1,
        """
        def f(x):
            q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
            return q.dequantize() + 1, q.int_repr(), q.q_scale()
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "quant_in": (
        1,
        """
        def f(q): return q.dequantize() + 1
        ---
        run(torch.quantize_per_tensor(T(3), 0.1, 3, torch.quint8))
        run(torch.quantize_per_tensor(T(3), 0.1, 3, torch.quint8))
    """,
    ),
    "pickle": (
        1,
        """
        import pickle
        def f(x, d):
            b = pickle.dumps(d)
            return x + len(b), pickle.loads(b)
        ---
        run(T(3), {"a": 1})
        run(T(3), {"a": 1})
    """,
    ),
    "np_remainder": (
        1,
        """
        def f(x):
            a = np.arange(6)
            return torch.from_numpy(a % 4 + np.remainder(a, 3) - a // 2) + x
        ---
        run(T(6))
        run(T(6))
    """,
    ),
    "pytree": (
        1,
        """
        import torch.utils._pytree as pytree
        def f(d):
            a, spec = pytree.tree_flatten(d)
            b = pytree.tree_map(lambda t: t * 2, d)
            c = pytree.tree_unflatten([t + 1 for t in a], spec)
            return b, c, pytree.tree_all(lambda t: t.ndim == 1, d), len(pytree.tree_leaves(d)), pytree.tree_map_only(torch.Tensor, lambda t: t.sum(), (d, 3))
        ---
        run({"a": T(3), "b": [T(2), (T(1),)]})
        run({"a": T(3), "b": [T(2), (T(1),)]})
    """,
    ),
    "pytree_registered": (
        1,
        """
        import torch.utils._pytree as pytree
        class Box:
            def __init__(self, a, n): self.a, self.n = a, n
        pytree.register_pytree_node(Box, lambda b: ([b.a], b.n), lambda c, n: Box(c[0], n))
        def f(b): return pytree.tree_map(lambda t: t * 2, b)
        ---
        run(Box(T(3), 1)).a
        run(Box(T(3), 1)).n
    """,
    ),
    "outputs": (
        1,
        """
        import typing
        @dataclasses.dataclass
        class Out:
            a: torch.Tensor
            b: typing.Optional[torch.Tensor] = None
            extra: dict = dataclasses.field(default_factory=dict)
        class NT(typing.NamedTuple):
            x: torch.Tensor
            y: int = 3
        @dataclasses.dataclass(frozen=True, slots=True)
        class Fr:
            v: torch.Tensor
            n: int
        def f(x):
            o = Out(x + 1, extra={"k": x * 2})
            o2 = dataclasses.replace(o, b=x)
            n = NT(x)._replace(y=4)
            return o, o2, n, n._asdict(), dataclasses.asdict(Fr(x, 2)), dataclasses.astuple(Fr(x, 1)), [g.name for g in dataclasses.fields(o)]
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "functools": (
        None,
        """
        @functools.singledispatch
        def sd(a): return a * 2
        @sd.register
        def _(a: int): return a + 1
        @sd.register(list)
        def _(a): return [sd(i) for i in a]
        class C:
            def __init__(self, x): self.x = x
            @functools.cached_property
            def big(self): log.append("c"); return self.x * 3
            @functools.singledispatchmethod
            def m(self, a): return a
            @m.register
            def _(self, a: int): return a + 10
            pm = functools.partialmethod(lambda self, k, v: self.x * k + v, 2)
        @functools.lru_cache(None)
        def table(n): log.append(n); return n * 2
        def deco(fn):
            @functools.wraps(fn)
            def w(*a, **k): return fn(*a, **k) + 1
            return w
        @deco
        def g(x, k=1): return x * k
        def f(x, c):
            return sd(x), sd(3), sd([1, x]), c.big + c.big, c.m(2), c.m(x), c.pm(1), table(4), g(x, k=2), g.__name__, functools.partial(g, k=3)(x), functools.reduce(operator.add, [x, x, x])
        ---
        c = C(T(3))
        run(T(3), c)
        run(T(3), c)
        run(T(3), C(T(3)))
    """,
    ),
    "custom_op": (
        1,
        """
        @torch.library.custom_op("usersprobe::addmul", mutates_args=("out",))
        def addmul(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, k: float = 2.0) -> None:
            out.copy_(a + b * k)
        @torch.library.custom_op("usersprobe::sq", mutates_args=())
        def sq(a: torch.Tensor) -> torch.Tensor: return a * a
        @sq.register_fake
        def _(a): return torch.empty_like(a)
        def setup(ctx, inputs, output): ctx.save_for_backward(inputs[0])
        def bw(ctx, g): return g * 2 * ctx.saved_tensors[0]
        sq.register_autograd(bw, setup_context=setup)
        def f(x):
            o = torch.empty(3)
            addmul(x.detach(), x.detach(), o, k=3.0)
            return (sq(x.sin()) * o).sum(), torch.ops.usersprobe.sq(x)
        ---
        x = T(3, grad=True)
        run(x)[0].backward()
        x.grad
        addmul = sq = None
    """,
    ),
    "lazy_after_work": (
        3,
        """
        class L(nn.modules.lazy.LazyModuleMixin, nn.Module):
            cls_to_become = None
            def __init__(self):
                super().__init__(); self.w = nn.parameter.UninitializedParameter(); self.made = False
            def initialize_parameters(self, x):
                if self.has_uninitialized_params():
                    with torch.no_grad():
                        self.w.materialize((x.shape[-1],)); self.w.fill_(float(x.sum()))
                    self.made = True; log.append(len(log))
            def forward(self, x): return x * self.w
        one, two = L(), L()
        def f(x):
            before = two.made
            y = one(x)
            return two(y + 1), before, two.made
        ---
        run(T(2, 3))
        run(T(2, 3))
        log
    """,
    ),
    "lazy_given_a_tuple": (
        1,
        """
        class L(nn.modules.lazy.LazyModuleMixin, nn.Module):
            def __init__(self):
                super().__init__(); self.w = nn.UninitializedParameter()
            def initialize_parameters(self, x, *rest):
                log.append(len(rest))
                with torch.no_grad(): self.w.materialize((x.shape[-1],)); self.w.fill_(0.5)
            def forward(self, x, *rest): return x * self.w + sum(rest)
        m = L()
        def f(*xs): return m(*xs)
        ---
        run(T(2, 3), T(3)).detach()
        run(T(2, 3), T(3)).detach()
        log
    """,
    ),
    "lazy_given_a_list": (
        None,
        """
        class L(nn.modules.lazy.LazyModuleMixin, nn.Module):
            def __init__(self):
                super().__init__(); self.w = nn.UninitializedParameter()
            def initialize_parameters(self, x, *rest):
                log.append(len(rest))
                with torch.no_grad(): self.w.materialize((x.shape[-1],)); self.w.fill_(0.5)
            def forward(self, x, *rest): return x * self.w + sum(rest)
        held = [T(3), L()]
        def initialize(self, x):
            held[0] = x + 9
            self.w.materialize((x.shape[-1],)); nn.init.ones_(self.w)
        L.initialize_parameters = initialize
        def f(held): return held[1](held[0]) + held[0]
        ---
        run(held).detach()
    """,
    ),
    "lazy_becomes_another": (
        None,
        """
        class L(nn.modules.lazy.LazyModuleMixin, nn.Module):
            cls_to_become = nn.Linear
            def __init__(self):
                super().__init__(); self.weight, self.bias = nn.UninitializedParameter(), None
            def initialize_parameters(self, x):
                self.weight.materialize((2, x.shape[-1]))
                nn.init.ones_(self.weight)
            def forward(self, x): return x - 1
        m = L()
        def f(x): return m(x) + 1
        ---
        run(T(2, 3))
        run(T(2, 3)).detach()
        type(m)
    """,
    ),
    "lazy_changes_a_container": (
        None,
        """
        class L(nn.modules.lazy.LazyModuleMixin, nn.Module):
            def __init__(self):
                super().__init__(); self.w = nn.UninitializedParameter()
            def initialize_parameters(self, x):
                held["x"] = x + 9
                self.w.materialize((x.shape[-1],))
                nn.init.ones_(self.w)
            def forward(self, x): return x * self.w
        held = {"x": T(3), "m": L()}
        def f(held):
            return held["m"](held["x"]) + held["x"]
        ---
        run(held).detach()
    """,
    ),
    "lazy_that_fails_at_first": (
        None,
        """
        import random
        class L(nn.modules.lazy.LazyModuleMixin, nn.Module):
            def __init__(self):
                super().__init__(); self.w = nn.UninitializedParameter()
            def initialize_parameters(self, x):
                log.append((x.shape, torch.rand(1), random.random()))
                if len(log) < 3:
                    raise ValueError(len(log))
                if len(log) > 3:
                    self.w.materialize((x.shape[-1],))
                    nn.init.ones_(self.w)
            def forward(self, x): return x * self.w + torch.rand(3)
        __m = L()
        def g(x): return __m(x)
        def f(x, caught):
            try:
                return g(x) + 1
            except caught as error:
                return str(error), len(log), random.random()
        ---
        run(T(3), ValueError)
        run(T(3), KeyError)
        sorted(__m.__dict__)
        run(T(3), ValueError)
        run(T(3), ValueError).detach()
        run(T(3), ValueError).detach()
    """,
    ),
    "masked_tensors": (
        None,
        """
        from torch.masked import masked_tensor
        def f(x, m):
            one = masked_tensor(x, m)
            plain = torch.masked.sum(x, mask=m), torch.masked.softmax(x, 0, mask=m)
            return one.sum().get_data(), (one + one).get_data(), one.amax().get_data(), *plain
        ---
        run(T(3), T(3) > -0.5)
    """,
    ),
    "subclass_whose_layout_runs_code": (
        None,
        """
        class Logged(torch.Tensor):
            @staticmethod
            def __new__(cls, held):
                return torch.Tensor._make_wrapper_subclass(cls, held.shape, dispatch_layout=True)
            def __init__(self, held): self.held = held
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                with torch._C.DisableTorchFunctionSubclass(): return func(*args, **(kwargs or {}))
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                log.append(func.__name__)
                return args[0].held.layout
        def f(x, one):
            y = x + 1
            return y * 2, one.held
        __one = Logged(T(2))
        ---
        run(T(3), __one)
        log
    """,
    ),
}
