"""Subclasses of torch.Tensor, __torch_function__, and torch's modes."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "store_by_a_mask_of_no_dimensions": (
        1,
        "",
        """
        def f(x, s):
            y, z = x * 2, s * 2
            y[s > 0.5] = s * 3
            y[..., s < 0.7, 0] = x[:, :1]
            z[z > 0] = 5.0
            y[True, s < 0] = 3.0
            return y.sin(), z
        ---
        x = T(3, 2, grad=True)
        for value in (1.0, 0.6, 0.2, -1.0):
            y, z = run(x, torch.tensor(value, requires_grad=True))
            (y.sum() + z).backward()
    """,
    ),
    "sub_tensor_plain": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return super().__torch_function__(func, types, args, kwargs or {})
            def twice(self): return self * 2
        s = T(3).as_subclass(S)
        def f(x, s):
            y = s + x
            return y, y.twice(), s.shape, type(y).__name__, isinstance(y, S), torch.relu(s), s.sum()
        ---
        run(T(3), s)
        """,
    ),
    "sub_tensor_sizes": (
        2,
        "",
        """
        class S(torch.Tensor): pass
        def f(s): return s.sin() * s.shape[0]
        ---
        run(T(3, 2).as_subclass(S))
        run(T(4, 2).as_subclass(S))
        run(T(5, 2).as_subclass(S))
        run(T(6, 2).as_subclass(S))
        """,
    ),
    "sub_tensor_default": (
        1,
        "",
        """
        class S(torch.Tensor):
            def twice(self): return self * 2
        s = T(3).as_subclass(S)
        def f(x, s):
            y = s + x
            return y, y.twice(), torch.cat([x, s])
        ---
        run(T(3), s)
        """,
    ),
    "sub_tensor_attr": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(func.__name__)
                ret = super().__torch_function__(func, types, args, kwargs or {})
                if isinstance(ret, S): ret.tag = 'made'
                return ret
        s = T(3).as_subclass(S)
        s.tag = 'in'
        def f(x, s):
            y = torch.relu(s) + x
            return y, y.tag, s.tag
        ---
        run(T(3), s)
        """,
    ),
    "sub_tensor_logic": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                if func is torch.add or func is torch.Tensor.add: return torch.sub(*[a.as_subclass(torch.Tensor) for a in args])
                return super().__torch_function__(func, types, args, kwargs)
        s = T(3).as_subclass(S)
        def f(x, s):
            return torch.add(x, s), s.add(x), s * 2
        ---
        run(T(3), s)
        """,
    ),
    "sub_tensor_inside": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return super().__torch_function__(func, types, args, kwargs or {})
        def f(x):
            s = x.as_subclass(S)
            t = (s * 2).as_subclass(torch.Tensor)
            return s + 1, t, type(t) is torch.Tensor
        ---
        run(T(3))
        """,
    ),
    "sub_tensor_method_override": (
        1,
        "",
        """
        class S(torch.Tensor):
            def sum(self): return 'my sum'
            def __add__(self, o): return 'my add'
            @property
            def prop(self): return self.shape[0] * 2
        s = T(3).as_subclass(S)
        def f(x, s):
            return s.sum(), s + 1, s.prop, x + 1
        ---
        run(T(3), s)
        """,
    ),
    "sub_tensor_wrapper": (
        1,
        "",
        """
        class W:
            def __init__(self, t): self.t = t
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                args = [a.t if isinstance(a, W) else a for a in args]
                return W(func(*args, **(kwargs or {})))
        w = W(T(3))
        def f(x, w):
            y = torch.add(w, x)
            z = torch.relu(y)
            return z.t, torch.cat([x, x])
        ---
        run(T(3), w)
        """,
    ),
    "sub_param": (
        1,
        "",
        """
        class P(nn.Parameter):
            def hi(self): return 'hi'
        p = P(T(3))
        def f(x, p):
            return x * p, p.hi(), isinstance(p, nn.Parameter)
        ---
        run(T(3), p)
        """,
    ),
    "tf_mode_inside": (
        1,
        None,
        """
        from torch.overrides import TorchFunctionMode
        class M(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func is torch.relu: return torch.sigmoid(*args)
                return func(*args, **(kwargs or {}))
        def f(x):
            y = x + 1
            with M():
                y = torch.relu(y)
            return y * 2
        ---
        run(T(3))
        """,
    ),
    "default_device": (
        1,
        "",
        """
        def f(x):
            with torch.device('cpu'):
                y = torch.ones(3)
            return x + y
        ---
        run(T(3))
        """,
    ),
    "disable_tf": (
        1,
        "",
        """
        class S(torch.Tensor):
            pass
        s = T(3).as_subclass(S)
        def f(x, s):
            with torch._C.DisableTorchFunctionSubclass():
                y = s + x
            return y
        ---
        run(T(3), s)
        """,
    ),
    "ts_ops": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        s = T(4, 3).as_subclass(S)
        def f(s):
            y = s[1:] * 2 + s[0]
            z = s.T @ y if False else s.sum(0)
            a, b = s.split(2)
            return y, z, s.T, a, b, [r for r in s[:2]], len(s), s.shape, s.dtype, s.dim(), s.size(0), s == s, -s, 2 - s, s > 0, s.max(0), torch.stack([s, s]), torch.where(s > 0, s, s * 2)
        ---
        run(s)
        """,
    ),
    "ts_inplace": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        s = T(3).as_subclass(S)
        def f(x, s):
            y = s.add_(1)
            s[0] = 5
            s += x
            z = s * 2
            z.mul_(3)
            w = z.add_(1)
            return y is s, w is z, z, type(w) is S
        ---
        run(T(3), s)
        s
        """,
    ),
    "ts_grad": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        def f(s, x):
            return (s * x).sum(), s * 2
        ---
        s = T(3, grad=True).as_subclass(S)
        l, y = run(s, T(3, grad=True))
        l.backward()
        """,
    ),
    "ts_param_grad": (
        1,
        "",
        """
        class P(nn.Parameter):
            extra = 3
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = P(torch.ones(3))
            def forward(self, x): return x * self.w * self.w.extra
        m = M()
        def f(x): return m(x).sum()
        ---
        run(T(3)).backward()
        m.w.grad
        run(T(3)).backward()
        m.w.grad
        """,
    ),
    "ts_module": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(getattr(func, '__name__', '?'))
                return super().__torch_function__(func, types, args, kwargs)
        m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3))
        s = T(2, 3).as_subclass(S)
        def f(s): return m(s)
        ---
        run(s)
        """,
    ),
    "ts_handlers": (
        1,
        "",
        """
        HANDLED = {}
        def implements(fn):
            def deco(g):
                HANDLED[fn] = g
                return g
            return deco
        class Diag:
            def __init__(self, n, v): self.n = n; self.v = v
            def tensor(self): return self.v * torch.eye(self.n)
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                if func not in HANDLED or not all(issubclass(t, (torch.Tensor, Diag)) for t in types):
                    return NotImplemented
                return HANDLED[func](*args, **(kwargs or {}))
        @implements(torch.mean)
        def mean(d): return float(d.v) / d.n
        @implements(torch.matmul)
        def mm(a, b):
            if isinstance(a, Diag) and isinstance(b, Diag): return Diag(a.n, a.v * b.v)
            t = lambda z: z.tensor() if isinstance(z, Diag) else z
            return torch.matmul(t(a), t(b))
        def f(x, d):
            e = torch.matmul(d, d)
            return torch.matmul(d, x), e, torch.mean(d)
        ---
        run(T(3), Diag(3, 2.0))
        """,
    ),
    "ts_handler_missing": (
        1,
        "UNCAPTURED_CALL",
        """
        class D:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None): return NotImplemented
        def f(x, d):
            try: torch.add(x, d)
            except TypeError as e: return x + 1, type(e).__name__
        ---
        run(T(3), D())
        """,
    ),
    "ts_two_classes": (
        1,
        "",
        """
        class A(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(('A', [t.__name__ for t in types]))
                return super().__torch_function__(func, types, args, kwargs)
        class B(A):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(('B', [t.__name__ for t in types]))
                return super().__torch_function__(func, types, args, kwargs)
        a, b = T(3).as_subclass(A), T(3).as_subclass(B)
        def f(a, b): return torch.add(a, b), a * 2
        ---
        run(a, b)
        """,
    ),
    "ts_another_class_in_another_call": (
        3,
        "",
        """
        class A(torch.Tensor): pass
        class B(torch.Tensor): pass
        def f(x): return x * 2
        ---
        run(T(3).as_subclass(A))
        run(T(3).as_subclass(B))
        run(T(3))
        """,
    ),
    "ts_siblings": (
        1,
        "UNCAPTURED_CALL",
        """
        class A(torch.Tensor): pass
        class B(torch.Tensor): pass
        a, b = T(3).as_subclass(A), T(3).as_subclass(B)
        def f(a, b):
            try: return a + b
            except TypeError as e: return type(e).__name__, a * 2
        ---
        run(a, b)
        """,
    ),
    "ts_attr_get": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(func.__name__ if func.__name__ != '__get__' else 'get ' + func.__self__.__name__)
                return super().__torch_function__(func, types, args, kwargs)
        s = T(3).as_subclass(S)
        def f(s): return s.shape, s.dtype, s.requires_grad, s.T, s.data, s.grad, s.size(), s.ndim
        ---
        run(s)
        """,
    ),
    "ts_metadata": (
        1,
        "",
        """
        class S(torch.Tensor):
            @staticmethod
            def __new__(cls, x, meta=None):
                return x.as_subclass(cls)
            def __init__(self, x, meta=None):
                self.meta = meta
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                ret = super().__torch_function__(func, types, args, kwargs)
                metas = [a.meta for a in args if isinstance(a, S) and hasattr(a, 'meta')]
                if isinstance(ret, S) and metas: ret.meta = metas[0]
                return ret
        s = S(T(3), 'm')
        def f(x, s):
            t = S(x * 2, meta='new')
            return s + 1, t, t.meta, (t * s).meta, (s * t).meta
        ---
        run(T(3), s)
        """,
    ),
    "ts_new_data": (
        1,
        "",
        """
        class S(torch.Tensor):
            @staticmethod
            def __new__(cls, x): return torch.Tensor._make_subclass(cls, x)
        def f(x):
            s = S(x + 1)
            return s, s * 2
        ---
        run(T(3))
        """,
    ),
    "ts_new_default": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        def f(x):
            y = x + 1
            s = S([1.0, 2.0, 3.0])
            return s * y
        ---
        run(T(3))
        """,
    ),
    "ts_property": (
        1,
        "NOT_CALLABLE",
        """
        class S(torch.Tensor):
            @property
            def half(self): return self / 2
            @classmethod
            def cm(cls): return cls.__name__
            @staticmethod
            def sm(v): return v + 1
            k = 7
            def __repr__(self): return 'S!'
            def __len__(self): return 99
            def __getitem__(self, i): return 'item'
            def __matmul__(self, o): return 'mm'
            def __call__(self, v): return v * 2
        s = T(3).as_subclass(S)
        def f(x, s): return s.half, s.cm(), s.sm(x), s.k, s[0], s @ x, s(3), repr(s)
        ---
        run(T(3), s)
        """,
    ),
    "ts_guard_type": (
        3,
        "",
        """
        class S(torch.Tensor): pass
        def f(s): return s * 2
        ---
        run(T(3).as_subclass(S))
        run(T(3))
        run(T(3).as_subclass(S))
        run(T(4).as_subclass(S))
        """,
    ),
    "ts_class_changes": (
        2,
        "",
        """
        class S(torch.Tensor):
            def m(self): return self + 1
        s = T(3).as_subclass(S)
        def f(s): return s.m()
        ---
        run(s)
        S.m = lambda self: self + 2
        run(s)
        """,
    ),
    "ts_stored": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        class H: pass
        h = H()
        def f(x, h):
            h.s = x.as_subclass(S)
            h.t = h.s * 2
            h.l = [h.t, h.t]
            return h.l[0] is h.t, type(h.t) is S
        ---
        run(T(3), h)
        h.l[0] is h.t
        """,
    ),
    "ts_break": (
        2,
        "REQUESTED_BREAK",
        """
        class S(torch.Tensor): pass
        s = T(3).as_subclass(S)
        def f(s):
            y = s * 2
            torch._dynamo.graph_break()
            return y + s, type(y) is S
        ---
        run(s)
        """,
    ),
    "ts_disable_ctx": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(func.__name__)
                with torch._C.DisableTorchFunctionSubclass():
                    r = func(*args, **(kwargs or {}))
                return r
        s = T(3).as_subclass(S)
        def f(s):
            with torch._C.DisableTorchFunctionSubclass():
                y = s + 1
                z = torch.relu(s)
            return y, z, s * 2
        ---
        run(s)
        """,
    ),
    "ts_disable_all": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(func.__name__)
                with torch._C.DisableTorchFunction():
                    r = func(*args, **(kwargs or {}))
                return r.as_subclass(cls) if isinstance(r, torch.Tensor) else r
        s = T(3).as_subclass(S)
        def f(s, x):
            with torch._C.DisableTorchFunction():
                y = s + 1
                with torch._C.DisableTorchFunctionSubclass():
                    z = torch.relu(x) + s
                w = s * z
            return y, z, w, s * 2, x + 1
        ---
        run(s, T(3))
        """,
    ),
    "ts_disable_all_with_devices_and_modes": (
        None,
        "",
        """
        from torch.overrides import TorchFunctionMode
        class Doubles(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {})) * 2
        def f(x):
            with torch._C.DisableTorchFunction(), torch.device("meta"):
                a = torch.ones(3) + x
            with torch.device("meta"), torch._C.DisableTorchFunction():
                b = torch.ones(3) + x
            with Doubles():
                c = x.sin()
                with torch._C.DisableTorchFunction():
                    d = x.sin()
            with torch._C.DisableTorchFunction(), Doubles():
                e = x.sin()
            return a, b, c, d, e, x.cos()
        ---
        run(T(3))
        """,
    ),
    "ts_disable_all_inside_of_modes": (
        1,
        "",
        """
        from torch.overrides import TorchFunctionMode
        class Logs(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                log.append(func.__name__)
                return func(*args, **(kwargs or {}))
        class Shifts(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                found = func(*args, **(kwargs or {}))
                return found + 1 if func is torch.cos else found
        def f(x):
            with Logs(), Shifts():
                y = torch.sin(x)
                with torch._C.DisableTorchFunction():
                    z = torch.cos(y)
                    n = torch._C._len_torch_function_stack(), torch._C._is_torch_function_mode_enabled()
                with torch._C.DisableTorchFunctionSubclass():
                    w = torch.cos(z)
                u = torch.cos(w)
            return y, z, w, u, n, torch._C._len_torch_function_stack()
        ---
        run(T(3))
        log
        """,
    ),
    "ts_disable_break": (
        4,
        "REQUESTED_BREAK UNCAPTURED_CALL",
        """
        class S(torch.Tensor): pass
        s = T(3).as_subclass(S)
        def f(s):
            x = s * 1
            with torch._C.DisableTorchFunctionSubclass():
                y = s + 1
                torch._dynamo.graph_break()
                z = s + 2
            return y, z, s * 2, x
        ---
        run(s)
        """,
    ),
    "ts_torch_dispatch": (
        1,
        "",
        """
        class S(torch.Tensor):
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                log.append(str(func))
                return func(*[a.as_subclass(torch.Tensor) if isinstance(a, S) else a for a in args], **(kwargs or {}))
        def f(x): return x + 1
        ---
        run(T(3))
        """,
    ),
    "ts_views": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        s = T(4).as_subclass(S)
        def f(s):
            v = s.view(2, 2)
            v[0] = 9
            p = s.as_subclass(torch.Tensor)
            p[3] = 7
            return v, p, type(p) is torch.Tensor
        ---
        run(s)
        s
        """,
    ),
    "ts_list_arg": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        s = T(4).as_subclass(S)
        def f(x, s): return torch.cat((x, s)), torch.stack([s, s]), torch.cat([x, x]), torch.einsum('i,i->', s, s)
        ---
        run(T(4), s)
        """,
    ),
    "ts_out_kw": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        s = T(4).as_subclass(S)
        def f(x, s): return torch.clamp(s, min=0.0), torch.sum(input=s, dim=0), s.sum(dim=0, keepdim=True), s.to(torch.float64), s.float() is s
        ---
        run(T(4), s)
        """,
    ),
    "ts_functional": (
        1,
        "",
        """
        class S(torch.Tensor): pass
        s = T(2, 4).as_subclass(S)
        F = torch.nn.functional
        def f(s): return F.softmax(s, -1), F.gelu(s), F.linear(s, torch.ones(3, 4)), F.dropout(s, 0.5, False), F.layer_norm(s, (4,)), F.mse_loss(s, s), F.one_hot(s.abs().long() % 2, 2), F.interpolate(s[None], scale_factor=2.0)
        ---
        run(s)
        """,
    ),
    "ts_mode_outside": (
        1,
        "",
        """
        from torch.overrides import TorchFunctionMode
        class M(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                log.append(func.__name__)
                return func(*args, **(kwargs or {}))
        def f(x): return torch.relu(x) + 1
        def g(x):
            with M(): return run(x)
        ---
        g(T(3))
        run(T(3))
        g(T(3))
        """,
    ),
    "td_mode_outside": (
        1,
        "",
        """
        from torch.utils._python_dispatch import TorchDispatchMode
        class M(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                log.append(str(func))
                return func(*args, **(kwargs or {}))
        def f(x): return torch.relu(x) + 1
        def g(x):
            with M(): return run(x)
        ---
        g(T(3))
        run(T(3))
        g(T(3))
        """,
    ),
    "mode_changes": (
        1,
        "",
        """
        from torch.overrides import TorchFunctionMode
        class M(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func is torch.relu: return torch.sigmoid(*args)
                return func(*args, **(kwargs or {}))
        class N(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func is torch.relu: return torch.tanh(*args)
                return func(*args, **(kwargs or {}))
        def h(x): return torch.relu(x)
        def f(x): return h(x) + 1
        def g(x, m):
            with m: return run(x)
        ---
        run(T(3))
        g(T(3), M())
        g(T(3), N())
        [g(T(3), M()) for _ in range(12)][0]
        run(T(3))
        """,
    ),
}
