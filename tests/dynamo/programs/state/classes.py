"""Classes, metaclasses and their instances that change between calls."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, captured=False, dynamic=(None, True), config={"recompile_limit": 64})
PROGRAMS = {
    "attribute_hidden_by_a_subclass": """
        class A: k = 1
        class B(A): pass
        class C(B): pass
        c = C()
        def f(x):
            A.k = A.late = x
            return c.k + 1, C.k * 2, c.late
        ---
        run(T(3))
        B.k = T(3) + 5
        run(T(3))
        C.late = 4
        run(T(3))
        del B.k, C.late
        run(T(3))
        c.k = 3
        run(T(3))
    """,
    "attribute_hidden_by_no_class_of_the_frame": """
        class A: k = 1
        def f(x):
            class B(A): pass
            A.k = x
            return B.k + 1, B().k
        ---
        run(T(3))
        A.k = 2
        run(T(3))
    """,
    "method_code_replaced": """
        class A:
            k = 2
            def m(self, x): return x + self.k
            @staticmethod
            def s(x): return x * 2
            @classmethod
            def c(cls, x): return x * cls.k
            @property
            def p(self): return self.k
        a = A()
        def f(x): return a.m(x) + a.s(x) * a.c(x) - a.p
        ---
        run(T(3))
        A.m.__code__ = (lambda self, x: x - self.k).__code__
        run(T(3))
        A.s.__code__ = (lambda x: x / 2).__code__
        run(T(3))
        A.__dict__['c'].__func__.__code__ = (lambda cls, x: x * 50).__code__
        run(T(3))
        A.p.fget.__code__ = (lambda self: 7).__code__
        run(T(3))
        A.k = 3
        run(T(3))
        a.k = 4
        run(T(3))
        del a.k
        run(T(3))
        A.p = property(lambda self: 1)
        run(T(3))
        A.p = 5
        run(T(3))
        A.s = classmethod(lambda cls, x: x)
        run(T(3))
        del A.s
        run(T(3))
    """,
    "mro_changes": """
        class Base:
            def m(self, x): return x + 1
        class Mid(Base): pass
        class Other:
            def m(self, x): return x * 3
        class Sub(Mid): pass
        s = Sub()
        def f(x): return s.m(x), isinstance(s, Other), issubclass(Sub, Mid), [c.__name__ for c in type(s).__mro__]
        ---
        run(T(3))
        Mid.m = lambda self, x: x - 1
        run(T(3))
        Sub.m = lambda self, x: x * 2
        run(T(3))
        del Sub.m
        run(T(3))
        del Mid.m
        run(T(3))
        Mid.__bases__ = (Other,)
        run(T(3))
        Mid.__bases__ = (Base,)
        run(T(3))
        Sub.__bases__ = (Mid, Other)
        run(T(3))
        Sub.__bases__ = (Mid,)
        run(T(3))
        s.m = lambda x: x * 100
        run(T(3))
        del s.m
        run(T(3))
        Base.m = Other.m
        run(T(3))
        del Base.m
        run(T(3))
    """,
    "mro_super": """
        class Base:
            def m(self, x): return x + 1
        class Mid(Base):
            pass
        class Sub(Mid):
            def m(self, x): return super().m(x) * 2
        s = Sub()
        def f(x): return s.m(x)
        ---
        run(T(3))
        Mid.m = lambda self, x: x - 1
        run(T(3))
        del Mid.m
        run(T(3))
        Base.m = lambda self, x: x * 9
        run(T(3))
        class Other:
            def m(self, x): return x * 30
        Mid.__bases__ = (Other,)
        run(T(3))
        Mid.__bases__ = (Base,)
        run(T(3))
    """,
    "getattr_added": """
        class A:
            pass
        a = A()
        a.v = 1
        def f(x): return x * getattr(a, 'w', 3) + a.v, hasattr(a, 'w')
        ---
        run(T(3))
        A.__getattr__ = lambda self, n: 8
        run(T(3))
        del A.__getattr__
        run(T(3))
        a.w = 5
        run(T(3))
        del a.w
        run(T(3))
        A.w = 6
        run(T(3))
        del A.w
        A.__getattribute__ = lambda self, n: 11
        run(T(3))
        del A.__getattribute__
        run(T(3))
        A.v = property(lambda self: 12)
        run(T(3))
        del A.v
        run(T(3))
        object.__setattr__(a, '__class__', type('B', (A,), {'w': 20}))
        run(T(3))
    """,
    "metaclass_attrs": """
        class Meta(type):
            k = 2
            def __call__(cls, *a): return type.__call__(cls, *a)
            def __instancecheck__(cls, o): return False
            def __contains__(cls, i): return i == 1
            def __len__(cls): return 3
            def __iter__(cls): return iter([1, 2])
            @property
            def p(cls): return 4
        class A(metaclass=Meta):
            def __init__(self, v=1): self.v = v
        def f(x): return x * A.k + A.p + A(3).v, isinstance(A(), A), isinstance(5, A), 1 in A, len(A), list(A)
        ---
        run(T(3))
        Meta.k = 3
        run(T(3))
        A.k = 10
        run(T(3))
        del A.k
        run(T(3))
        Meta.__instancecheck__ = lambda cls, o: True
        run(T(3))
        Meta.p = property(lambda cls: 5)
        run(T(3))
        Meta.__call__ = lambda cls, *a: type.__call__(cls, 9)
        run(T(3))
        del Meta.__call__
        run(T(3))
        Meta.__contains__ = lambda cls, i: False
        run(T(3))
        Meta.__len__ = lambda cls: 30
        run(T(3))
        Meta.__iter__ = lambda cls: iter([3])
        run(T(3))
        Meta.__getattribute__ = lambda cls, n: type.__getattribute__(cls, n) if n != 'k' else 77
        run(T(3))
        del Meta.__getattribute__
        run(T(3))
    """,
    "namedtuple_state": """
        P = collections.namedtuple('P', 'a b')
        p = P(1, T(3))
        def f(x): return x * p.a + p.b, p, p._asdict(), p == (1, 2), isinstance(p, P)
        ---
        r = run(T(3))[0]
        p = P(2, T(3))
        r = run(T(3))[0]
        p = P(2, 5)
        run(T(3))
        p = p._replace(a=3.0)
        run(T(3))
        class Q(P):
            @property
            def a(self): return 50
        p = Q(1, 2)
        run(T(3))
        Q.a = property(lambda self: 51)
        run(T(3))
        P.b = 5
        run(T(3))
        p = P(1, 2)
        run(T(3))
    """,
    "dataclass_state": """
        @dataclasses.dataclass
        class D:
            a: int = 1
            b: object = None
            c: list = dataclasses.field(default_factory=lambda: [1])
        @dataclasses.dataclass(frozen=True)
        class F:
            a: int = 1
        d, fz = D(), F()
        def f(x): return x * d.a + len(d.c), d == D(), dataclasses.asdict(d), dataclasses.replace(d, a=5), fz.a, F(3), [fl.name for fl in dataclasses.fields(d)], D(2).a, repr(d)
        ---
        run(T(3))
        d.a = 2
        run(T(3))
        d.b = 3
        run(T(3))
        d.c.append(5)
        run(T(3))
        object.__setattr__(fz, 'a', 9)
        run(T(3))
        D.__dataclass_fields__['c'].default_factory = lambda: [1, 2, 3]
        run(T(3))
        D.a = 10
        run(T(3))
        D.__init__.__defaults__
        D.__init__.__defaults__ = (30, *D.__init__.__defaults__[1:])
        run(T(3))
        D.__post_init__ = lambda self: setattr(self, 'a', 77)
        run(T(3))
        D.__eq__ = lambda s, o: 'never'
        run(T(3))
        D.__repr__ = lambda s: 'repr'
        run(T(3))
    """,
    "enum_state": """
        class E(enum.Enum):
            A = 1
            B = 2
        class I(enum.IntEnum):
            A = 1
            B = 2
        class Fl(enum.Flag):
            A = 1
            B = 2
        e, i, fl = E.A, I.A, Fl.A
        def f(x): return x * e.value * i, e is E.A, e.name, fl | Fl.B, E(1), E['A'], len(E), list(I), e in E, i == 1, hasattr(e, 'foo')
        ---
        run(T(3))
        e = E.B
        run(T(3))
        i = I.B
        run(T(3))
        fl = Fl.A | Fl.B
        run(T(3))
        e._value_ = 50
        run(T(3))
        e._value_ = 2
        e.foo = 5
        run(T(3))
        del e.foo
        E.m = 4
        run(T(3))
        i = 2
        run(T(3))
    """,
    "enum_class": """
        class E(enum.Enum):
            A = 1
            B = 2
            def m(self): return self.value
            def __getattr__(self, n):
                if n.startswith('q'):
                    log.append(n); return 5
                raise AttributeError(n)
        e = E.A
        def f(x): return x * e.m(), getattr(e, 'zz', 3)
        ---
        run(T(3))
        e.m = lambda: 9
        run(T(3))
        del e.m
        E.m = lambda self: 7
        run(T(3))
        E.zz = 5
        run(T(3))
        E.zz = 6
        run(T(3))
        E.zz = T(3)
        run(T(3))
        type.__delattr__(E, 'zz')
        run(T(3))
        e.zz = 4
        run(T(3))
    """,
    "enum_getattr": """
        class E(enum.Enum):
            A = 1
            B = 2
            def m(self): return self.value
            def __getattr__(self, n):
                if n.startswith('q'):
                    log.append(n); return 5
                raise AttributeError(n)
        e = E.A
        def f(x): return x * e.qq, hasattr(e, 'aa'), e
        ---
        run(T(3)), log
        run(T(3)), log
    """,
    "enum_uses": """
        class E(enum.Enum):
            A = 1
            B = 2
        class S(str, enum.Enum):
            A = 'a'
        class Fl(enum.IntFlag):
            R = 4
            W = 2
        def f(x): return x + 1, E.A.name, E.A.value, S.A + 'b', S.A.value, S.A.upper(), Fl.R | Fl.W, (Fl.R | Fl.W).name, Fl(6).value, E.A.__class__, E.A.__doc__, E.A.__module__, hash(E.A) == hash(E.A), E.A.__hash__() == hash(E.A), repr(E.A), str(S.A), f'{Fl.R}', [m for m in Fl(6)], Fl.R in Fl(6), bool(Fl(0)), ~Fl.R, E.__members__['A'], E.A._name_, E.A._value_, isinstance(E.A, E), E.A == E.B, E.A in (E.B, E.A), {E.A: 1}[E.A], type(E.A).__name__, Fl.R.bit_length()
        ---
        run(T(3))
        run(T(3))
    """,
    "singledispatch": """
        import types
        m = types.ModuleType('m')  # whose content is not looked at: dispatching fills a cache
        m.g = functools.singledispatch(lambda v: 1)
        class A: pass
        class B(A): pass
        def f(x, v): return x * m.g(v)
        ---
        run(T(3), 5)
        m.g.register(int, lambda v: 2) and None
        run(T(3), 5)
        run(T(3), True)
        run(T(3), 'a')
        run(T(3), B())
        m.g.register(A, lambda v: 3) and None
        run(T(3), B())
        m.g.register(B, lambda v: 4) and None
        run(T(3), B())
        run(T(3), A())
        m.g.register(bool, lambda v: 5) and None
        run(T(3), True)
        m.g.register(torch.Tensor, lambda v: v) and None
        run(T(3), T(3))
    """,
    "abc_reg": """
        import abc
        class I(abc.ABC):
            @abc.abstractmethod
            def m(self): ...
        class A:
            pass
        class H(abc.ABC):
            @classmethod
            def __subclasshook__(cls, c): return hasattr(c, 'zz') or NotImplemented
        a = A()
        def f(x): return x * isinstance(a, I), issubclass(A, I), isinstance(a, H), isinstance(a, collections.abc.Iterable), isinstance(a, collections.abc.Sized), callable(a)
        ---
        run(T(3))
        I.register(A) and None
        run(T(3))
        A.zz = 1
        run(T(3))
        A.__iter__ = lambda self: iter([])
        run(T(3))
        A.__len__ = lambda self: 0
        run(T(3))
        A.__call__ = lambda self: 0
        run(T(3))
        del A.__call__
        run(T(3))
    """,
    "super_after_a_store_inside": """
        class A:
            def v(self): return 1
        class M(A): pass
        class B(M):
            def v(self): return super().v()
        b, c = B(), B()
        def f(x, n):
            before = b.v()
            if n == 1: A.v = lambda self: 5
            if n == 2: M.v = lambda self: 6
            if n == 3: del M.v
            return x * b.v() + before, super(B, c).v()
        ---
        run(T(3), 0)
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 0)
    """,
    "methods_of_another_type": """
        class C: pass
        o = C()
        C.v, C.__len__, C.t = 1, list.__len__, str.__str__
        def f(x):
            out = []
            x = x + 1
            for name in ('v', 't', '__len__'):
                try:
                    if getattr(o, name): x = x * 2
                except Exception as e: out.append(str(e))
            try: x = x + len(o)
            except TypeError as e: out.append(str(e))
            try: out.append(hasattr(o, 'v'))
            except TypeError as e: out.append(str(e))
            return x, out
        ---
        run(T(3))
        C.v = torch.Tensor.sin
        run(T(3))
        C.v = list.append
        run(T(3))
        C.v = 2
        run(T(3))
    """,
}
