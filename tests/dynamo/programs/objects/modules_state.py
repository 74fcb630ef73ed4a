"""nn.Module: what modules hold and how the captured code changes it."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "attribute_becomes_a_buffer": """
        m = nn.Linear(2, 2)
        def f(x):
            m.extra = x + 1
            return m.extra * 2
        ---
        run(T(2))
        del m.extra
        m.register_buffer("extra", T(2))
        run(T(2))
        list(m._buffers), "extra" in vars(m)
        """,
    "hook_state": (
        1,
        "",
        """
        class Rec:
            def __init__(self): self.seen = []
            def hook(self, mod, args, out):
                self.seen.append(out.shape)
                self.last = out
                return None
        r = Rec()
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        m[0].register_forward_hook(r.hook)
        def f(x): return m(x)
        ---
        run(T(2, 3))
        r.seen
        r.last
        run(T(2, 3))
        """,
    ),
    "hook_kwargs": (
        1,
        "",
        """
        class N(nn.Module):
            def forward(self, x, *, k=1): return x * k
        m = N()
        def pre(mod, args, kwargs): return args, {**kwargs, 'k': 5}
        def post(mod, args, kwargs, out): return out + kwargs['k']
        m.register_forward_pre_hook(pre, with_kwargs=True)
        m.register_forward_hook(post, with_kwargs=True)
        def f(x): return m(x, k=2), m(x)
        ---
        run(T(2, 3))
        """,
    ),
    "hook_handles": (
        2,
        "",
        """
        m = nn.Linear(3, 3)
        h = m.register_forward_hook(lambda mod, a, o: o + 1)
        def f(x): return m(x)
        ---
        run(T(2, 3))
        h.remove()
        run(T(2, 3))
        """,
    ),
    "hook_bad_prehook": (
        1,
        "",
        """
        class N(nn.Module):
            def forward(self, x): return x
        m = N()
        m.register_forward_pre_hook(lambda mod, a, k: 3, with_kwargs=True)
        def f(x):
            y = x + 1
            try: return m(y)
            except RuntimeError as e: return y, str(e)
        ---
        run(T(2))
        """,
    ),
    "hook_dict_out": (
        1,
        "",
        """
        class N(nn.Module):
            def forward(self, x): return {'a': x, 'b': [x + 1]}
        m = N()
        m.register_forward_hook(lambda mod, a, o: {**o, 'c': o['a'] * 2})
        def f(x): return m(x)
        ---
        run(T(2))
        """,
    ),
    "hook_grad_tensor": (
        1,
        "",
        """
        def f(x):
            y = x * 2
            y.register_hook(lambda g: g * 3)
            return y.sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x.grad
        """,
    ),
    "state_hooks": (
        1,
        "DATA_DEPENDENT_LOOP",
        """
        m = nn.Linear(3, 3)
        m._register_state_dict_hook(lambda mod, sd, prefix, meta: sd.pop('bias') and None)
        def f(x): return x @ m.state_dict()['weight'], list(m.state_dict())
        ---
        run(T(2, 3))
        """,
    ),
    "load_state": (
        1,
        "",
        """
        m = nn.Linear(3, 3)
        def f(x, w):
            m.load_state_dict({'weight': w, 'bias': w[0]})
            return m(x)
        ---
        run(T(2, 3), T(3, 3))
        m.weight
        """,
    ),
    "buffers_none": (
        2,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer('a', None)
                self.register_parameter('p', None)
                self.sub = None
            def forward(self, x):
                if self.a is None: self.a = x.detach() * 2
                return x + self.a, self.p, self.sub
        m = N()
        def f(x): return m(x)
        ---
        run(T(3))
        run(T(3))
        m.state_dict()
        """,
    ),
    "buffer_replace": (
        1,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer('step', torch.zeros(1))
                self.register_buffer('hist', torch.zeros(2), persistent=False)
            def forward(self, x):
                self.step += 1
                self.hist = torch.cat([self.hist[1:], x.sum().reshape(1)])
                return x * self.step
        m = N()
        def f(x): return m(x)
        ---
        run(T(3))
        run(T(3))
        m.hist
        """,
    ),
    "attr_delete": (
        1,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(3, 3)
                self.tmp = 5
                self.register_buffer('b', torch.ones(3))
            def forward(self, x):
                y = self.l(x) + self.tmp
                del self.tmp
                del self.b
                self.tmp = 6
                try: self.b
                except AttributeError as e: log.append(str(e))
                self.b = 3
                return y * self.b
        m = N()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        list(vars(m))
        m.b
        """,
    ),
    "setattr_module": (
        1,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(3, 3)
            def forward(self, x): return self.l(x)
        m = N()
        other = nn.Linear(3, 3)
        def f(x):
            m.l = other
            m.extra = nn.Tanh()
            setattr(m, 'name_0', other)
            return m(x), len(list(m.children()))
        ---
        run(T(2, 3))
        m.l is other
        list(dict(m.named_modules(remove_duplicate=False)))
        """,
    ),
    "param_assign_error": (
        1,
        "",
        """
        m = nn.Linear(3, 3)
        def f(x):
            y = x + 1
            try: m.weight = 3
            except TypeError as e: return y, str(e)
        ---
        run(T(2, 3))
        """,
    ),
    "uninit_module": (
        1,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                self.l = nn.Linear(2, 2)
        def f(x):
            y = x + 1
            try: N()
            except AttributeError as e: return y, str(e)
        ---
        run(T(3))
        """,
    ),
    "super_forward": (
        1,
        "",
        """
        class A(nn.Linear):
            def forward(self, x): return super().forward(x) * 2
        class B(nn.Sequential):
            def forward(self, x, scale):
                for mod in self: x = mod(x) * scale
                return x
        class C(nn.ModuleList):
            def forward(self, x): return sum(l(x) for l in self)
        class D(nn.ModuleDict):
            def __call__(self, x): return self['a'](x)
        a, b, c, d = A(3, 3), B(nn.Linear(3, 3), nn.ReLU()), C([nn.Linear(3, 3), nn.Tanh()]), D({'a': nn.Tanh()})
        def f(x): return a(x), b(x, 2.0), c(x), d(x)
        ---
        run(T(2, 3))
        """,
    ),
    "property_module": (
        1,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(3, 3)
            @property
            def device(self): return next(self.parameters()).device
            @property
            def dtype(self): return self.l.weight.dtype
            @functools.cached_property
            def scale(self): return self.l.weight.sum()
            def forward(self, x): return self.l(x.to(self.dtype).to(self.device)) * self.scale
        m = N()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        """,
    ),
    "call_forms": (
        1,
        "",
        """
        m = nn.Linear(3, 3)
        def f(x): return m.forward(x), m.__call__(x), nn.Linear.forward(m, x), type(m).__call__(m, x), nn.Module.__call__(m, x), m(input=x)
        ---
        run(T(2, 3))
        """,
    ),
    "module_iter_mutation": (
        1,
        "",
        """
        m = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        def f(x):
            m.insert(1, nn.Tanh())
            m.extend([nn.ReLU()])
            del m[0]
            m[0] = nn.Sigmoid()
            for l in m: x = l(x)
            return x, [type(l).__name__ for l in m]
        ---
        run(T(2, 3))
        len(m)
        """,
    ),
    "seq_mutation": (
        1,
        "",
        """
        m = nn.Sequential(nn.Linear(3, 3))
        def f(x):
            m.append(nn.Tanh())
            m.insert(0, nn.ReLU())
            y = m(x)
            m.pop(0)
            return y, len(m), m + nn.Sequential(nn.Tanh()), m * 2
        ---
        run(T(2, 3))
        len(m)
        """,
    ),
    "paramlist_ops": (
        1,
        "",
        """
        ps = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))])
        pd = nn.ParameterDict({'x': nn.Parameter(torch.ones(2))})
        def f(x):
            t = x + ps[0] + ps[-1]
            for i, p in enumerate(ps): t = t * (p + i + 1)
            for k in pd: t = t + pd[k]
            return t, len(ps), ps[0:1][0] is ps[0], 'x' in pd, pd.get('nope', 3), [k for k in pd.keys()], len(pd)
        ---
        run(T(2)).__class__
        run(T(2))[0].sum().backward()
        ps[0].grad
        """,
    ),
    "named_things": (
        1,
        "",
        """
        m = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2)))
        def f(x):
            out = []
            for n, p in m.named_parameters(prefix='p'): out.append((n, p.shape))
            for n, b in m.named_buffers(): out.append(n)
            for n, c in m.named_children(): out.append((n, type(c).__name__))
            for n, c in m.named_modules(): out.append(n)
            for p in m.parameters(recurse=False): out.append(p)
            tot = sum(p.numel() for p in m.parameters() if p.requires_grad)
            return m(x), out, tot, {n: b for n, b in m.named_buffers()}
        ---
        run(T(3, 2))
        """,
    ),
    "shared_param_tied": (
        1,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.e = nn.Embedding(5, 3)
                self.o = nn.Linear(3, 5, bias=False)
                self.o.weight = self.e.weight
            def forward(self, t): return self.o(self.e(t)), len(list(self.parameters()))
        m = N()
        def f(t): return m(t)[0].sum()
        ---
        run(torch.tensor([1, 2])).backward()
        m.e.weight.grad
        m.o.weight is m.e.weight
        """,
    ),
    "fn_call_tied": (
        1,
        "",
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        def f(x, w, b):
            return torch.func.functional_call(m, {'0.weight': w, '0.bias': b}, (x,)), torch.func.functional_call(m, [{'0.weight': w}, {'0.bias': b}], x), m(x)
        ---
        run(T(2, 3), T(3, 3, grad=True), T(3))
        m[0].weight
        """,
    ),
    "fn_call_kwargs": (
        1,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(3))
                self.register_buffer('b', torch.zeros(3))
            def forward(self, x, *, k): return x * self.w * k + self.b
        m = N()
        def f(x, w): return torch.func.functional_call(m, {'w': w, 'b': w * 2}, (x,), {'k': 3})
        ---
        run(T(3), T(3))
        """,
    ),
    "deepcopy_plain": (
        0,
        "",
        """
        import copy
        class C:
            def __init__(self): self.a = [1, {'k': 2}]; self.me = self
        c = C()
        def f(x):
            d = copy.deepcopy(c)
            e = copy.copy(c)
            d.a.append(x)
            return d, e, d.me is d, e.me is c, e.a is c.a
        ---
        run(T(2))
        """,
    ),
    "copy_hooks": (
        1,
        "",
        """
        import copy
        class C:
            def __init__(self, v): self.v = v
            def __copy__(self): return C(self.v + 1)
            def __deepcopy__(self, memo): return C(self.v + 2)
        def f(x):
            c = C(x)
            return copy.copy(c), copy.deepcopy(c)
        ---
        run(T(2))
        """,
    ),
    "spectral_eval": (
        1,
        "",
        """
        m = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).eval()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3)).sum().backward()
        m.parametrizations.weight.original.grad
        """,
    ),
    "weight_norm_dims": (
        1,
        "",
        """
        m = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 3, 2), dim=1)
        def f(x): return m(x)
        ---
        run(T(1, 2, 4))
        """,
    ),
    "remove_param": (
        2,
        "",
        """
        import torch.nn.utils.parametrize as P
        m = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
        def f(x): return m(x)
        ---
        run(T(2, 3))
        P.remove_parametrizations(m, 'weight')
        run(T(2, 3))
        """,
    ),
    "parametrize_set": (
        3,
        "TENSOR_METADATA",
        """
        import torch.nn.utils.parametrize as P
        class Sym(nn.Module):
            def forward(self, w): return w + w.T
            def right_inverse(self, w): return w / 2
        m = nn.Linear(3, 3)
        P.register_parametrization(m, 'weight', Sym())
        def f(x):
            m.weight = torch.eye(3)
            return m(x)
        ---
        run(T(2, 3))
        m.weight
        """,
    ),
    "prune_mask": (
        1,
        "",
        """
        import torch.nn.utils.prune as prune
        m = nn.Linear(3, 3)
        prune.random_unstructured(m, 'weight', amount=0.5)
        prune.identity(m, 'bias')
        def f(x): return m(x).sum()
        ---
        run(T(2, 3)).backward()
        m.weight_orig.grad
        """,
    ),
    "bn_average_of_all_batches": (
        3,
        "",
        """
        m = nn.BatchNorm1d(3, momentum=None)
        def f(x):
            log.append(len(x))
            return m(x + 1)
        ---
        x = torch.arange(12.0).reshape(4, 3)
        run(x).sum().backward()
        run(2 * x)
        run(x[:0])
        m.num_batches_tracked.fill_(-1)
        run(x)
        run(x)
        m.eval()
        run(x)
        """,
    ),
    "bn_modes": (
        2,
        "",
        """
        m = nn.BatchNorm1d(3, momentum=None)
        n = nn.BatchNorm1d(3, track_running_stats=False)
        def f(x): return m(x) + n(x)
        ---
        run(T(4, 3))
        run(T(4, 3))
        m.num_batches_tracked
        m.eval()
        run(T(4, 3))
        m.running_mean
        """,
    ),
    "mha_masks": (
        2,
        "",
        """
        m = nn.MultiheadAttention(4, 2, batch_first=True)
        def f(x, mask, pad):
            return m(x, x, x, attn_mask=mask, key_padding_mask=pad, need_weights=True, average_attn_weights=False)
        ---
        run(T(2, 3, 4), torch.triu(torch.ones(3, 3), 1).bool(), torch.tensor([[False, False, True], [False, False, False]]))
        m.eval()
        run(T(2, 3, 4), torch.triu(torch.ones(3, 3), 1).bool(), torch.tensor([[False, False, True], [False, False, False]]))
        """,
    ),
    "emb_extra": (
        1,
        "",
        """
        a = nn.Embedding(6, 3, padding_idx=0, scale_grad_by_freq=True)
        b = nn.EmbeddingBag(6, 3, mode='max')
        c = nn.Embedding.from_pretrained(torch.ones(4, 2))
        def f(t): return a(t).sum() + b(t).sum() + c(t).sum()
        ---
        run(torch.tensor([[1, 2], [0, 3]])).backward()
        a.weight.grad
        """,
    ),
    "dropout_rng": (
        2,
        "",
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3))
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        m.eval()
        run(T(2, 3))
        """,
    ),
    "module_eq_hash": (
        2,
        "",
        """
        a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        reg = {a: 'a'}
        def f(x, m):
            return x + 1, m in reg, reg.get(m), a == m, a != b, m in [a, b], {a, b, m} == {a, b}
        ---
        run(T(2), a)
        run(T(2), b)
        """,
    ),
    "module_repr_apply": (
        1,
        "",
        """
        m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        def f(x):
            for p in m.parameters(): log.append(p.requires_grad)
            return m(x), str(m), m.extra_repr(), m._get_name(), m.training
        ---
        run(T(2, 2))
        """,
    ),
    "getattr_chain": (
        2,
        "",
        """
        class N(nn.Module):
            def __init__(self):
                super().__init__()
                self.cfg = type('Cfg', (), {'n': 2, 'act': 'relu'})()
                self.acts = {'relu': nn.ReLU(), 'tanh': nn.Tanh()}
                self.fns = [torch.sin, torch.cos]
            def forward(self, x):
                for i in range(self.cfg.n): x = self.fns[i](x)
                return self.acts[self.cfg.act](x)
        m = N()
        def f(x): return m(x)
        ---
        run(T(2, 2))
        m.cfg.act = 'tanh'
        run(T(2, 2))
        """,
    ),
    "recursion_tree": (
        1,
        "",
        """
        class Tree(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.l = nn.Linear(2, 2)
                self.kids = nn.ModuleList([Tree(d - 1) for _ in range(2)] if d else [])
            def forward(self, x):
                x = self.l(x)
                for k in self.kids: x = x + k(x)
                return x
        m = Tree(2)
        def f(x): return m(x)
        ---
        run(T(2, 2))
        """,
    ),
    "checkpointed": (
        1,
        "",
        """
        from torch.utils.checkpoint import checkpoint
        m = nn.Linear(3, 3)
        def f(x): return checkpoint(m, x, use_reentrant=False).sum()
        ---
        run(T(2, 3, grad=True)).backward()
        m.weight.grad
        """,
    ),
    "lazy_linear": (
        1,
        "",
        """
        def mk():
            m = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
            def f(x): return m(x), type(m[0]).__name__
            return f
        f = mk()
        ---
        run(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "lazy_conv": (
        1,
        "",
        """
        def mk():
            m = nn.LazyConv1d(3, 2)
            def f(x): return m(x), m.in_channels
            return f
        f = mk()
        ---
        run(T(1, 2, 5))
        run(T(1, 2, 5))
        """,
    ),
    "lazy_with_hooks": (
        1,
        "",
        """
        m = nn.Sequential(nn.LazyConv1d(3, 2), nn.ReLU(), nn.LazyInstanceNorm1d(affine=True))
        m[0].register_forward_pre_hook(lambda m, i: log.append(type(m).__name__))
        m[0].register_forward_hook(lambda m, i, o: o + m.in_channels)
        def f(x):
            with torch.no_grad(): y = m(x + 1)
            return y, torch.rand(2), len(m[0]._forward_pre_hooks)
        ---
        run(T(1, 2, 5))
        run(T(1, 2, 5))
        """,
    ),
    "lazy_seen_before": (
        3,
        "UNCAPTURED_CALL",
        """
        m, n = nn.LazyLinear(3), nn.LazyBatchNorm2d()
        def f(x):
            before = m.in_features
            noise = x + before
            y = m(noise)
            try: n(y)
            except ValueError as error: return y, before, m.in_features, str(error)
        ---
        run(T(1, 2))
        run(T(1, 2))
        """,
    ),
    "lazy_after_draws": (
        3,
        "UNCAPTURED_CALL",
        """
        m = nn.LazyLinear(3)
        def f(x): return m(x * torch.rand(2))
        ---
        run(T(1, 2))
        run(T(1, 2))
        """,
    ),
    "encoder_padding": (
        1,
        "",
        """
        m = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0), 2).eval()
        def f(x, pad): return m(x, src_key_padding_mask=pad).round(decimals=4)
        ---
        run(T(2, 3, 4), torch.tensor([[False, False, True], [False, False, False]]))
        run(T(2, 3, 4), torch.tensor([[False, False, False], [False, False, False]]))
        """,
    ),
    "stack_module": (
        1,
        "UNCAPTURED_CALL",
        """
        def f(x, ms):
            p, b = torch.func.stack_module_state(ms)
            g = lambda p, b, x: torch.func.functional_call(ms[0], (p, b), (x,))
            return torch.vmap(g, in_dims=(0, 0, None))(p, b, x).sum()
        ---
        run(T(2, 3), [nn.Linear(3, 3) for _ in range(2)])
        """,
    ),
    "equal_modules": (
        1,
        "",
        """
        class Equal(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)
                self.register_buffer("total", torch.zeros(()))
            def __eq__(self, other): return isinstance(other, Equal)
            def forward(self, x):
                self.total = self.total + 1
                return self.layer(x).relu() * self.total
        first, second = Equal(), Equal()
        def f(x): return first(x) + second(x)
        ---
        run(T(2, 2))
        run(T(2, 2))
        """,
    ),
    "hash_counted": (
        1,
        "",
        """
        asked = []
        class Counted(nn.Linear):
            def __eq__(self, other): asked.append("eq"); return self is other
            def __hash__(self): asked.append("hash"); return 1
            def forward(self, x): return super().forward(x).relu()
        m = Counted(2, 2)
        def f(x): return m(x)
        ---
        asked.clear()
        run(T(2, 2))
        asked
        """,
    ),
}
