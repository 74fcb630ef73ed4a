"""Classes: hashing and equality, forwarding, iteration, descriptors, dataclasses, enums, generics."""

from tests.dynamo.differential import SOME
from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "empty_slots_of_classes_of_a_script": (
        1,
        "",
        """
        class Outer:
            class Slots:
                __slots__ = ("a",)
                __module__ = "__main__"
        def f(x):
            try: Outer.Slots().a
            except AttributeError as e: return x + 1, str(e)
        ---
        run(T(1))
        """,
    ),
    "slots_under_other_names": (
        1,
        "",
        """
        class D(dict):
            __getattr__ = dict.get
            __setattr__ = dict.__setitem__
            __delattr__ = dict.__delitem__
        class L(list):
            __call__ = list.append
            push, size = list.append, list.__len__
        class S(str): __call__ = str.replace
        d, l = D(a=1, b=2), L([1])
        def f(x):
            d.z = d.a + 1
            if 'b' in d: del d.b
            l.push(3); l(4)
            e = D(q=x); e.w = 2; e.q = e.q + 1
            try: del d.nope
            except KeyError as k: log.append(str(k))
            return x * d.z, d.nope, l.size(), e, e.w, S('ab')('a', 'c'), l.push.__name__
        ---
        run(T(3)); log.append((dict(d), list(l)))
        """,
    ),
    "counts_in_classes_of_instances": (
        2,
        "",
        """
        class A:
            n = 0
        class B(A): pass
        class M(torch.nn.Module):
            n = 0
            def forward(self, x):
                type(self).n += 1
                return x * self.n
        o, m = B(), M()
        def f(x):
            type(o).n += 1
            o.__class__.__base__.n -= 1
            return m(x) + o.n, A.n, B.n, B().n, M.n, 'n' in vars(o)
        ---
        run(T(3)); run(T(3)); run(T(3)); log.append((A.n, B.n, M.n))
        """,
    ),
    "generic_alias_obj": (
        1,
        "",
        """
        import typing
        T1 = typing.TypeVar('T1')
        class S(typing.Generic[T1]):
            def __init__(self): self.d = []
            def push(self, v: T1) -> None: self.d.append(v)
        def f(x):
            s = S[int]()
            s.push(x + 1)
            t = S()
            t.push(2)
            return s.d, t, s.__orig_class__ if hasattr(s, '__orig_class__') else None
        ---
        run(T(3))
        """,
    ),
    "dataclass_kinds": (
        1,
        "",
        """
        @dataclasses.dataclass(frozen=True, eq=True, order=True)
        class A:
            a: int
            b: list = dataclasses.field(default_factory=list, compare=False)
        @dataclasses.dataclass(slots=True, kw_only=True)
        class B:
            t: object
            u: int = 3
            def __post_init__(self): self.u += 1
        def f(x):
            a = A(1); b = B(t=x)
            try: a.a = 3
            except dataclasses.FrozenInstanceError as e: log.append(str(e))
            b.t = x + 1
            return a, b, A(1) == A(1), A(1) < A(2), {A(1): 2}[a], dataclasses.replace(a, a=5), dataclasses.asdict(a), dataclasses.astuple(a), [f_.name for f_ in dataclasses.fields(b)], repr(a)
        ---
        run(T(3))
        """,
    ),
    "enum_methods": (
        1,
        "",
        """
        class C(enum.Enum):
            R = 1
            G = 2
            def next(self): return C((self.value % 2) + 1)
            @property
            def low(self): return self.name.lower()
            @classmethod
            def first(cls): return cls.R
        class Fl(enum.IntFlag):
            A = 1
            B = 2
        def f(x, c):
            return x * c.value, c.next(), c.low, C.first(), C['G'], C(1), list(C), len(C), c is C.R, Fl.A | Fl.B, x + Fl.B, {C.R: 1}[c], c in C, C.R.name, Fl.A in (Fl.A | Fl.B)
        ---
        run(T(3), C.R)
        """,
    ),
    "object_hash_eq": (
        1,
        "",
        """
        class K:
            def __init__(self, v): self.v = v
            def __hash__(self): return hash(self.v)
            def __eq__(self, o): return isinstance(o, K) and self.v == o.v
        class J: pass
        k = K(1); j = J()
        d = {k: 'k', j: 'j'}
        def f(x, d, k, j):
            e = {K(2): x, j: 1, **{K(3): 2}}
            s = {K(1), K(1), k}
            d[K(5)] = 3
            return d[K(1)], d[j], e[K(2)] + 1, j in d, J() in d, len(s), K(2) in e, list(e), d.get(J(), 'no'), K(1) in [k], [k].index(K(1)), (K(1),).count(k)
        ---
        run(T(3), d, k, j)
        len(d)
        """,
    ),
    "getattr_default_forms": (
        1,
        "",
        """
        class A:
            x_ = 1
            def __getattr__(self, n):
                if n == 'boom': raise ValueError('boom')
                raise AttributeError('no ' + n)
        def f(x, a):
            out = [getattr(a, 'q', 5), hasattr(a, 'zz'), getattr(a, 'x_'), hasattr(a, 'x_')]
            try: a.boom
            except ValueError as e: out.append(str(e))
            try: getattr(a, 'w')
            except AttributeError as e: out.append(str(e))
            setattr(a, 'dyn', x)
            out.append(a.dyn + 1)
            delattr(a, 'dyn')
            out.append(hasattr(a, 'dyn'))
            return out
        ---
        run(T(3), A())
        """,
    ),
    "instance_method_attr": (
        1,
        "",
        """
        class A:
            def m(self, x): return x + 1
        def free(x): return x * 3
        a = A()
        def f(x, a):
            a.g = free
            a.m2 = a.m
            b = A()
            b.m = lambda x: x * 5
            import types
            b.bound = types.MethodType(lambda self, x: x + self.k, b)
            b.k = 2
            return a.g(x), a.m2(x), b.m(x), b.bound(x), a.m2.__self__ is a, A.m(a, x), a.m == a.m
        ---
        run(T(3), a)
        a.m2(T(2))
        """,
    ),
    "class_attr_mutation": (
        2,
        "",
        """
        class A:
            n = 0
            items = []
        def f(x):
            A.n += 1
            A.items.append(A.n)
            A.new = x
            a = A()
            a.n += 10
            return x + A.n, a.n, a.new
        ---
        run(T(3))
        run(T(3))
        A.n
        A.items
        """,
    ),
    "proxy_obj": (
        1,
        "",
        """
        class Proxy:
            def __init__(self, o): object.__setattr__(self, '_o', o)
            def __getattr__(self, n): return getattr(self._o, n)
            def __setattr__(self, n, v): setattr(self._o, n, v)
            def __call__(self, *a, **k): return self._o(*a, **k)
        class O:
            def __init__(self): self.k = 2
            def __call__(self, x): return x * self.k
        o = O()
        def f(x, o):
            p = Proxy(o)
            p.k = 7
            p.fresh = x
            return p(x), p.k, o.k
        ---
        run(T(3), o)
        o
        """,
    ),
    "fake_class": (
        1,
        "",
        """
        class A:
            @property
            def __class__(self): return int
        def f(x, a):
            return x + 1, isinstance(a, int), a.__class__ is int, type(a) is int
        ---
        run(T(3), A())
        """,
    ),
    "attr_dict_views": (
        0,
        "ATTRIBUTE_MUTATION",
        """
        class A:
            c = 1
            def __init__(self): self.a = 1; self.b = 2
        a = A()
        def f(x, a):
            a.__dict__.update(z=3)
            vars(a)['t'] = x
            d = dict(a.__dict__)
            n = A()
            n.__dict__ = {'q': x + 1} if False else n.__dict__
            for k, v in a.__dict__.items(): log.append(k)
            a.__dict__.pop('b')
            return d, 'b' in a.__dict__, list(vars(a)), len(vars(n)), a.__dict__.get('zz', 4), {**vars(n)}
        ---
        run(T(3), a)
        a
        """,
    ),
    "class_assign": (
        1,
        "ATTRIBUTE_MUTATION",
        """
        class A: k = 1
        class B: k = 2
        def f(x, a):
            a.__class__ = B
            return x + a.k
        ---
        run(T(3), A())
        """,
    ),
    "iter_protocols": (
        1,
        "",
        """
        class It:
            def __init__(self, n): self.n = n
            def __iter__(self):
                for i in range(self.n): yield i
        class Seq:
            def __len__(self): return 3
            def __getitem__(self, i):
                if i >= 3: raise IndexError
                return i * 10
        class Nx:
            def __init__(self): self.i = 0
            def __iter__(self): return self
            def __next__(self):
                self.i += 1
                if self.i > 3: raise StopIteration
                return self.i
        nx = Nx()
        def f(x, nx):
            a, *b = It(4)
            for i, s in enumerate(Seq()): x = x + s
            it = iter(Seq()); next(it)
            return a, b, x, list(It(2)), tuple(Seq()), sum(Nx()), next(nx), list(reversed(Seq())), 20 in Seq(), list(it), max(It(3)), dict(zip(It(2), Seq())), [*It(2), *Seq()], sorted(Seq(), reverse=True), next(iter(It(0)), 'none')
        ---
        run(T(3), nx)
        nx
        """,
    ),
    "functools_bits": (
        1,
        "",
        """
        class A:
            def __init__(self): self.n = 0
            @functools.cached_property
            def c(self):
                self.n += 1
                return self.n
            pm = functools.partialmethod(lambda self, a, b: a + b, 3)
            @functools.lru_cache
            def lc(self, k): return k + 1
        a = A()
        def f(x, a):
            return a.c, a.c, a.pm(x), a.lc(2)
        ---
        run(T(3), a)
        a
        """,
    ),
    "property_whose_subclass_reads_the_class": (
        2,
        """
        class classproperty(property):
            def __get__(self, instance, owner): return self.fget(owner)
        class A:
            k = 3
            def __init__(self): self.k = 5
            @classproperty
            def p(cls): return {'k': cls.k}
        class B(A):
            def q(self): return super().p['k'] * 10
        def f(x, b): return x * b.p['k'], x * type(b).p['k'], x * b.q()
        ---
        run(T(3), B())
        run(T(3), B())
        B.k = 4
        run(T(3), B())
    """,
    ),
    "subclasses_of_descriptors_with_slots_of_their_own": (
        SOME,
        """
        class doubled(property):
            def __get__(self, instance, owner): return self.fget(instance) * 10
            def __set__(self, instance, value): self.fset(instance, value * 2)
            def __delete__(self, instance): instance.gone = True
        class own(staticmethod):
            def __get__(self, instance, owner): return lambda x: self.__func__(x) + 1
        class bound(classmethod):
            def __get__(self, instance, owner): return lambda x: self.__func__(instance, x) + 1
        class A:
            v = 2
            def read(self): return self.v
            def write(self, v): self.v = v
            q = doubled(read, write)
            @own
            def plain(x): return x * 2
            @bound
            def of(held, x): return x * (7 if held is None else held.v)
        class B(A):
            def above(self, x): return super().q, super().plain(x), super().of(x)
        def f(x, b):
            b.q = 4
            y = x * b.q
            del b.q
            found = b.gone, b.plain(x), b.of(x), B.plain(x), B.of(x), b.above(x)
            return y, found
        ---
        run(T(3), B())
        run(T(3), B())
    """,
    ),
}
