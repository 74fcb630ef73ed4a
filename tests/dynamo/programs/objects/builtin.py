"""Subclasses of built-in types, weak references, attributes of tensors."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "attributes_of_methods": (
        1,
        "",
        """
        class A:
            k = 1
            def meth(self, *a): return self.k, a
        a, b = A(), A()
        b.k = 2
        def f(x, a, b):
            m = a.meth
            facts = [m.__call__(3), m.__class__, m.__get__(b)(), m.__get__(b, A)()]
            facts += [m.__func__.__get__(b)(4), m == b.meth]
            return x + 1, facts, m.__call__.__self__ == m, hasattr(m, '__get__')
        ---
        run(T(3), a, b)
        """,
    ),
    "sets_with_an_iter_of_their_own": (
        1,
        "",
        """
        class S(set):
            def __iter__(self): return iter([99])
        def f(x):
            s, own = {1, 5}, S([1])
            facts = [set(own), frozenset(own), {*own}, s | own, s.union(own), s.intersection(own)]
            facts += [s.difference(own), s.symmetric_difference(own), s.issuperset(own)]
            facts += [s.isdisjoint(own), list(own), len(own)]
            for name in ("update", "difference_update", "intersection_update"):
                changed = {1, 5}
                getattr(changed, name)(own)
                facts.append(changed)
            return x + 1, facts
        ---
        run(T(3))
        """,
    ),
    "forms_of_typing": (
        1,
        "",
        """
        from dataclasses import dataclass, field
        from typing import Dict, List, Optional, Tuple
        def f(x):
            @dataclass
            class C:
                x: List[int] = field(default_factory=list)
                y: "Optional[Dict[str, Tuple[int, ...]]]" = None
            return x + 1, C.__doc__, C().x, List[int], Dict[str, List[int]].__args__
        ---
        run(T(3))
        run(T(3))
        """,
    ),
    "weakref_ref": (
        1,
        "",
        """
        import weakref
        class A:
            def __init__(self, v): self.v = v
        a = A(3)
        r = weakref.ref(a)
        def f(x, r, a):
            o = r()
            w = weakref.ref(a)
            return x + o.v, o is a, w() is a, w is r
        ---
        run(T(3), r, a)
        run(T(3), r, a)
        """,
    ),
    "weakref_made": (
        1,
        "",
        """
        import weakref
        class A:
            def __init__(self, v): self.v = v
        def f(x):
            a = A(x)
            w = weakref.ref(a)
            return w().v + 1, a, w() is a
        ---
        run(T(3))
        """,
    ),
    "weakref_escape": (
        1,
        "",
        """
        import weakref
        class A: pass
        keep = A()
        def f(x, k):
            a = A()
            k.a = a
            k.w = weakref.ref(a)
            return x + 1, k.w
        ---
        run(T(3), keep)
        keep.w() is keep.a
        """,
    ),
    "weakref_dead": (
        1,
        "",
        """
        import weakref
        class A: pass
        def mk():
            return weakref.ref(A())
        r = mk()
        def f(x, r):
            if r() is None: return x + 1
            return x
        ---
        run(T(3), r)
        """,
    ),
    "weakkeydict": (
        1,
        "",
        """
        import weakref
        class A: pass
        a, b = A(), A()
        d = weakref.WeakKeyDictionary({a: 1})
        def f(x, d, a, b):
            y = x + d[a]
            d[b] = 5
            return y, b in d, len(d), d.get(a)
        ---
        run(T(3), d, a, b)
        sorted(d.values())
        """,
    ),
    "weakvaluedict": (
        1,
        "",
        """
        import weakref
        class A: pass
        a, b = A(), A()
        d = weakref.WeakValueDictionary({'a': a})
        def f(x, d, b):
            y = d['a']
            d['b'] = b
            return x + 1, y, 'b' in d, len(d)
        ---
        run(T(3), d, b)
        sorted(d.keys())
        """,
    ),
    "weakset": (
        1,
        "",
        """
        import weakref
        class A: pass
        a, b = A(), A()
        d = weakref.WeakSet([a])
        def f(x, d, a, b):
            return x + 1, a in d, b in d, len(d)
        ---
        run(T(3), d, a, b)
        """,
    ),
    "weakref_proxy": (
        1,
        "",
        """
        import weakref
        class A:
            k = 3
        a = A()
        p = weakref.proxy(a)
        def f(x, p):
            return x + p.k
        ---
        run(T(3), p)
        """,
    ),
    "sub_dict": (
        1,
        "",
        """
        class D(dict):
            def __init__(self, *a, **k):
                super().__init__(*a, **k)
                self.attr = 1
            def __getitem__(self, k):
                log.append(k)
                return super().__getitem__(k)
            def __setitem__(self, k, v): super().__setitem__(k, v)
            def __missing__(self, k): return 'missing'
            def get2(self, k): return self.get(k, 7)
        d = D(a=1)
        def f(x, d):
            d['b'] = x
            e = D({'q': 1}, r=2)
            e['s'] = x + d['a']
            e.update(t=3)
            return e, e['nope'], e.get2('zz'), list(e.items()), len(e), d.pop('a'), {**e}, dict(e), 'q' in e, e | {'m': 1}, e == dict(e), e.copy(), sorted(e)
        ---
        run(T(3), d)
        d
        """,
    ),
    "sub_list": (
        1,
        "",
        """
        class L(list):
            tag = 0
            def __init__(self, *a):
                super().__init__(*a)
                self.n = len(self)
            def append(self, v):
                log.append('append')
                super().append(v)
            def __getitem__(self, i):
                return super().__getitem__(i)
        l = L([1, 2])
        def f(x, l):
            l.append(x)
            l.tag = 5
            m = L([3])
            m.append(x + l[0])
            m.extend([1, 2])
            m[0] = 9
            m.insert(0, 'z')
            return m, m[1:], m + [1], [0] + m, len(m), 9 in m, m.index(9), list(m), [i for i in m], m.n, m == [1], m * 2, sorted(m[3:])
        ---
        run(T(3), l)
        l
        """,
    ),
    "sub_tuple": (
        1,
        "",
        """
        class P(tuple):
            def __new__(cls, a, b):
                s = super().__new__(cls, (a, b))
                s.extra = a
                return s
            def __add__(self, o): return P(self[0] + o[0], self[1] + o[1])
            @property
            def first(self): return self[0]
        p = P(1, 2)
        def f(x, p):
            q = P(x, 3)
            r = q + p
            a, b = r
            return q, r, p.first, a + b, len(p), p[1], p == (1, 2), p[0:1], hash(p) == hash((1, 2)), {p: 1}[p], 2 in p, list(p)
        ---
        run(T(3), p)
        """,
    ),
    "sub_set": (
        1,
        "",
        """
        class S(set):
            def add(self, v):
                log.append(v)
                super().add(v)
            def total(self): return sum(self)
        s = S([1, 2])
        def f(x, s):
            s.add(3)
            t = S([4])
            t.add(5)
            t.k = 1
            return x + s.total(), t, 4 in t, len(t), t | {9}, t == {4, 5}, sorted(t)
        ---
        run(T(3), s)
        s
        """,
    ),
    "sub_set_order": """
        class S(set): pass
        class F(frozenset): pass
        def f(x, s):
            return x + len(s), list(s)
        ---
        run(T(2), S((0, 8)))
        run(T(2), S((8, 0)))
        run(T(2), F((0, 8)))
        run(T(2), F((8, 0)))
        """,
    "sub_frozenset": (
        1,
        "",
        """
        class S(frozenset):
            def total(self): return sum(self)
        s = S([1, 2])
        def f(x, s):
            t = S([4])
            return x + s.total(), t, 4 in t, len(t), t | {9}
        ---
        run(T(3), s)
        """,
    ),
    "sub_str": (
        1,
        "",
        """
        class S(str):
            def hi(self): return self + '!'
            def __new__(cls, v, k=1):
                o = super().__new__(cls, v)
                o.k = k
                return o
        s = S('ab', 3)
        def f(x, s):
            t = S('q')
            return x + s.k, s.hi(), s.upper(), t, t.hi(), s == 'ab', {'ab': 1}[s], len(s), s[0], f'{s}', s + 'z', 'a' in s, isinstance(s, str), t.k
        ---
        run(T(3), s)
        """,
    ),
    "sub_int": (
        1,
        "",
        """
        class I(int):
            def dbl(self): return self * 2
            def __add__(self, o): return I(int(self) + o)
        i = I(4)
        def f(x, i):
            j = I(3)
            return x + int(i), x * i, i.dbl(), j, j + 1, i == 4, i < 5, [1, 2, 3, 4, 5][i], -i, i // 2, bool(i), str(i), hash(i) == hash(4), j.dbl(), range(j), x[j - 1]
        ---
        run(T(4), i)
        """,
    ),
    "sub_float": (
        1,
        "",
        """
        class F(float):
            def half(self): return self / 2
        v = F(4.0)
        def f(x, v):
            w = F(1.5)
            w.k = 2
            return x * v, v.half(), w, w + 1, v == 4.0, int(v), v.is_integer()
        ---
        run(T(4), v)
        """,
    ),
    "sub_ordered": (
        1,
        "",
        """
        class O(collections.OrderedDict):
            def __setitem__(self, k, v):
                log.append(k)
                super().__setitem__(k, v)
            def first(self): return next(iter(self))
        o = O(a=1)
        def f(x, o):
            o['b'] = x
            p = O([('z', 1), ('y', 2)])
            p.move_to_end('z')
            p['w'] = x + 1
            p.popitem(last=False)
            p.attr = 4
            return p, o.first(), p.first(), list(p), list(reversed(p)), p.get('w')
        ---
        run(T(4), o)
        o
        """,
    ),
    "sub_defaultdict": (
        0,
        "",
        """
        class D(collections.defaultdict):
            def m(self): return len(self)
        d = D(list)
        def f(x, d):
            d['a'].append(x)
            e = D(int, b=2)
            e['c'] += 1
            return e, d.m(), e.default_factory
        ---
        run(T(4), d)
        d
        """,
    ),
    "sub_deque": (
        1,
        "",
        """
        class D(collections.deque):
            def m(self): return len(self)
        d = D([1], maxlen=2)
        def f(x, d):
            d.append(x)
            d.append(3)
            e = D([1, 2])
            e.appendleft(x + 1)
            return e, d.m(), d[0], d.maxlen
        ---
        run(T(4), d)
        d
        """,
    ),
    "sub_with_own_getitem": """
        def own(base):
            return lambda self, key: base.__getitem__(self, key) * 10
        class L(list): __getitem__ = own(list)
        class P(tuple): __getitem__ = own(tuple)
        class D(dict): __getitem__ = own(dict)
        class Q(collections.deque): __getitem__ = own(collections.deque)
        class Key: pass
        def f(x, many):
            for item in many.values() if isinstance(many, dict) else many:
                x = x + item
            return x, many + type(many)([1]) if isinstance(many, list | tuple) else list(many)
        ---
        run(T(2), L([T(2), T(2), 5]))
        run(T(2), P([T(2), T(2), 5]))
        run(T(2), D(a=T(2), b=2))
        run(T(2), D({Key: T(2), len: 2}))
        run(T(2), Q([T(2), 2]))
        """,
    "extending_is_seen": """
        def lengths(many):
            yield len(many)
            yield len(many)
        class Sub(list): pass
        def f(x, many):
            many += lengths(many)
            many.extend(lengths(many))
            many.extend(many)
            return x + many[-1]
        ---
        held = [[3], Sub([3]), collections.deque([3]), collections.deque([3], maxlen=2)]
        [run(T(2), many) for many in held]
        held
        """,
    "sub_namedtuple": (
        1,
        "",
        """
        class P(collections.namedtuple('P', 'a b')):
            __slots__ = ()
            def s(self): return self.a + self.b
            @property
            def q(self): return self.a * 2
        p = P(1, 2)
        def f(x, p):
            q = P(x, b=3)
            return q, q.s(), p.s(), p.q, q._replace(a=9), p._asdict(), P._make([1, 2]), a_(p)
        def a_(p):
            a, b = p
            return a - b
        ---
        run(T(4), p)
        """,
    ),
    "sub_exception": (
        1,
        "",
        """
        class E(Exception):
            def __init__(self, code): self.code = code; super().__init__(code)
            def __str__(self): return f'E{self.code}'
        e0 = E(3)
        def f(x, e0):
            try: raise E(2)
            except E as e: return x + e.code, str(e), e, repr(e), e0.code, str(e0), e0.args
        ---
        run(T(4), e0)
        """,
    ),
    "sub_simplenamespace": (
        1,
        "",
        """
        import types
        class N(types.SimpleNamespace):
            def m(self): return self.a
        def f(x):
            n = N(a=x, b=2)
            n.c = 3
            return n, n.m() + 1, n == N(a=1)
        ---
        run(T(4))
        """,
    ),
    "userdict": (
        0,
        "",
        """
        class U(collections.UserDict):
            def m(self): return len(self)
        u = U(a=1)
        def f(x, u):
            u['b'] = x
            v = U({'k': 2})
            return v, u['a'], v.m(), 'b' in u, list(u)
        ---
        run(T(4), u)
        """,
    ),
    "modeloutput": (
        1,
        "",
        """
        from dataclasses import dataclass, fields
        class MO(collections.OrderedDict):
            def __init_subclass__(cls): pass
            def __post_init__(self):
                for fld in fields(self):
                    v = getattr(self, fld.name)
                    if v is not None: self[fld.name] = v
            def __getitem__(self, k):
                if isinstance(k, str):
                    return dict(self.items())[k]
                return self.to_tuple()[k]
            def __setattr__(self, name, value):
                if name in self.keys() and value is not None:
                    super().__setitem__(name, value)
                super().__setattr__(name, value)
            def __setitem__(self, key, value):
                super().__setitem__(key, value)
                super().__setattr__(key, value)
            def to_tuple(self): return tuple(self[k] for k in self.keys())
        @dataclass
        class Out(MO):
            logits: torch.Tensor = None
            hidden: tuple = None
            loss: torch.Tensor = None
        def f(x, o):
            r = Out(logits=x + 1, hidden=(x, x))
            r.loss = x.sum()
            r['loss2'] = 3
            return r, r[0], r['hidden'], r.loss, o.logits + 1, o[0], list(o.keys()), len(r), r.to_tuple()
        ---
        run(T(4), Out(logits=T(2)))
        """,
    ),
    "tensor_attrs": (
        1,
        "",
        """
        def f(x):
            y = x + 1
            y.tag = 'made'
            y.num = 3
            z = y.num * x
            x.mark = 5
            return y, z, hasattr(y, 'tag'), x.mark, getattr(y, 'nope', 2)
        ---
        t = T(3)
        run(t)
        t.mark
        """,
    ),
    "tensor_attrs_in": (
        3,
        "",
        """
        t = T(3)
        t.scale = 2
        t.other = T(3)
        def f(x):
            return x * x.scale + x.other
        ---
        run(t)
        t.scale = 3
        run(t)
        del t.other
        run(t)
        """,
    ),
    "param_inside": (
        1,
        "",
        """
        def f(x):
            p = nn.Parameter(x * 2)
            q = nn.Parameter(torch.ones(3), requires_grad=False)
            b = nn.Buffer(torch.ones(3))
            return p, isinstance(p, nn.Parameter), p.requires_grad, q, (p * 2).sum(), b, isinstance(b, nn.Buffer)
        ---
        run(T(3))
        """,
    ),
    "param_inside_grad": (
        1,
        "",
        """
        def f(x):
            p = nn.Parameter(x.detach() * 2)
            l = (p * x).sum()
            return p, l
        ---
        p, l = run(T(3))
        l.backward()
        p.grad
        """,
    ),
    "ordered_attrs": (
        2,
        "",
        """
        o = collections.OrderedDict(a=1)
        o.tag = 'x'
        def f(x, o):
            p = collections.OrderedDict(b=x)
            p.meta = {'v': 1}
            o.other = x + 1
            y = o.tag, hasattr(o, 'nope'), p.meta
            o['c'] = 3
            q = collections.OrderedDict()
            q.k = 5
            return p, y, q
        ---
        run(T(2), o)
        o
        o.tag = 'y'
        run(T(2), o)
        """,
    ),
}
