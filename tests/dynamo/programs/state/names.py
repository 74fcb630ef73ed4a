"""Globals, modules, cells, defaults and code objects that change between calls."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, captured=False, dynamic=(None, True), config={"recompile_limit": 64})
PROGRAMS = {
    "module_chain": """
        import types
        a = types.ModuleType('a'); a.b = types.ModuleType('b'); a.b.c = types.ModuleType('c'); a.b.c.k = 2
        a.b.c.fn = lambda x: x + a.b.c.k
        old = a.b
        new = types.ModuleType('b2'); new.c = types.ModuleType('c2'); new.c.k = 5; new.c.fn = lambda x: x * 7
        def f(x): return a.b.c.fn(x) * a.b.c.k
        ---
        run(T(3))
        a.b = new
        run(T(3))
        a.b = old
        run(T(3))
        a.b.c.k = 3.5
        run(T(3))
        a.b.c.k = True
        run(T(3))
        a.b.c.k = 1
        run(T(3))
        del a.b.c.k
        run(T(3))
        a.b.c.__dict__['k'] = 2
        run(T(3))
        a.b.c.__getattr__ = lambda n: 99
        del a.b.c.k
        run(T(3))
        del a.b.c.__getattr__
        run(T(3))
        a = 5
        run(T(3))
    """,
    "module_class": """
        import types
        class M(types.ModuleType):
            @property
            def k(self): return self.__dict__.get('_k', 4)
        m = types.ModuleType('m'); m.k = 2
        def f(x): return x * m.k
        ---
        run(T(3))
        m.__class__ = M
        run(T(3))
        m._k = 5
        run(T(3))
        M.k = 9
        run(T(3))
        m.__class__ = types.ModuleType
        run(T(3))
    """,
    "global_types": """
        g = 1
        def f(x): return x * g, type(g).__name__, g == 1
        ---
        run(T(3))
        g = True
        run(T(3))
        g = 1.0
        run(T(3))
        g = np.float64(1.0)
        run(T(3))
        g = np.int64(1)
        run(T(3))
        g = torch.tensor(1)
        run(T(3))
        g = torch.tensor(1.)
        run(T(3))
        g = np.array(1.0)
        run(T(3))
        g = np.array([1.0, 2, 3])
        run(T(3))
        g = -0.0
        run(T(3))
        g = 0.0
        run(T(3))
        g = 0
        run(T(3))
        g = 2**70
        run(T(3))
        g = 2**63
        run(T(3))
        g = float('nan')
        run(T(3))
        g = float('inf')
        run(T(3))
        g = 1 + 0j
        run(T(3))
        del g
        run(T(3))
        g = 1
        run(T(3))
    """,
    "cells_nonlocal": """
        def make():
            n = 1
            h = lambda x: x + 1
            def get(x): return h(x) * n
            def set_(v, hh=None):
                nonlocal n, h
                n = v
                if hh: h = hh
            def dele():
                nonlocal n
                del n
            return get, set_, dele
        get, set_, dele = make()
        def f(x): return get(x)
        ---
        run(T(3))
        set_(2)
        run(T(3))
        set_(2.5)
        run(T(3))
        set_(T(3))
        run(T(3))
        set_(1, lambda x: x - 1)
        run(T(3))
        dele()
        run(T(3))
        set_(1)
        run(T(3))
        get.__closure__[0].cell_contents = lambda x: x * 100
        run(T(3))
        del get.__closure__[0].cell_contents
        run(T(3))
    """,
    "nonlocal_counter": """
        def make():
            n = 0
            def get(x):
                nonlocal n
                n += 1
                return x * n
            def peek(): return n
            return get, peek
        f, peek = make()
        ---
        run(T(3))
        run(T(3))
        peek()
        run(T(3)), peek()
        run(T(3)), peek()
        run(T(3)), peek()
        run(T(3)), peek()
        run(T(3)), peek()
        run(T(3)), peek()
        run(T(3)), peek()
        run(T(3)), peek()
    """,
    "kwdefaults": """
        def g(x, a=1, *, b=2, c=None): return x * a + b + (0 if c is None else c)
        def f(x, z=1, *, w=2): return g(x) + z * w
        ---
        run(T(3))
        g.__defaults__ = (3,)
        run(T(3))
        g.__kwdefaults__ = {'b': 5, 'c': T(3)}
        run(T(3))
        g.__kwdefaults__['b'] = 7
        run(T(3))
        del g.__kwdefaults__['c']
        run(T(3))
        g.__kwdefaults__ = None
        run(T(3))
        g.__kwdefaults__ = {'b': 2, 'c': None}; g.__defaults__ = None
        run(T(3))
        g.__defaults__ = (1,)
        run(T(3))
        g.__defaults__ = (1., 2., 3.)
        run(T(3))
        f.__defaults__ = (10,)
        run(T(3))
        f.__kwdefaults__['w'] = 4
        run(T(3))
        f.__kwdefaults__ = None
        run(T(3))
    """,
    "code_replaced": """
        def g(x): return x + 1
        def h(x): return x * 5
        def g2(x, k=3): return x * k
        def f(x): return g(x)
        __gc = g.__code__
        ---
        run(T(3))
        g.__code__ = h.__code__
        run(T(3))
        g.__code__ = __gc
        run(T(3))
        g.__code__ = g2.__code__
        run(T(3))
        g.__defaults__ = (4,)
        run(T(3))
        g.__code__ = __gc
        run(T(3))
        __fc = f.__code__
        f.__code__ = h.__code__
        run(T(3))
        f.__code__ = __fc
        run(T(3))
    """,
    "modules_replaced_inside": """
        import sys, types
        def made(**names): return types.SimpleNamespace(**names)
        sys.modules['replaced_inside'] = made(v=1)
        def read():
            from replaced_inside import v
            return v
        def f(x, n):
            before = read()
            sys.modules['replaced_inside'] = made(v=n)
            x = x * read() + before
            import replaced_inside
            del sys.modules['replaced_inside']
            try: import replaced_inside
            except ModuleNotFoundError as e: x = x + len(e.args)
            sys.modules['replaced_inside'] = made(v=before + 1)
            return x, replaced_inside.v
        ---
        run(T(3), 5)
        run(T(3), 6)
        run(T(3), 6)
    """,
    "getters": """
        g, h = operator.itemgetter(1), operator.attrgetter('shape')
        def f(x, k):
            return x * len(g((x, [1], {}))), h(x), k(x), k is h, k == h, {h: 1}.get(k, 2), repr(k)
        ---
        run(T(3), h)
        run(T(3), operator.attrgetter('shape'))
        g = operator.itemgetter(True)
        run(T(3), h)
        g = operator.itemgetter(1, 2)
        run(T(3), operator.attrgetter('dtype'))
        g, h = operator.itemgetter(-1), operator.attrgetter('dtype')
        run(T(3), h)
        run(T(3), operator.methodcaller('sum', 0))
        run(T(3), operator.methodcaller('sum', dim=0))
        run(T(3), operator.methodcaller('sum', dim=-1))
        h = operator.methodcaller('sum', dim=0)
        run(T(3), h)
        run(T(3), operator.methodcaller('sum', dim=0))
    """,
}
