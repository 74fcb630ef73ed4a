"""Classes defined in a frame, and what they are used for."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    "class_state_shared": (
        1,
        """
        def f(x):
            class A:
                seen = []
                count = 0
                def __init__(self):
                    A.seen.append(len(A.seen))
                    A.count += 1
                    type(self).last = self
            a, b = A(), A()
            A.extra = x * 2
            return A, a, b, A.seen, b.count, a.last is b, a.extra
        ---
        r = run(T(2))
        r[0].seen is r[3], r[0].count, r[0].last is r[2], type(r[1]) is r[0]
        q = run(T(2))
        q[0] is r[0], q[3]
        """,
    ),
    "class_cell_later": (
        1,
        """
        def f(x):
            k = 1
            class A:
                v = k
                def get(self): return k + x
            k = 10
            a = A()
            k = 100
            return a.get(), a.v, A
        ---
        r = run(T(2))
        r[2]().get()
        """,
    ),
    "class_at_break": (
        None,
        """
        import dynamo
        def f(x):
            log.append('s')
            class A:
                n = 0
                items = []
                def __init__(self, v): self.v = v; A.items.append(1); A.n += 1
                @property
                def p(self): return self.v + A.n
                @p.setter
                def p(self, v): self.v = v
            a = A(x * 2)
            b = A(a)
            a.p = a.p + 1
            dynamo.graph_break()
            c = A(3)
            return a.p, b.v is a, len(A.items), A.n, isinstance(c, A), type(a) is A
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "class_loop": (
        1,
        """
        def f(x):
            made = []
            for i in range(3):
                class A:
                    k = i
                    def go(self, x): return x + self.k + i
                made.append(A)
            return [m().go(x) for m in made], made[0] is made[1], {m: m.k for m in made}[made[1]], made
        ---
        r = run(T(2))
        [m.k for m in r[3]], r[3][0]().go(1)
        """,
    ),
    "class_dataclass_kinds": (
        1,
        """
        import dataclasses as dc
        from dataclasses import dataclass
        def f(x):
            @dataclass(frozen=True, order=True)
            class P:
                a: int
                b: int = 3
                def both(self): return self.a + self.b
            @dataclass(slots=True)
            class Q(P.__mro__[1]):
                t: object
                u: list = dc.field(default_factory=lambda: [1])
            p, q = P(1), P(2, 4)
            s = Q(x + 1)
            s.u.append(2)
            try: p.a = 5
            except dc.FrozenInstanceError as e: m = str(e)
            return p < q, p == P(1), hash(p) == hash(P(1)), repr(q), s.t, s.u, m, dc.replace(q, a=9).a, [f.name for f in dc.fields(P)], dc.asdict(p), q.both(), s, p
        ---
        r = run(T(2))
        r[-2].u, r[-1].both(), type(r[-1]).__dataclass_params__.frozen
        """,
    ),
    "class_post_init": (
        1,
        """
        from dataclasses import dataclass, field
        def f(x):
            @dataclass
            class B:
                a: object
                c: object = field(init=False)
                def __post_init__(self): self.c = self.a * 2
            @dataclass
            class D(B):
                d: int = 5
            v = D(x)
            return v.c + v.d, v
        ---
        r = run(T(2))
        r[1].c, repr(type(r[1]).__mro__[1].__name__)
        """,
    ),
    "class_slots": (
        1,
        """
        def f(x):
            class A:
                __slots__ = ('v', 'w')
                def __init__(self, v): self.v = v
            a = A(x)
            try: a.zz = 1
            except AttributeError as e: m = 1
            try: a.w
            except AttributeError as e: m += 1
            return a.v + m, a
        ---
        run(T(2))[1].v
        """,
    ),
    "class_exception_uncaught": (
        1,
        """
        def f(x):
            class E(ValueError):
                def __init__(self, v): super().__init__('m', 1); self.v = v
            y = x * 2
            raise E(y)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "class_in_generator": (
        None,
        """
        import dynamo
        def g(x):
            class A:
                def __init__(self, v): self.v = v
            a = A(x)
            yield a
            yield isinstance(a, A), a.v + 1
        def f(x):
            it = g(x * 2)
            a = next(it)
            dynamo.graph_break()
            return next(it), a.v
        ---
        run(T(2))
        """,
    ),
    "class_returned_func": (
        0,
        """
        def f(x):
            class A:
                def m(self): return __class__, super().__repr__()[:1]
                @classmethod
                def c(cls): return cls
                @staticmethod
                def s(v, k=x): return v + k
            return A.m, A.c, A.s, A().m, A
        ---
        r = run(T(2))
        r[0](r[4]())[0] is r[4], r[1]() is r[4], r[2](1), r[3]()[0] is r[4], r[3].__self__.__class__ is r[4]
        """,
    ),
    "class_total_ordering": (
        None,
        """
        def f(x):
            @functools.total_ordering
            class A:
                def __init__(self, v): self.v = v
                def __eq__(self, o): return self.v == o.v
                def __lt__(self, o): return self.v < o.v
            return A(1) >= A(0), A(1) <= A(0), x + 1
        ---
        run(T(2))
        """,
    ),
    "class_subclass_builtin": (
        1,
        """
        def f(x):
            class L(list):
                def total(self): return sum(self)
            class D(dict):
                def __missing__(self, k): return k * 2
            class S(str): pass
            class I(int):
                def __add__(self, o): return I(int(self) * 10 + int(o))
            l = L([x, x + 1])
            l.append(x)
            d = D(a=1)
            return l.total(), d['zz'], d['a'], I(3) + I(4), S('q').upper(), len(l), l, d
        ---
        r = run(T(2))
        type(r[6]).__name__, type(r[7]).__name__, r[7]['kk']
        """,
    ),
    "class_callable_metaattrs": (
        None,
        """
        def f(x):
            class A:
                '''doc'''
                x: int = 3
                def __class_getitem__(cls, k): return (cls.__name__, k)
                def __init_subclass__(cls, **kw): pass
            return A[3], A.__name__, A.__doc__, A.__bases__, A.__mro__[1], A.__annotations__, hasattr(A, 'zz'), getattr(A, 'x'), A.__dict__['x'], vars(A)['x'], x + 1
        ---
        run(T(2))
        """,
    ),
    "class_cached_property": (
        1,
        """
        def f(x):
            class A:
                def __init__(self): self.n = 0
                @functools.cached_property
                def p(self): self.n += 1; return x * 2
            a = A()
            return a.p, a.p is a.p, a.n, a
        ---
        r = run(T(2))
        r[3].n, r[3].p is r[0]
        """,
    ),
    "class_with_generator_method": (
        None,
        """
        def f(x):
            class T3:
                def __init__(self, *k): self.k = k
                def __iter__(self):
                    yield from self.k
                def __enter__(self): log.append('in'); return self
                def __exit__(self, *a): log.append('out')
                def __contains__(self, v): return v in self.k
            with T3(1, x, 3) as t:
                s = [v * 2 for v in t]
            return s, 3 in t
        ---
        run(T(2))
        """,
    ),
    "class_global_statement": (
        1,
        """
        def f(x):
            global Made
            class Made:
                def go(self): return x + 1
            return Made().go()
        ---
        run(T(2))
        Made.__qualname__, Made().go()
        run(T(2))
        """,
    ),
    "class_nonlocal_in_body": (
        1,
        """
        def f(x):
            n = 0
            class A:
                nonlocal n
                n = 5
                m = n + 1
            return n, A.m, x + 1
        ---
        run(T(2))
        """,
    ),
    "class_kwargs_builtin_meta": (
        None,
        """
        def f(x):
            try:
                class A(metaclass=type, z=3): pass
            except TypeError as e: m = str(e)
            try:
                class B(int, str): pass
            except TypeError as e: k = str(e)
            try:
                class C(3): pass
            except TypeError as e: j = str(e)
            return m, k, j, x + 1
        ---
        run(T(2))
        """,
    ),
    "class_abstract": (
        1,
        """
        import abc
        def f(x):
            class B(abc.ABC):
                @property
                @abc.abstractmethod
                def p(self): ...
                @abc.abstractmethod
                def q(self): ...
            try: B()
            except TypeError as e: m = type(e).__name__
            class C(B):
                p = 3
                def q(self): return x * self.p
            return C().q(), m, sorted(B.__abstractmethods__), B, C
        ---
        r = run(T(2))
        sorted(r[3].__abstractmethods__), r[4].__abstractmethods__
        r[3]()
        """,
    ),
    "class_module_params": (
        1,
        """
        def f(x):
            class M(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = nn.Linear(2, 2)
                    self.k = 3
                def forward(self, x): return self.lin(x) * 0 + self.k
            m = M()
            return m(x), len(list(m.parameters()))
        ---
        run(T(2))
        """,
    ),
}
