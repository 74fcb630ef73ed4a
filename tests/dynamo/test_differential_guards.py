"""For every kind of outside value that a function reads: change it between calls, and the compiled function notices."""

from __future__ import annotations

import pytest

from tests.dynamo.differential import check

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
    "nested_containers": """
        def f(x, c): return x * c[0]['a'][1] + len(c[1])
        ---
        run(T(3), [{'a': (1, 2)}, []])
        run(T(3), [{'a': (1, 3)}, []])
        run(T(3), [{'a': [1, 2]}, []])
        run(T(3), [{'a': (1, 2)}, [1]])
        run(T(3), [{'a': (1, 2)}, ()])
        run(T(3), ({'a': (1, 2)}, []))
        run(T(3), [{'a': (1, 2)}, [], []])
        run(T(3), [{'a': (1,)}, []])
        run(T(3), [{}, []])
    """,
    "module_global_function_replaced": """
        import types
        mod = types.ModuleType('mod')
        mod.k = 2
        mod.fn = lambda x: x + 1
        def f(x): return mod.fn(x) * mod.k
        ---
        run(T(3))
        mod.k = 3
        run(T(3))
        mod.fn = lambda x: x + 2
        run(T(3))
        del mod.k
        run(T(3))
    """,
    "namedtuple_and_dataclass": """
        P = collections.namedtuple('P', 'a b')
        @dataclasses.dataclass
        class Q:
            a: int
            b: int = 5
        def f(x, p): return x * p.a + p.b, p
        ---
        run(T(3), P(1, 2))
        run(T(3), P(2, 2))
        run(T(3), Q(1, 2))
        run(T(3), Q(1))
        run(T(3), P(1.0, T(3)))
    """,
    "partial": """
        def g(x, a, b=1): return x * a + b
        p = functools.partial(g, a=2)
        def f(x): return p(x)
        ---
        run(T(3))
        p = functools.partial(g, a=3)
        run(T(3))
        p.keywords['b'] = 10
        run(T(3))
        p = functools.partial(g, T(3), 3)
        run(T(3))
    """,
    "slots": """
        class A:
            __slots__ = ('v', 'w')
        a = A(); a.v = 2
        def f(x):
            y = x * a.v
            a.w = a.v + 1
            return y
        ---
        run(T(3))
        a.v = 4
        run(T(3))
        del a.v
        run(T(3))
    """,
    "range_and_slice_arguments": """
        def f(x, r, s): return [x * i for i in r], x[s]
        ---
        run(T(5), range(2), slice(1, 3))
        run(T(5), range(3), slice(1, 3))
        run(T(5), range(0, 6, 3), slice(None, 4, 2))
        run(T(5), [0, 1], 2)
    """,
    "iterator_argument": """
        def f(x, it):
            x = x * 2
            for i in it: x = x + i
            return x
        ---
        run(T(3), iter([1, 2]))
        run(T(3), iter([1, 2, 3]))
        run(T(3), (i for i in range(3)))
        it = iter([5, 6])
        run(T(3), it)
        run(T(3), it)
        run(T(3), zip([1], [2])) if False else None
        run(T(3), map(abs, [-1]))
        run(T(3), [7])
    """,
    "len_override": """
        class L(list):
            def __len__(self): return 42
        def f(x, l): return x * len(l), bool(l), list(l)
        ---
        run(T(3), [1])
        run(T(3), L([1]))
        run(T(3), [])
        run(T(3), L())
    """,
    "bool_override": """
        class A:
            def __init__(self, b): self.b = b
            def __bool__(self): return self.b
        def f(x, a): return x + 1 if a else x - 1
        ---
        run(T(3), A(True))
        run(T(3), A(False))
        run(T(3), None)
        run(T(3), 1)
        A.__bool__ = lambda self: True
        run(T(3), A(False))
    """,
    "eq_override": """
        class A:
            def __init__(self, v): self.v = v
            def __eq__(self, o): return self.v == o
            def __hash__(self): return 1
        a = A(1)
        def f(x, k): return x * 2 if a == k else x * 3
        ---
        run(T(3), 1)
        run(T(3), 2)
        a.v = 2
        run(T(3), 2)
        A.__eq__ = lambda s, o: False
        run(T(3), 2)
    """,
    "callable_object": """
        class A:
            def __init__(self, k): self.k = k
            def __call__(self, x): return x * self.k
        a = A(2)
        def f(x): return a(x)
        ---
        run(T(3))
        a.k = 3
        run(T(3))
        A.__call__ = lambda self, x: x
        run(T(3))
        a.__call__ = lambda x: x * 50
        run(T(3))
    """,
    "self_argument": """
        class A:
            k = 1
            def __init__(self, k): self.j = k
            def m(self, x): return x * self.k * self.j
        a, b = A(2), A(3)
        f = A.m
        ---
        run(a, T(3))
        run(b, T(3))
        b.k = 9
        run(b, T(3))
        A.k = 5
        run(a, T(3))
        run(b, T(3))
    """,
    "environment": """
        import os
        os.environ.pop('FRAMEGRAPH_TEST', None)
        def f(x): return x * int(os.environ.get('FRAMEGRAPH_TEST', '2'))
        ---
        run(T(3))
        os.environ['FRAMEGRAPH_TEST'] = '5'
        run(T(3))
        del os.environ['FRAMEGRAPH_TEST']
        run(T(3))
    """,
    "lru_cached_function": """
        K = [2]
        @functools.lru_cache(maxsize=None)
        def g(n): return n * K[0]
        def f(x, n): return x * g(n)
        ---
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 3)
    """,
    "cached_property": """
        class A:
            def __init__(self): self.n = 0
            @functools.cached_property
            def v(self):
                self.n += 1
                return self.n * 10
        a = A()
        def f(x): return x * a.v
        ---
        run(T(3))
        run(T(3))
        del a.v
        run(T(3))
        run(T(3))
    """,
    "inner_class_constants": """
        class Cfg:
            class Inner: k = 2
            layers = [1, 2]
            table = {'a': 1}
        def f(x):
            for l in Cfg.layers: x = x * l
            return x + Cfg.Inner.k + Cfg.table['a']
        ---
        run(T(3))
        Cfg.Inner.k = 3
        run(T(3))
        Cfg.layers.append(5)
        run(T(3))
        Cfg.table['a'] = 50
        run(T(3))
        Cfg.table = collections.defaultdict(lambda: 4)
        run(T(3))
    """,
    "staticmethod_classmethod": """
        class A:
            k = 3
            @staticmethod
            def s(x): return x + 1
            @classmethod
            def c(cls, x): return x * cls.k
        class B(A): k = 4
        b = B()
        def f(x): return b.s(x) + b.c(x) + A.c(x)
        ---
        run(T(3))
        A.k = 10
        run(T(3))
        B.k = 11
        run(T(3))
        A.s = staticmethod(lambda x: x - 5)
        run(T(3))
        B.c = classmethod(lambda cls, x: x)
        run(T(3))
    """,
    "super_call": """
        class A:
            def m(self, x): return x + 1
        class B(A):
            def m(self, x): return super().m(x) * 2
        b = B()
        def f(x): return b.m(x)
        ---
        run(T(3))
        A.m = lambda self, x: x + 100
        run(T(3))
        class C(A):
            def m(self, x): return x * 0
        B.__bases__ = (C,)
        run(T(3))
    """,
    "tensor_global_replaced": """
        W = T(3)
        def f(x): return x * W
        ---
        run(T(3))
        W = T(3) + 1
        run(T(3))
        W.add_(5)
        run(T(3))
        W = T(1)
        run(T(3))
        W = 3
        run(T(3))
        W = W
        run(T(3))
    """,
    "tensor_data_and_attributes": """
        W = T(3)
        W.tag = 2
        def f(x): return x * W * W.tag
        ---
        run(T(3))
        W.tag = 3
        run(T(3))
        W.data = T(3) * 100
        run(T(3))
        del W.tag
        run(T(3))
        W.data = T(1)
        W.tag = 3
        run(T(3))
    """,
    "grad_field": """
        W = T(3, grad=True)
        def f(x):
            if W.grad is None: return x * 2
            return x + W.grad
        ---
        run(T(3))
        W.sum().backward()
        run(T(3))
        W.grad = None
        run(T(3))
    """,
    "tensor_layout": """
        def f(x, i):
            return x.sum(), x.is_sparse, x[i] if not x.is_sparse else None
        ---
        run(T(3), 1)
        run(T(3).to_sparse(), 1)
        run(T(3), T(2).long() + 1)
        run(T(3), T(2) > 0) if False else None
        run(T(3), slice(0, 1))
        run(T(3), None)
        run(T(3), ...)
    """,
    "global_added_after_nameerror": """
        def f(x):
            try: return x * LATER
            except NameError: return x + 1
        ---
        run(T(3))
        LATER = 5
        run(T(3))
    """,
    "vararg_shapes": """
        def f(x, *args, **kw):
            for a in args: x = x + a
            return x * len(kw), list(kw), args
        ---
        run(T(3))
        run(T(3), 1)
        run(T(3), 1, 2)
        run(T(3), 1, 2, a=1)
        run(T(3), 1, 2, b=1)
        run(T(3), 1, 2, b=1, a=2)
        run(T(3), 1, 2, a=2, b=1)
        run(T(3), T(3), T(3))
    """,
    "method_of_builtin_type": """
        def f(x, s): return x * s.count('a'), s.upper() if hasattr(s, 'upper') else None
        ---
        run(T(3), 'aab')
        run(T(3), ['a', 'b'])
        run(T(3), ('a', 'b'))
    """,
    "bound_method_argument": """
        class A:
            def __init__(self, k): self.k = k
            def m(self, x): return x * self.k
        def f(x, m): return m(x)
        a, b = A(2), A(3)
        ---
        run(T(3), a.m)
        run(T(3), b.m)
        a.k = 7
        run(T(3), a.m)
        run(T(3), torch.neg)
        run(T(3), torch.abs)
        run(T(3), T(3).add)
        run(T(3), len)
    """,
    "type_argument": """
        def f(x, t): return x * (1 if t is int else 2), t(3), isinstance(3, t)
        ---
        run(T(3), int)
        run(T(3), float)
        run(T(3), str)
        run(T(3), bool)
    """,
    "thread_and_training_flags": """
        def f(x): return torch.nn.functional.dropout(x * 2, 0.5, TRAIN), torch.are_deterministic_algorithms_enabled()
        TRAIN = False
        ---
        run(T(8))
        TRAIN = True
        run(T(8))
        run(T(8))
        torch.use_deterministic_algorithms(True)
        run(T(8))
        torch.use_deterministic_algorithms(False)
        run(T(8))
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_change_is_noticed(name: str) -> None:
    check(PROGRAMS[name])
