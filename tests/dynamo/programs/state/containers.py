"""Containers, their keys and iterators that change between calls."""

from tests.dynamo.programs import ONE, Family

KEYS = """
class K:
    def __init__(self, h): self.h = h
    def __hash__(self): return self.h
    def __eq__(self, o): return isinstance(o, K) and self.h == o.h
k1, k2 = K(1), K(2)
"""
CHANGED_HASHES = """
        ---
        run(T(3))
        k1.h = 7
        run(T(3))
        k1.h = 1
        run(T(3))
        k2.h = 1
        run(T(3))
        k2.h = 2
        run(T(3))
        K.__eq__ = lambda s, o: False
        run(T(3))
        K.__eq__ = lambda s, o: s.h == o.h
        run(T(3))
        K.__hash__ = lambda s: 9
        run(T(3))
"""
FAMILY = Family(
    backends=ONE,
    captured=False,
    dynamic=(None, True),
    config={"recompile_limit": 64},
    prelude=KEYS,
)
PROGRAMS = {
    "set_summed": """
        s = {1, 2}
        def f(x): return x * sum(s) + max(s), list(map(str, s)), {k: 1 for k in s}
        ---
        run(T(3))
        s.add(10)
        run(T(3))
        s.discard(1)
        run(T(3))
        s = frozenset({2, 10})
        run(T(3))
    """,
    "dict_state": """
        d = {'a': 1, 'b': T(3)}
        def f(x):
            r = x
            for k, v in d.items(): r = r * v + len(k)
            return r, list(d), d.get('c'), 'a' in d, len(d), next(iter(d))
        ---
        run(T(3))
        d['a'] = 2
        run(T(3))
        v = d.pop('a'); d['a'] = v
        run(T(3))
        d['cc'] = 3.0
        run(T(3))
        del d['b']
        run(T(3))
        d.clear()
        d['b'] = 1
        run(T(3))
        d = collections.OrderedDict(a=1, b=2)
        run(T(3))
        d.move_to_end('a')
        run(T(3))
        d = collections.defaultdict(int, a=1, b=2)
        run(T(3))
        d['zz']
        run(T(3))
        d = {'a': 1, 'b': 2}
        run(T(3))
        d = {'b': 2, 'a': 1}
        run(T(3))
        class D(dict):
            def items(self): return [('q', 5)]
        d = D(a=1)
        run(T(3))
        import types
        u = {'a': 4}
        d = types.MappingProxyType(u)
        run(T(3))
        u['b'] = 5
        run(T(3))
        d = collections.ChainMap({'a': 1}, u)
        run(T(3))
        u['z'] = 5
        run(T(3))
        d = collections.Counter('aab')
        run(T(3))
        d['a'] += 1
        run(T(3))
    """,
    "dict_keys_hash": """
        d = {k1: 5, k2: 6}
        def f(x): return x * d.get(K(1), 100), K(1) in d, len(d), k1 in d, d[k2]
    """
    + CHANGED_HASHES,
    "set_hash": """
        d = {k1, k2}
        def f(x): return x * 2, K(1) in d, len(d), k1 in d, len([k for k in d])
    """
    + CHANGED_HASHES,
    "hash_only": """
        class K:
            def __init__(self, h): self.h = h
            def __hash__(self): return self.h
        k1, k2 = K(1), K(2)
        d = {k1: 1, k2: 2}
        def f(x): return x * 2, k1 in d, k2 in d, d.get(k1)
        ---
        run(T(3))
        k1.h = 7
        run(T(3))
        k1.h = 1
        run(T(3))
    """,
    "hash_changed_inside": """
        d = {k1: 5, k2: 6}
        def f(x):
            k1.h = 3
            r = k1 in d, K(1) in d, K(3) in d
            k1.h = 1
            return x * 2, r, k1 in d
        def g(x): return f(x)
        ---
        run(T(3))
        run(T(3))
    """,
    "hash_changed_inside_after_a_look": """
        d = {k1: 5, k2: 6}
        def f(x):
            a = k1 in d
            k1.h = 3
            r = k1 in d, K(1) in d, K(3) in d
            k1.h = 1
            return x * 2, r, k1 in d, a
        ---
        run(T(3))
        run(T(3))
    """,
    "tuple_key": """
        d = {(k1, 1): 5, (k2, 2): 6}
        def f(x): return x * 2, (K(1), 1) in d, (k1, 1) in d
        ---
        run(T(3))
        k1.h = 7
        run(T(3))
        k1.h = 1
        run(T(3))
    """,
    "deque_state": """
        d = collections.deque([1, 2], maxlen=3)
        def f(x):
            r = x
            for v in d: r = r * v + 1
            d.append(len(d))
            return r, d[0], d.maxlen, len(d)
        ---
        run(T(3))
        run(T(3))
        run(T(3))
        d.clear()
        run(T(3))
        d.appendleft(9)
        run(T(3))
        d.rotate(1)
        run(T(3))
        d = collections.deque([1, 2])
        run(T(3))
        d = collections.deque([1, 2], maxlen=2)
        run(T(3))
        d = [1, 2]
        r = None
    """,
    "defaultdict_factory": """
        d = collections.defaultdict(lambda: 5)
        def f(x): return x * d['k'], len(d), d.default_factory is None
        ---
        run(T(3))
        d.clear()
        run(T(3))
        d.default_factory = lambda: 7
        run(T(3))
        d.clear()
        run(T(3))
        d.clear()
        d.default_factory = None
        run(T(3))
        d.default_factory = list
        d['k'] = 2
        run(T(3))
    """,
    "list_state": """
        l = [1, 2.0, T(3), 'a', None, [1]]
        def f(x):
            r = x
            for v in l:
                if isinstance(v, (int, float, torch.Tensor)): r = r * v
                elif isinstance(v, list): r = r + len(v)
                elif v is None: r = r - 1
            return r, len(l), l.index(1), l[-1], 1 in l
        ---
        run(T(3))
        l[0] = True
        run(T(3))
        l[0] = 1.0
        run(T(3))
        l[0] = 1
        run(T(3))
        l[5].append(2)
        run(T(3))
        l[5] = (1, 2)
        run(T(3))
        l.reverse()
        run(T(3))
        l.insert(0, 7)
        run(T(3))
        l[:] = [1, 1]
        run(T(3))
        l = (1, 1)
        run(T(3))
        l = [1, 1]
        run(T(3))
        class L(list):
            def __iter__(self): return iter([3])
            def index(self, v): return 99
        l = L([1, 1])
        run(T(3))
        L.__iter__ = list.__iter__
        run(T(3))
        del L.index
        run(T(3))
        l.__class__ = type('L2', (list,), {}) if False else L
    """,
    "iterators_half": """
        def f(x, it):
            r = x
            for v in it: r = r * v + 1
            return r
        def gen():
            try:
                yield 1
                yield 2
                yield 3
            finally: log.append('done')
        ---
        run(T(3), iter([1, 2, 3]))
        it = iter([1, 2, 3]); next(it)
        run(T(3), it)
        run(T(3), it)
        g = gen()
        run(T(3), g)
        g = gen(); next(g)
        run(T(3), g), log
        g = gen(); next(g); next(g)
        run(T(3), g), log
        run(T(3), g), log
        it = zip([1, 2, 3], [4, 5, 6]); next(it)
        run(T(3), (a * b for a, b in it))
        it = map(lambda v: v * 2, [1, 2, 3]); next(it)
        run(T(3), it)
        it = enumerate([1, 2, 3])
        next(it)
        run(T(3), (a for a, b in it))
        it = itertools.count(5)
        run(T(3), itertools.islice(it, 2)), next(it)
        it = itertools.chain([1], [2, 3]); next(it)
        run(T(3), it), list(it)
        it = itertools.cycle([1, 2]); next(it)
        run(T(3), itertools.islice(it, 3)), next(it)
        it = reversed([1, 2, 3]); next(it)
        run(T(3), it)
        it = iter({'a': 1, 'b': 2}.values()); next(it)
        run(T(3), it)
        it = iter(range(5)); next(it)
        run(T(3), it)
        run(T(3), iter({3}))
        run(T(3), iter(()))
        it = iter([1, 2])
        run(T(3), zip(it, it))if False else None
        it = filter(None, [0, 1, 2])
        run(T(3), it)
        run(T(3), it)
    """,
    "global_iterator": """
        it = itertools.count()
        def f(x): return x * next(it)
        ---
        run(T(3))
        run(T(3))
        next(it)
        run(T(3))
        it = iter([7, 8])
        run(T(3))
        run(T(3))
        run(T(3))
        it = (i for i in [5, 6])
        run(T(3))
        next(it)
        run(T(3))
    """,
    "lru_cache": """
        calls = []
        @functools.lru_cache(maxsize=2)
        def g(k):
            calls.append(k)
            return k * mult
        mult = 2
        class A:
            @functools.cached_property
            def p(self): calls.append('p'); return mult
            @functools.lru_cache
            def m(self, k): calls.append('m'); return k + mult
        a = A()
        def f(x, k=3): return x * g(k) + a.p + a.m(2)
        ---
        run(T(3)), calls
        run(T(3)), calls
        mult = 5
        run(T(3)), calls
        g.cache_clear()
        run(T(3)), calls, g.cache_info()
        run(T(3), 4), calls, g.cache_info()
        run(T(3), 5), calls, g.cache_info()
        run(T(3), 3), calls, g.cache_info()
        del a.p
        run(T(3)), calls
        a.p = 100
        run(T(3)), calls
        A.m.cache_clear()
        run(T(3)), calls
        a = A()
        run(T(3)), calls, A.m.cache_info()
        g.__wrapped__ = lambda k: 5
        run(T(3)), calls
    """,
    "partials": """
        def g(x, a, b=2, **k): return x * a + b + sum(k.values())
        p = functools.partial(g, a=3)
        pp = functools.partial(p, b=4)
        class A:
            m = functools.partialmethod(g.__get__(None) if False else (lambda self, x, k=1: x * k), k=3)
        a = A()
        def f(x): return pp(x) + a.m(x)
        ---
        run(T(3))
        p = functools.partial(g, a=5)
        run(T(3))
        pp.keywords['b'] = 9
        run(T(3))
        pp.keywords['zz'] = 9
        run(T(3))
        pp.foo = 3
        run(T(3))
        pp = functools.partial(g, T(3), b=1)
        run(T(3))
        pp.__setstate__((g, (), {'a': 8}, {}))
        run(T(3))
        A.m = functools.partialmethod(lambda self, x, k=1: x * k, k=30)
        run(T(3))
    """,
    "set_args_types": """
        def f(x, s): return x + 1, sorted(map(str, s))
        ---
        run(T(3), {1, 2})
        run(T(3), {1.0, 2.0})
        run(T(3), {True, 2})
        run(T(3), {1, 2})
    """,
    "dict_key_types": """
        def f(x, s): return x + 1, [type(k).__name__ for k in s], s[1]
        ---
        run(T(3), {1: 2})
        run(T(3), {1.0: 2})
        run(T(3), {True: 2})
        run(T(3), {1: 2})
        run(T(3), {1: 2.0})
        run(T(3), {0.0: 2, 1: 2})
        run(T(3), {-0.0: 2, 1: 2})
    """,
    "ranges_and_slices_that_become_one": """
        held, r, s, d = [range(3), slice(1, 2), torch.device('cpu')], range(3), slice(1, 2), torch.device('cpu')
        def gen(k):
            while True: yield held[k]
        g, h, i = gen(0), gen(1), gen(2)
        def f(x, a, b, c):
            x = x + (a is not held[0]) + 2 * (b is not held[1]) + 4 * (c is not held[2])
            x = x * (2 if next(g) is next(g) and next(h) is next(h) and next(i) is next(i) else 3)
            return x, r is held[0], s is held[1], d is held[2], next(g) is r, a == r, b == s, c == d
        ---
        run(T(3), r, s, d)
        run(T(3), *held)
        run(T(3), r, s, d)
        r, s, d = held
        run(T(3), r, s, d)
        run(T(3), range(3), slice(1, 2), torch.device('cpu'))
        held[:] = [range(3), slice(1, 2), torch.device('cpu')]
        run(T(3), r, s, d)
        run(T(3), *held)
    """,
}
