"""nn.Module: hooks, containers, functional calls, parametrizations, layers."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "weight_norm_old": (
        1,
        "",
        """
        m = torch.nn.utils.weight_norm(nn.Linear(3, 4))
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "weight_norm_new": (
        1,
        "",
        """
        m = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3)).sum().backward()
        m.parametrizations.weight.original0.grad
        """,
    ),
    "spectral_norm": (
        2,
        "",
        """
        m = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        m.eval()
        run(T(2, 3))
        """,
    ),
    "spectral_norm_old": (
        2,
        "",
        """
        m = torch.nn.utils.spectral_norm(nn.Linear(3, 4))
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        m.eval()
        run(T(2, 3))
        """,
    ),
    "orthogonal": (
        1,
        "",
        """
        m = torch.nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "parametrize_user": (
        1,
        "",
        """
        import torch.nn.utils.parametrize as P
        class Sym(nn.Module):
            def forward(self, w): return w + w.T
            def right_inverse(self, w): return w / 2
        m = nn.Linear(3, 3)
        P.register_parametrization(m, 'weight', Sym())
        def f(x): return m(x), m.weight, P.is_parametrized(m)
        ---
        run(T(2, 3))
        """,
    ),
    "parametrize_cached": (
        3,
        "",
        """
        import torch.nn.utils.parametrize as P
        class Sym(nn.Module):
            def forward(self, w): return w + w.T
        m = nn.Linear(3, 3)
        P.register_parametrization(m, 'weight', Sym())
        def f(x):
            with P.cached():
                return m(x) + m(x)
        def g(x):
            with P.cached():
                return run(x), run(x)
        ---
        run(T(2, 3))
        g(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "pruning": (
        1,
        "",
        """
        import torch.nn.utils.prune as prune
        m = nn.Linear(3, 4)
        prune.l1_unstructured(m, 'weight', 2)
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "hooks_all": (
        1,
        "",
        """
        m = nn.Linear(3, 3)
        m.register_forward_pre_hook(lambda mod, a: (a[0] + 1,))
        m.register_forward_pre_hook(lambda mod, a, k: (a, k), with_kwargs=True)
        m.register_forward_hook(lambda mod, a, o: o * 2)
        m.register_forward_hook(lambda mod, a, k, o: log.append('k'), with_kwargs=True, prepend=True)
        m.register_forward_hook(lambda mod, a, o: log.append('always'), always_call=True)
        def f(x): return m(x)
        ---
        run(T(2, 3))
        """,
    ),
    "hooks_always_error": (
        1,
        "",
        """
        class B(nn.Module):
            def forward(self, x): raise ValueError('in forward')
        m = B()
        m.register_forward_hook(lambda mod, a, o: log.append(('always', o)), always_call=True)
        m.register_forward_hook(lambda mod, a, o: log.append('never'))
        def f(x):
            y = x + 1
            try: m(y)
            except ValueError as e: log.append(str(e))
            return y
        ---
        run(T(2, 3))
        """,
    ),
    "hooks_that_break": (
        3,
        "REQUESTED_BREAK",
        """
        import dynamo
        def pre(mod, a):
            x = a[0] + 1
            dynamo.graph_break()
            return x * 2
        def post(mod, a, o):
            o = o + 1
            dynamo.graph_break()
            return o * a[0]
        m = nn.Linear(3, 3)
        m.register_forward_pre_hook(pre)
        m.register_forward_hook(post)
        m.register_forward_hook(lambda mod, a, o: log.append(o.shape))
        def f(x): return m(x.sin()).cos()
        ---
        run(T(2, 3))
        run(T(2, 3) * 2)
        """,
    ),
    "hooks_that_break_and_raise": (
        1,
        "REQUESTED_BREAK",
        """
        import dynamo
        def post(mod, a, o):
            dynamo.graph_break()
            log.append('post')
            raise ValueError('in the hook')
        m = nn.Linear(3, 3)
        m.register_forward_hook(post)
        m.register_forward_hook(lambda mod, a, o: log.append(('always', o is None)), always_call=True)
        def f(x):
            y = x + 1
            try: m(y)
            except ValueError as e: log.append(str(e))
            return y
        ---
        run(T(2, 3))
        """,
    ),
    "hooks_global": (
        2,
        "",
        """
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        def f(x): return m(x)
        def g(x):
            h = register_module_forward_hook(lambda mod, a, o: log.append(type(mod).__name__) or o + 1)
            h2 = register_module_forward_pre_hook(lambda mod, a: log.append('pre'))
            try: return run(x)
            finally: h.remove(); h2.remove()
        ---
        run(T(2, 3))
        g(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "hooks_backward": (
        1,
        "",
        """
        m = nn.Linear(3, 3)
        m.register_full_backward_hook(lambda mod, gi, go: log.append('bw'))
        def f(x): return m(x) * 2
        ---
        run(T(2, 3, grad=True)).sum().backward()
        """,
    ),
    "hooks_backward_pre": (
        1,
        "",
        """
        m = nn.Sequential(nn.Linear(3, 3))
        m[0].register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
        def f(x): return m(x) * 2
        ---
        run(T(2, 3, grad=True)).sum().backward()
        m[0].weight.grad
        """,
    ),
    "hook_inside": (
        1,
        "",
        """
        m = nn.Linear(3, 3)
        def hk(mod, a, o): return o + 1
        def f(x):
            h = m.register_forward_hook(hk)
            y = m(x)
            h.remove()
            return y, m(x)
        ---
        run(T(2, 3))
        len(m._forward_hooks)
        """,
    ),
    "register_inside": (
        2,
        "",
        """
        class Net(nn.Module):
            def forward(self, x):
                if not hasattr(self, 'w'):
                    self.register_buffer('w', torch.ones(3))
                    self.register_parameter('p', None)
                    self.add_module('c', None)
                    self.register_buffer('np', torch.ones(2), persistent=False)
                return x + self.w, self.p, self.c
        m = Net()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        list(m.state_dict())
        """,
    ),
    "register_param_inside": (
        2,
        "",
        """
        class Net(nn.Module):
            def forward(self, x):
                if not hasattr(self, 'w'):
                    self.w = nn.Parameter(torch.ones(3))
                return x + self.w
        m = Net()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        run(T(2, 3)).sum().backward()
        m.w.grad
        """,
    ),
    "train_eval_inside": (
        1,
        "",
        """
        m = nn.Sequential(nn.Dropout(0.9), nn.Linear(3, 3))
        def f(x):
            m.eval()
            y = m(x)
            m.train()
            return y, m.training, m[0].training
        ---
        run(T(2, 3))
        m[0].training
        """,
    ),
    "requires_grad_inside": (
        1,
        "TENSOR_METADATA",
        """
        m = nn.Linear(3, 3)
        def f(x):
            m.requires_grad_(False)
            y = m(x)
            return y, m.weight.requires_grad
        ---
        run(T(2, 3))
        m.weight.requires_grad
        """,
    ),
    "zero_grad_inside": (
        2,
        "",
        """
        m = nn.Linear(3, 3)
        def f(x):
            m.zero_grad()
            return m(x)
        ---
        run(T(2, 3)).sum().backward()
        m.weight.grad
        run(T(2, 3))
        m.weight.grad
        """,
    ),
    "to_inside": (
        1,
        "",
        """
        m = nn.Linear(3, 3)
        def f(x):
            m.to(torch.float32)
            n = m.to('cpu')
            return n(x), n is m
        ---
        run(T(2, 3))
        """,
    ),
    "to_dtype_inside": (
        1,
        "",
        """
        m = nn.Linear(3, 3)
        def f(x):
            m.double()
            return m(x.double())
        ---
        run(T(2, 3))
        m.weight.dtype
        """,
    ),
    "state_dict_inside": (
        1,
        "",
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        def f(x):
            sd = m.state_dict()
            return x @ sd['0.weight'], list(sd), len(list(m.parameters())), [n for n, _ in m.named_modules()], [n for n, _ in m.named_children()], [n for n, _ in m.named_buffers()]
        ---
        run(T(2, 3))
        """,
    ),
    "module_getattr": (
        1,
        "",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(3, 3)
            def __getattr__(self, name):
                try: return super().__getattr__(name)
                except AttributeError: return getattr(self.inner, name)
            def forward(self, x): return self.inner(x) + self.weight.sum() + self.in_features
        m = Net()
        def f(x): return m(x), m.out_features
        ---
        run(T(2, 3))
        """,
    ),
    "functional_call": (
        1,
        "",
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        def f(x, p):
            return torch.func.functional_call(m, p, (x,))
        ---
        run(T(2, 3), {'0.weight': T(3, 3), '0.bias': T(3)})
        m[0].weight
        """,
    ),
    "module_args": (
        1,
        "",
        """
        G = nn.Linear(3, 3)
        def f(x, m, ms, d):
            return m(x) + G(x) + ms[0](x) + d['k'](x)
        ---
        run(T(2, 3), nn.Linear(3, 3), [nn.ReLU()], {'k': nn.Linear(3, 3)})
        """,
    ),
    "module_closure": (
        1,
        "",
        """
        def mk():
            m = nn.Linear(3, 3)
            def f(x): return m(x)
            return f
        f = mk()
        ---
        run(T(2, 3))
        """,
    ),
    "shared_modules": (
        1,
        "",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 3)
                self.b = self.a
                self.c = nn.Linear(3, 3)
                self.c.weight = self.a.weight
                self.l = nn.ModuleList([self.a, self.c])
            def forward(self, x): return self.b(self.a(x)) + self.c(x) + self.l[0](x), self.a is self.b, self.c.weight is self.a.weight
        m = Net()
        def f(x): return m(x)
        ---
        y, *_ = run(T(2, 3))
        y.sum().backward()
        m.a.weight.grad
        """,
    ),
    "deepcopy_module": (
        1,
        "",
        """
        import copy
        m = nn.Linear(3, 3)
        def f(x):
            n = copy.deepcopy(m)
            return n(x), n is m, n
        ---
        run(T(2, 3))
        """,
    ),
    "modulelist_ops": (
        1,
        "",
        """
        m = nn.ModuleList([nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)])
        def f(x):
            for i, l in enumerate(m): x = l(x) + i
            for l in m[1:]: x = l(x)
            for l in reversed(m): x = l(x)
            y = m[-1](x)
            n = m[:2]
            return y, len(m), len(n), m[0] in m, type(n).__name__, [type(l).__name__ for l in m + nn.ModuleList([nn.Tanh()])]
        ---
        run(T(2, 3))
        """,
    ),
    "modulelist_append": (
        2,
        "",
        """
        m = nn.ModuleList([nn.Linear(3, 3)])
        extra = nn.Tanh()
        def f(x):
            m.append(extra)
            for l in m: x = l(x)
            return x, len(m)
        ---
        run(T(2, 3))
        run(T(2, 3))
        len(m)
        """,
    ),
    "moduledict_ops": (
        1,
        "",
        """
        m = nn.ModuleDict({'a': nn.Linear(3, 3), 'b': nn.ReLU()})
        def f(x):
            for k, v in m.items(): x = v(x); log.append(k)
            for k in m: x = m[k](x)
            return x, 'a' in m, list(m.keys()), len(m), [type(v).__name__ for v in m.values()]
        ---
        run(T(2, 3))
        """,
    ),
    "moduledict_update": (
        1,
        "",
        """
        m = nn.ModuleDict({'a': nn.Linear(3, 3)})
        ex = nn.ReLU()
        def f(x):
            m['r'] = ex
            m.update({'t': ex})
            p = m.pop('t')
            return m['r'](m['a'](x)), p is ex
        ---
        run(T(2, 3))
        list(m)
        """,
    ),
    "seq_ops": (
        1,
        "",
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        def f(x):
            y = m[:2](x)
            z = m[1:](y)
            w = m[-1](z)
            for l in m: w = l(w)
            return w, len(m), m[0].in_features, type(m[0:1]).__name__
        ---
        run(T(2, 3))
        """,
    ),
    "paramlist": (
        1,
        "",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.ps = nn.ParameterList([nn.Parameter(torch.ones(3) * i) for i in range(3)])
                self.pd = nn.ParameterDict({'a': nn.Parameter(torch.ones(3)), 'b': torch.ones(3)})
            def forward(self, x):
                for p in self.ps: x = x + p
                for p in self.ps[1:]: x = x * p
                for k, v in self.pd.items(): x = x + v
                return x, len(self.ps), self.ps[-1] + 1, self.pd['a'], list(self.pd.keys()), 'b' in self.pd
        m = Net()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        """,
    ),
    "counters": (
        2,
        "",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.n = 0
                self.hist = []
                self.cache = {}
            def forward(self, x):
                self.n += 1
                self.hist.append(self.n)
                if 'k' not in self.cache: self.cache['k'] = x.sum()
                self.out = x * 2
                return self.out + self.cache['k']
        m = Net()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        m.hist
        m.out
        """,
    ),
    "emb_max_norm": (
        1,
        "",
        """
        m = nn.Embedding(5, 3, max_norm=1.0)
        def f(t): return m(t) * 2
        ---
        run(torch.tensor([1, 2]))
        m.weight
        """,
    ),
    "mha": (
        2,
        "",
        """
        m = nn.MultiheadAttention(4, 2, batch_first=True)
        def f(x): return m(x, x, x)
        ---
        run(T(2, 3, 4))
        m.eval()
        run(T(2, 3, 4))
        """,
    ),
    "tel": (
        2,
        "",
        """
        m = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        def f(x): return m(x)
        ---
        run(T(2, 3, 4))
        m.eval()
        run(T(2, 3, 4))
        """,
    ),
    "tel_nograd": (
        2,
        "",
        """
        m = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval()
        def f(x): return m(x)
        def g(x):
            with torch.no_grad(): return run(x)
        ---
        g(T(2, 3, 4))
        run(T(2, 3, 4))
        """,
    ),
    "transformer": (
        1,
        "",
        """
        m = nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)
        def f(x, y): return m(x, y)
        ---
        run(T(2, 3, 4), T(2, 3, 4))
        """,
    ),
    "apply_init": (
        1,
        "",
        """
        def init(m):
            if isinstance(m, nn.Linear): log.append(m.in_features)
        m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        def f(x):
            m.apply(init)
            return m(x)
        ---
        run(T(2, 3))
        """,
    ),
    "get_sub": (
        1,
        "",
        """
        m = nn.Sequential(nn.Sequential(nn.Linear(3, 3)))
        def f(x):
            return m.get_submodule('0.0')(x), m.get_parameter('0.0.weight').sum(), str(m[0][0]), repr(m)
        ---
        run(T(2, 3))
        """,
    ),
    "no_grad_forward": (
        1,
        "",
        """
        class Net(nn.Module):
            @torch.no_grad()
            def forward(self, x): return x * 2
        m = Net()
        def f(x): return m(x)
        ---
        run(T(2, 3, grad=True)).requires_grad
        """,
    ),
    "stateless_functional_call": (
        1,
        "",
        """
        import warnings
        from torch.nn.utils import stateless
        m = nn.Linear(3, 2)
        def f(x):
            weights = {"weight": torch.ones(2, 3)}
            return stateless.functional_call(m, parameters_and_buffers=weights, args=(x,))
        def warned(x):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = run(x)
            return result, [str(one.message) for one in caught]
        ---
        warned(T(2, 3))
        warned(T(2, 3))
        """,
    ),
}
