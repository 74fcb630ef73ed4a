"""Guards on containers, objects, modules and calls: a change between calls is noticed."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
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
    "modules_that_become_one": """
        torch.manual_seed(0)
        net = nn.ModuleList([nn.ReLU(), nn.ReLU()])
        def f(x): return x + 1, [n for n, _ in net.named_modules()], len(set(net.children()))
        ---
        run(T(3))
        net[0] = net[1]
        run(T(3))
        net[0] = nn.ReLU()
        run(T(3))
    """,
    "arguments_that_become_one": """
        class C:
            def m(self): pass
        def f(x, l):
            seen, out = set(), []
            for i, o in enumerate(l):
                if o not in seen:
                    seen.add(o)
                    out.append(i)
            return x + 1, out
        def g(x, a, b):
            return (x + 1, a == b, a in [b], [a] != [b], (1, a) == (1, b), [a].count(b), a.m == b.m,
                    len({a.m, b.m}), operator.is_(a, b))
        def h(x, a, b): return x + 1, id(a) == id(b), len({id(a), id(b)})
        def which(x, f, *args): return f(x, *args)
        p, q, r = C(), C(), C()
        l = []
        f_, f = f, which
        ---
        run(T(3), f_, [p, q, r])
        run(T(3), f_, [p, p, r])
        run(T(3), f_, [q, r, q])
        run(T(3), g, p, q)
        run(T(3), g, p, p)
        run(T(3), h, p, q)
        run(T(3), h, p, p)
        run(T(3), h, [], {})
        run(T(3), h, l, l)
    """,
    "parts_that_become_one_and_are_compared": """
        class C: pass
        c = C()
        c.a, c.b = C(), C()
        c.l = [c.a]
        def f(x): return x + 1, c.b in c.l
        ---
        run(T(3))
        c.b = c.a
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
    "globals_differ": """
        import types
        def g(x): return x * K
        g1 = types.FunctionType(g.__code__, {'K': 2, '__builtins__': __builtins__})
        g2 = types.FunctionType(g.__code__, {'K': 3, '__builtins__': __builtins__})
        def f(h, x): return h(x)
        ---
        run(g1, T(2))
        run(g2, T(2))
        run(g1, T(2))
    """,
    "sort_keys": """
        def f(x, l):
            l.sort(key=lambda t: t[0])
            return [v * x for _, v in l]
        ---
        run(T(2), [(2, 1), (1, 2)])
        run(T(2), [(1, 1), (2, 2)])
    """,
    "late_subclass_attr": """
        class A: pass
        class B(A): pass
        def f(x):
            b = B()
            return x * getattr(b, 'k', 1), hasattr(b, 'z')
        ---
        run(T(2))
        A.k = 5
        run(T(2))
        B.z = 5
        run(T(2))
        B.__getattr__ = lambda s, n: 9
        del A.k
        run(T(2))
    """,
    "init_replaced": """
        class A:
            def __init__(self): self.k = 1
        def f(x): return x * A().k
        ---
        run(T(2))
        def ni(self): self.k = 8
        A.__init__ = ni
        run(T(2))
        def nn_(cls):
            o = object.__new__(cls)
            o.j = 1
            return o
        A.__new__ = nn_
        run(T(2))
        class M(type):
            def __call__(cls): return types_ns
        import types
        types_ns = types.SimpleNamespace(k=77)
        class A(metaclass=M): pass
        run(T(2))
    """,
    "no_init_then_init": """
        class A: k = 3
        def f(x): return x * A().k
        ---
        run(T(2))
        def ni(self): self.k = 8
        A.__init__ = ni
        run(T(2))
    """,
    "metaclass_attr": """
        class M(type):
            k = 3
        class A(metaclass=M): pass
        def f(x): return x * A.k
        ---
        run(T(2))
        M.k = 4
        run(T(2))
        A.k = 5
        run(T(2))
    """,
    "operator_added": """
        class A:
            def __init__(self, v): self.v = v
        class B(A):
            def __radd__(self, o): return o.v * 100
        a, b = A(2), B(3)
        A.__add__ = lambda s, o: s.v
        def f(x):
            return x * (a + b)
        ---
        run(T(2))
        A.__add__ = lambda s, o: s.v + 50
        run(T(2))
        B.__radd__ = lambda s, o: 1
        run(T(2))
        del A.__add__
        run(T(2))
    """,
    "int_bool_list": """
        def f(x, l): return x * l[0], l[0] is True, l
        ---
        run(T(2), [1])
        run(T(2), [True])
        run(T(2), [1.0])
    """,
    "nan_const": """
        def f(x, v): return x * 2, v == v, v in [v]
        ---
        run(T(2), float('nan'))
        run(T(2), 1.0)
    """,
    "closure_of_self": """
        class A:
            def __init__(self, k):
                self.k = k
                self.fn = lambda x: x * self.k
            def run(self, x): return self.fn(x)
        a = A(2)
        def f(x): return a.run(x)
        ---
        run(T(2))
        a.k = 3
        run(T(2))
        a = A(9)
        run(T(2))
    """,
    "weakref_finalizer": """
        import weakref
        class A: pass
        a = A(); a.k = 2
        r = weakref.ref(a)
        def f(x): return x * r().k
        ---
        run(T(2))
        a.k = 3
        run(T(2))
    """,
    "module_swap_children": """
        m = nn.ModuleDict({'a': nn.Linear(2, 2), 'b': nn.ReLU()})
        with torch.no_grad(): [p.copy_(T(*p.shape)) for p in m.parameters()]
        def f(x): return m[next(iter(m))](x)
        ---
        run(T(2, 2))
        m._modules.move_to_end('a') if hasattr(m._modules, 'move_to_end') else m._modules.__setitem__('a', m._modules.pop('a'))
        run(T(2, 2))
    """,
    "default_dict_missing": """
        d = collections.defaultdict(lambda: 3)
        def f(x): return x * d['q'], len(d)
        ---
        run(T(2))
        run(T(2))
        d['q'] = 7
        run(T(2))
        d.clear()
        d.default_factory = lambda: 11
        run(T(2))
    """,
    "chainmap_mappingproxy": """
        import types
        base = {'a': 1}
        mp = types.MappingProxyType(base)
        cm = collections.ChainMap({}, base)
        def f(x): return x * mp['a'], x + cm['a'], len(mp)
        ---
        run(T(2))
        base['a'] = 4
        run(T(2))
        base['b'] = 4
        run(T(2))
    """,
    "tensor_list_aliasing_views": """
        def f(a, b):
            a[0].mul_(2)
            return b[0] + 1
        ---
        t = T(4)
        run([t[:2]], [T(2)])
        run([t[:2]], [t[1:3]])
        run([t], [t])
    """,
    "out_argument": """
        def f(x, out):
            torch.add(x, 1, out=out)
            return out, out * 2
        ---
        o = T(2)
        run(T(2), o)
        run(T(2), o)
        run(o, o)
    """,
    "set_order": """
        def f(x, s):
            return [x * v for v in sorted(s)], s.pop() if len(s) == 1 else 0, s
        ---
        run(T(2), {1})
        run(T(2), {2})
        run(T(2), {1, 2})
    """,
    "instance_of_a_class_registered_later": """
        import abc
        class Base(abc.ABC): pass
        class Member: pass
        m = Member()
        def f(x): return x * (2 if isinstance(m, Base) else 3)
        ---
        run(T(2))
        Base.register(Member)
        run(T(2))
    """,
    "class_of_a_class_registered_later": """
        import abc
        class Base(abc.ABC): pass
        class Member: pass
        m = Member()
        def f(x): return x * (2 if issubclass(Member, Base) else 3)
        ---
        run(T(2))
        Base.register(Member)
        run(T(2))
    """,
}
