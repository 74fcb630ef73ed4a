"""Every kind of outside value that a function reads is changed between calls: it notices."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "global_int": """
        G = 3
        def f(x): return x * G
        ---
        run(T(3))
        run(T(3))
        G = 4
        run(T(3))
        G = 4.0
        run(T(3))
        G = True
        run(T(3))
        del G
        run(T(3))
        G = 3
        run(T(3))
    """,
    "global_int_float_bool_type": """
        G = 1
        def f(x): return x * 2, G, type(G), G / 2
        ---
        run(T(3))
        G = 1.0
        run(T(3))
        G = True
        run(T(3))
        G = 0.0
        run(T(3))
        G = -0.0
        run(T(3))
        G = float('nan')
        run(T(3))
        run(T(3))
        G = 'a'
        run(T(3))
    """,
    "global_float_in_tensor_op": """
        G = 0.0
        def f(x): return x / G, torch.full((2,), G)
        ---
        run(T(3))
        G = -0.0
        run(T(3))
        G = 1
        run(T(3))
    """,
    "global_shadows_builtin": """
        def f(x): return x * len([1, 2])
        ---
        run(T(3))
        len = lambda x: 17
        run(T(3))
        del len
        run(T(3))
    """,
    "global_list": """
        G = [1, 2, 3]
        def f(x):
            for g in G: x = x * g
            return x
        ---
        run(T(3))
        G.append(4)
        run(T(3))
        G[0] = 9
        run(T(3))
        G.clear()
        run(T(3))
        G = (5,)
        run(T(3))
    """,
    "global_list_len_only": """
        G = [1, 2, 3]
        def f(x): return x * len(G) + (1 if G else 2)
        ---
        run(T(3))
        G[0] = 7
        run(T(3))
        G.append(4)
        run(T(3))
        G.clear()
        run(T(3))
    """,
    "global_dict": """
        G = {'a': 1, 'b': 2}
        def f(x):
            for k, v in G.items(): x = x * 2 + v
            return x, list(G)
        ---
        run(T(3))
        G['a'] = 4
        run(T(3))
        G['c'] = 5
        run(T(3))
        del G['a']
        run(T(3))
        G['a'] = 4
        run(T(3))
    """,
    "dict_order": """
        def f(x, d): return [x * v for v in d.values()], list(d), next(iter(d))
        ---
        run(T(3), {'a': 1, 'b': 2})
        run(T(3), {'b': 2, 'a': 1})
        run(T(3), {'a': 1, 'b': 2, 'c': 3})
        run(T(3), {1: 1, 'b': 2})
        run(T(3), {True: 1, 'b': 2})
        run(T(3), {1.0: 1, 'b': 2})
        run(T(3), collections.OrderedDict(a=1, b=2))
        run(T(3), collections.defaultdict(int, a=1, b=2))
    """,
    "dict_membership": """
        def f(x, d):
            y = x + 1 if 'k' in d else x - 1
            return y * d.get('v', 5)
        ---
        run(T(3), {})
        run(T(3), {'k': 0})
        run(T(3), {'v': 0})
        run(T(3), {'v': 0, 'k': 1})
        run(T(3), {'z': 0})
    """,
    "dict_missing_key_appears": """
        D = {}
        def f(x):
            try: return x * D['k']
            except KeyError as e: return x + 1, e.args
        ---
        run(T(3))
        D['k'] = 3
        run(T(3))
        del D['k']
        run(T(3))
    """,
    "set_argument": """
        S = {1, 2}
        def f(x): return x * len(S) + (1 in S) + (3 in S)
        ---
        run(T(3))
        S.add(3)
        run(T(3))
        S.remove(1)
        run(T(3))
        S = frozenset([1])
        run(T(3))
    """,
    "set_same_size": """
        S = {1, 2}
        def f(x): return x * 2, 1 in S, sorted(S)
        ---
        run(T(3))
        S.remove(1); S.add(7)
        run(T(3))
    """,
    "function_default": """
        def g(x, y=2, *, z=3): return x * y + z
        def f(x): return g(x)
        ---
        run(T(3))
        g.__defaults__ = (5,)
        run(T(3))
        g.__kwdefaults__ = {'z': 7}
        run(T(3))
        g.__kwdefaults__['z'] = 8
        run(T(3))
        g.__defaults__ = None
        run(T(3))
        g.__kwdefaults__ = None
        run(T(3))
    """,
    "own_defaults": """
        def f(x, y=2, *, z=3): return x * y + z
        ---
        run(T(3))
        f.__defaults__ = (5,)
        run(T(3))
        f.__kwdefaults__ = {'z': 9}
        run(T(3))
        f.__defaults__ = (None,)
        run(T(3))
        f.__defaults__ = ()
        run(T(3))
    """,
    "default_list_mutated": """
        def f(x, acc=[]):
            acc.append(len(acc))
            return x * len(acc), acc
        ---
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3), [5])
        run(T(3))
    """,
    "function_code": """
        def g(x): return x * 2
        def h(x): return x * 3
        def f(x): return g(x)
        ---
        run(T(3))
        g.__code__ = h.__code__
        run(T(3))
        g = lambda x: x - 1
        run(T(3))
    """,
    "own_code": """
        def h(x): return x * 3
        def f(x): return x * 2
        ---
        run(T(3))
        f.__code__ = h.__code__
        run(T(3))
    """,
    "closure_cell": """
        def make():
            n = 2
            def inner(x): return x * n
            def set_n(v):
                nonlocal n
                n = v
            return inner, set_n
        f, set_n = make()
        ---
        run(T(3))
        set_n(3)
        run(T(3))
        set_n(3.5)
        run(T(3))
        set_n(T(1))
        run(T(3))
        set_n(None)
        run(T(3))
    """,
    "closure_cell_of_callee": """
        def make(n):
            def inner(x): return x * n
            return inner
        g = make(2)
        def f(x): return g(x)
        ---
        run(T(3))
        g = make(3)
        run(T(3))
        g.__closure__[0].cell_contents = 11
        run(T(3))
        del g.__closure__[0].cell_contents
        run(T(3))
    """,
    "different_closures_same_code": """
        def make(n):
            def inner(x): return x * n
            return inner
        def f(g, x): return g(x)
        ---
        run(make(2), T(3))
        run(make(3), T(3))
        run(make(2), T(3))
        run(make('a'), T(3))
    """,
    "class_attribute": """
        class A:
            k = 2
        class B(A): pass
        b = B()
        def f(x): return x * b.k
        ---
        run(T(3))
        A.k = 3
        run(T(3))
        B.k = 4
        run(T(3))
        b.k = 5
        run(T(3))
        del b.k
        run(T(3))
        del B.k
        run(T(3))
        del A.k
        run(T(3))
    """,
    "class_attribute_direct": """
        class A: k = 2
        def f(x): return x * A.k
        ---
        run(T(3))
        A.k = 3
        run(T(3))
        class A: k = 7
        run(T(3))
    """,
    "property": """
        class A:
            def __init__(self): self._v = 2
            @property
            def v(self): return self._v * 10
        a = A()
        def f(x): return x * a.v
        ---
        run(T(3))
        a._v = 3
        run(T(3))
        A.v = property(lambda self: 5)
        run(T(3))
        A.v = 6
        run(T(3))
        a.v = 7
        run(T(3))
    """,
    "descriptor": """
        class D:
            def __init__(self): self.n = 1
            def __get__(self, obj, cls): return self.n if obj is None else self.n + obj.m
        class A:
            d = D()
            def __init__(self): self.m = 10
        a = A()
        def f(x): return x * a.d + A.d
        ---
        run(T(3))
        A.__dict__['d'].n = 5
        run(T(3))
        a.m = 20
        run(T(3))
        D.__set__ = lambda self, obj, v: None
        a.__dict__['d'] = 100
        run(T(3))
        del D.__set__
        run(T(3))
    """,
    "instance_attribute_shadows_method": """
        class A:
            def m(self, x): return x + 1
        a = A()
        def f(x): return a.m(x)
        ---
        run(T(3))
        a.m = lambda x: x * 100
        run(T(3))
        del a.m
        run(T(3))
        A.m = lambda self, x: x - 1
        run(T(3))
    """,
    "getattr_hook_appears": """
        class A: pass
        a = A()
        def f(x): return x * getattr(a, 'k', 3)
        ---
        run(T(3))
        a.k = 4
        run(T(3))
        del a.k
        A.__getattr__ = lambda self, name: 9
        run(T(3))
        del A.__getattr__
        run(T(3))
    """,
    "hasattr": """
        class A: pass
        a = A()
        def f(x): return x * 2 if hasattr(a, 'flag') else x * 3
        ---
        run(T(3))
        a.flag = None
        run(T(3))
        del a.flag
        run(T(3))
        A.flag = 1
        run(T(3))
    """,
    "class_of_instance_reassigned": """
        class A:
            def m(self, x): return x + 1
        class B:
            def m(self, x): return x * 5
        a = A()
        def f(x): return a.m(x), isinstance(a, B), type(a) is A
        ---
        run(T(3))
        a.__class__ = B
        run(T(3))
    """,
    "bases_reassigned": """
        class P:
            def m(self, x): return x + 1
        class Q:
            def m(self, x): return x * 5
        class A(P): pass
        a = A()
        def f(x): return a.m(x)
        ---
        run(T(3))
        A.__bases__ = (Q,)
        run(T(3))
    """,
    "subclass_argument": """
        class A:
            k = 1
        class B(A): k = 2
        def f(x, a): return x * a.k, isinstance(a, B), type(a).__name__
        ---
        run(T(3), A())
        run(T(3), B())
        run(T(3), A())
    """,
    "int_and_bool_arguments": """
        def f(x, n): return x * n, n, type(n)
        ---
        run(T(3), 1)
        run(T(3), True)
        run(T(3), 1.0)
        run(T(3), 2)
        run(T(3), None)
    """,
    "string_and_bytes": """
        def f(x, s): return x * len(s), s + s, f'{s!r}'
        ---
        run(T(3), 'ab')
        run(T(3), 'cd')
        run(T(3), b'ab')
        run(T(3), ['a', 'b'])
        run(T(3), ('a', 'b'))
    """,
    "int_subclass": """
        class I(int):
            def __mul__(self, o): return 100
        def f(x, n): return x + n, n * 2
        ---
        run(T(3), 2)
        run(T(3), I(2))
        run(T(3), I(3))
        run(T(3), 2)
    """,
    "enums": """
        class E(enum.Enum):
            A = 1
            B = 2
        class I(enum.IntEnum):
            A = 1
            B = 2
        def f(x, e): return (x * e.value, e.name, e is E.A, e == I.A, e)
        ---
        run(T(3), E.A)
        run(T(3), E.B)
        run(T(3), I.A)
        run(T(3), I.B)
        run(T(3), E.A)
    """,
    "dtype_device": """
        D = torch.float64
        dev = torch.device('cpu')
        def f(x): return x.to(D), torch.zeros(2, dtype=D, device=dev), D.is_floating_point
        ---
        run(T(3))
        D = torch.float32
        run(T(3))
        D = torch.int32
        run(T(3))
        dev = torch.device('meta')
        run(T(3))[0]
    """,
    "tensor_metadata": """
        def f(x):
            k = 1 if x.dtype == torch.float32 else 2
            return x * k + x.shape[0], x.is_contiguous(), x.stride(), x.dim(), x.requires_grad
        ---
        run(T(3, 4))
        run(T(4, 3).t())
        run(T(3, 4, dtype=torch.float64))
        run(T(3, 4, dtype=torch.int64))
        run(T(3, 4, grad=True))
        run(T(12))
        run(T(5, 4))
        run(T(6, 4)[::2])
        run(T(0, 4))
        run(T(1, 4))
        run(T())
    """,
    "storage_offset": """
        p = nn.Parameter(T(3))
        def f(x):
            return x * p, x.storage_offset(), x[1:].storage_offset(), p.storage_offset()
        ---
        run(T(10)[:3])
        run(T(10)[3:6])
        run(T(10)[2:5])
        p.data = T(5)[2:]
        run(T(10)[2:5])
    """,
    "storage_offset_of_as_strided": """
        def f(x):
            torch.as_strided(x.diagonal(), (2,), (1,), 0).add_(1.0)
            return x, x.as_strided((2,), (2,), storage_offset=1), x.as_strided((2,), (1,))
        ---
        run(T(2, 4))
        x = T(4, 4)
        run(x[1:3]), x
        run(x[2:]), x
        run(T(2, 4))
    """,
    "tensor_or_other": """
        def f(x, y):
            if y is None: return x * 2
            return x + y
        ---
        run(T(3), None)
        run(T(3), T(3))
        run(T(3), 2)
        run(T(3), 2.5)
        run(T(3), True)
        run(T(3), None)
        run(None, None)
        run(T(3), nn.Parameter(T(3)))
    """,
    "tensor_subclass": """
        class Sub(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                log.append(getattr(func, '__name__', str(func)))
                return super().__torch_function__(func, types, args, kwargs or {})
        def f(x): return x * 2 + 1
        ---
        run(T(3))
        log.clear()
        run(T(3).as_subclass(Sub))
        log[0]
        run(T(3))
    """,
    "requires_grad_flips": """
        w = T(3)
        def f(x):
            y = x * w
            return y, y.requires_grad
        ---
        run(T(3))
        w.requires_grad_()
        run(T(3))
        run(T(3))[0].sum().backward()
        w = w.detach()
        run(T(3))
    """,
    "grad_mode": """
        def f(x):
            y = x * 2
            return y, torch.is_grad_enabled(), y.requires_grad
        ---
        run(T(3, grad=True))
        with torch.no_grad(): r = run(T(3, grad=True))
        with torch.inference_mode(): r = run(T(3, grad=True))
        run(T(3, grad=True))
        run(T(3))
    """,
    "default_dtype": """
        def f(x): return x + 1, torch.ones(2), torch.tensor(1.5), torch.get_default_dtype()
        ---
        run(T(3))
        torch.set_default_dtype(torch.float64); r = run(T(3))
        run(T(3))
    """,
    "autocast": """
        def f(x): return x @ x, torch.is_autocast_enabled('cpu')
        ---
        run(T(3, 3))
        with torch.autocast('cpu', dtype=torch.bfloat16): r = run(T(3, 3))
        run(T(3, 3))
        with torch.autocast('cpu', dtype=torch.float16): r = run(T(3, 3))
        with torch.autocast('cpu', enabled=False): r = run(T(3, 3))
    """,
    "default_device_context": """
        def f(x): return x + 1, torch.ones(2)
        ---
        run(T(3))
        with torch.device('meta'): r = run(torch.ones(3, device='cpu'))[1].device
        run(T(3))
    """,
    "aliased_arguments": """
        def f(x, y):
            x.add_(1)
            return x * y
        ---
        run(T(3), T(3))
        a = T(3)
        run(a, a)
        run(a, a)
        run(T(3), T(3))
        b = T(4)
        run(b[:3], b[1:])
        run(b, b.detach())
    """,
    "aliased_lists": """
        def f(x, p, q):
            p.append(1)
            return x * len(q), p is q
        ---
        a, b = [], []
        run(T(3), a, b)
        run(T(3), a, a)
        run(T(3), b, b)
        run(T(3), a, b)
    """,
    "aliased_lists_first": """
        def f(x, p, q):
            p.append(1)
            return x * len(q), p is q
        ---
        a, b = [], []
        run(T(3), a, a)
        run(T(3), a, b)
        run(T(3), b, a)
    """,
    "aliased_dicts_and_objects": """
        class A:
            def __init__(self): self.v = 1
        def f(x, p, q):
            p.v = p.v + 1
            return x * q.v, p is q, p == q
        ---
        a, b = A(), A()
        run(T(3), a, b)
        a.v = b.v = 1
        run(T(3), a, a)
        a.v = b.v = 1
        run(T(3), b, a)
    """,
    "same_tensor_in_list": """
        def f(xs): return xs[0] * 2, xs[0] is xs[1], [a is b for a in xs for b in xs]
        ---
        run([T(2), T(2)])
        a = T(2)
        run([a, a])
        run([a, T(2)])
        run([a])
    """,
    "identity_of_literals": """
        K = "abab"
        def f(x, a, b): return x + 1, a is b, a is K, a == b, a is not b
        ---
        one, other = "ab" * 2, "".join(["ab"] * 2)
        run(T(3), one, one)
        run(T(3), one, other)
        run(T(3), other, other)
        run(T(3), K, K)
        run(T(3), K, other)
        n = int("1000")
        run(T(3), n, n)
        run(T(3), n, int("1000"))
        run(T(3), 5, int("5"))
        run(T(3), 1.5, float("1.5"))
    """,
    "identity_of_arguments": """
        S = object()
        def f(x, s): return x * (2 if s is S else 3)
        ---
        run(T(3), S)
        run(T(3), object())
        run(T(3), S)
        S = object()
        run(T(3), S)
    """,
    "branches_on_tensors": """
        K, J = 0, 2
        def f(x, w):
            if x.sum() > K:
                y = x * w
            else:
                y = x + w * J
            return y.relu()
        ---
        run(T(3), T(3)); run(T(3) + 5, T(3))
        J = 3
        run(T(3), T(3))
        K = -100.0
        run(T(3), T(3))
        K = torch.tensor(100.)
        run(T(3), T(3))
        w = T(3, grad=True); r = run(T(3) + 200, w); r.sum().backward()
        with torch.no_grad(): r = run(T(3) + 200, w)
        a = T(3); r = run(a, a)
        run(T(3).double(), T(3))
        J = T(1)
        run(T(3), T(3))
    """,
    "overlaps_of_written_inputs": """
        def f(x, y, z):
            x.add_(1)
            y.mul_(2)
            return x + y, z + x.sum()
        def A(): return torch.arange(12.)
        ---
        a = A(); run(a[:4], a[4:8], a[8:])
        a = A(); run(a[:4], a[2:6], a[8:])
        a = A(); v = a[:4]; run(v, v, a[:4])
        a = A(); run(a[::3], a[1::3], a[2::3])
        a = A(); run(a[::3], a[1::3], a[:4])
        a = A(); run(a.view(3, 4)[:, :2], a.view(3, 4)[:, 2:], a.view(3, 4)[:, 1:3])
        a = A(); run(a, torch.from_numpy(a.numpy()), a)
        a = A(); run(a.detach(), a, a.data)
    """,
    "kinds_of_equal_numbers": """
        class I(int): pass
        class E(enum.IntEnum): A = 2
        class S(str): pass
        def f(x, n): return x + 1, type(n).__name__, n == 2, f'{n}', {2: 'two'}.get(n)
        ---
        run(T(3), 2)
        run(T(3), I(2))
        run(T(3), I(3))
        run(T(3), E.A)
        run(T(3), 2.0)
        run(T(3), S('2'))
        run(T(3), '2')
        I.__eq__ = lambda s, o: False; I.__hash__ = int.__hash__; run(T(3), I(2))
    """,
}
