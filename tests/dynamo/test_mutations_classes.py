"""One change between two calls: classes, bases, metaclasses, descriptors, registries of classes."""

from __future__ import annotations

from tests.dynamo.mutations import check_pair, pairs_of

PROGRAMS = {
    "methods": """
        class B:
            def m(self): return 1
        class A(B):
            def n(self): return self.m()
            @classmethod
            def c(cls): return 2
            @staticmethod
            def s(): return 3
        o = A()
        def other(self): return 5
        def nothing(*a): return 6
        was = B.m
        def f(x): return x * 2, o.n(), A.c(), o.c(), A.s(), o.s(), A().n()
        ---
        B.m = other  # undo: B.m = was
        A.m = other  # undo: del A.m
        o.m = lambda: 7  # undo: del o.m
        B.m.__code__ = other.__code__
        A.n = lambda self: 8
        A.n = staticmethod(lambda: 8)
        A.n = classmethod(lambda cls: cls)
        A.n = property(lambda self: nothing)
        A.c = classmethod(lambda cls: 9)
        A.c = staticmethod(nothing)
        A.s = nothing
        A.s = classmethod(nothing)
        del A.n
        del A.c
        A.s.__defaults__ = (1,)  # same
    """,
    "classmethod to staticmethod of one function": """
        def g(*a): return len(a)
        class A: m = staticmethod(g)
        o = A()
        def f(x): return x * 2, o.m(), A.m()
        ---
        A.m = classmethod(g)  # undo: A.m = staticmethod(g)
        A.m = g
        o.m = g  # same
        A.m = lambda *a: 5
    """,
    "attributes that are absent": """
        class M(type): pass
        class B: pass
        class A(B, metaclass=M): pass
        o = A()
        def read(o): return o.a
        def f(x):
            return (x * 2, outcome(read, o), outcome(read, A), hasattr(o, 'a'), hasattr(A, 'a'),
                    getattr(o, 'a', 5), getattr(A, 'a', 6), outcome(read, A()))
        ---
        A.a = 1  # undo: del A.a
        B.a = 1  # undo: del B.a
        M.a = 1  # undo: del M.a
        o.a = 1  # undo: del o.a
        A.a = property(lambda self: 2)  # undo: del A.a
        M.a = property(lambda cls: 3)  # undo: del M.a
        B.__getattr__ = lambda self, name: 4  # undo: del B.__getattr__
        M.__getattr__ = lambda cls, name: 4  # undo: del M.__getattr__
        A.__getattribute__ = lambda self, name: 4  # undo: del A.__getattribute__
    """,
    "attributes of a metaclass": """
        class N(type):
            def m(cls): return 1
        class M(N):
            @property
            def p(cls): return 2
            def n(cls): return cls.k + 1
            d = 3
        class A(metaclass=M): k = 4
        def f(x): return x * 2, A.m(), A.p, A.n(), A.d
        ---
        N.m = lambda cls: 5
        M.m = lambda cls: 5  # undo: del M.m
        A.m = lambda: 6  # undo: del A.m
        M.p = property(lambda cls: 5)
        M.p.fget.__code__ = (lambda cls: 7).__code__
        M.p = 5
        A.d = 9  # undo: del A.d
        M.n.__code__ = (lambda cls: 7).__code__
        M.d = 8
        M.d = property(lambda cls: 8)
        A.n = 5
        type.__setattr__(A, 'k', 7)
        del M.d
    """,
    "__getattr__ of a metaclass, replaced": """
        class M(type):
            def __getattr__(cls, name): return len(name)
        class A(metaclass=M): pass
        first = M.__getattr__
        def f(x): return x * A.abc, hasattr(A, 'abc')
        ---
        M.__getattr__ = lambda cls, name: 7  # undo: M.__getattr__ = first
        M.__getattr__.__code__ = (lambda cls, name: 8).__code__
        A.abc = 9  # undo: del A.abc
        M.abc = 9  # undo: del M.abc
    """,
    "bases": """
        class B:
            a = 1
            def m(self): return 1
        class C:
            a = 2
            def m(self): return 2
        class A(B):
            def m(self): return super().m() + 10
        class D(A): pass
        o, d = A(), D()
        def f(x):
            return (x * 2, o.a, d.m(), A.a, isinstance(d, B), issubclass(D, C), A().m(), A.__bases__[0] is B,
                    B in D.__mro__, D.mro()[2] is B)
        ---
        A.__bases__ = (C,)  # undo: A.__bases__ = (B,)
        A.__bases__ = (C, B)  # undo: A.__bases__ = (B,)
        A.__bases__ = (B, C)  # undo: A.__bases__ = (B,)
        D.__bases__ = (C,)  # undo: D.__bases__ = (A,)
        C.a = 3; A.__bases__ = (B, C)  # undo: A.__bases__ = (B,)
    """,
    "isinstance and issubclass": """
        class B: pass
        class C: pass
        class A(B): pass
        o = A()
        def f(x):
            return (x * 2, isinstance(o, B), isinstance(o, (C, int)), isinstance(o, B | C), issubclass(A, B),
                    isinstance(A(), C))
        ---
        o = C()
        o = 1
        A.__bases__ = (C,)
        B = C
        o.__class__ = C
    """,
    "class of an object": """
        class A:
            k = 1
            def m(self): return 1
        class B:
            k = 2
            def m(self): return 2
        class E(A): pass
        o = A()
        l = [A()]
        def f(x): return x * 2, o.k, o.m(), type(o) is A, o.__class__ is A, type(l[0]).__name__
        ---
        o.__class__ = B  # undo: o.__class__ = A
        o.__class__ = E  # undo: o.__class__ = A
        o = B()
        l[0] = B()
        A.__name__ = 'X'
        l[0].__class__ = E
    """,
    "abstract base classes": """
        class Abstract(abc.ABC):
            @abc.abstractmethod
            def m(self): pass
        class Known(abc.ABC): pass
        class A: pass
        class S(A): pass
        o, s = A(), S()
        def make(): return type(Abstract()).__name__
        def f(x):
            return (x * 2, isinstance(o, Known), issubclass(A, Known), isinstance(s, Known),
                    isinstance(A(), Known), outcome(make))
        ---
        Known.register(A)
        Known.register(S)
        Known.__subclasshook__ = classmethod(lambda cls, sub: True)  # same
        Abstract.__abstractmethods__ = frozenset()
        Known.__instancecheck__ = lambda self, o: True  # same
    """,
    "abstract base classes of the library": """
        class A: pass
        class P:
            def __len__(self): return 1
        o = A()
        def f(x):
            return (x * 2, isinstance(o, collections.abc.Sized), isinstance(o, collections.abc.Iterable),
                    isinstance(o, collections.abc.Sequence), isinstance(o, collections.abc.Hashable),
                    isinstance(o, collections.abc.Callable))
        ---
        A.__len__ = lambda self: 1  # same
        A.__iter__ = lambda self: iter(())  # same
        A.__eq__ = lambda self, other: True  # same
        collections.abc.Sequence.register(A)
        o = P()
    """,
    "protocols": """
        @typing.runtime_checkable
        class P(typing.Protocol):
            def m(self): ...
        class A: pass
        class H:
            def m(self): pass
        o = A()
        h = H()
        def f(x): return x * 2, isinstance(h, P), issubclass(H, P)
        ---
        del H.m  # same
        h = o
    """,
    "super()": """
        class R:
            def m(self): return 1
        class B(R): pass
        class A(B):
            def m(self): return super().m() + 10
            @classmethod
            def c(cls): return super().__init_subclass__ is not None
        o = A()
        def f(x): return x * 2, o.m(), A().m(), hasattr(super(A, o), 'absent')
        ---
        R.m = lambda self: 2
        B.m = lambda self: 3  # undo: del B.m
        R.m.__code__ = (lambda self: 4).__code__
        R.absent = 1  # undo: del R.absent
        B.absent = 1  # undo: del B.absent
        B.__bases__ = (type('R2', (R,), {'m': lambda self: 5}),)
        R.m = staticmethod(lambda: 6)
        R.m = property(lambda self: lambda: 7)
    """,
    "properties": """
        class A:
            @property
            def p(self): return self._p
            @p.setter
            def p(self, v): self._p = v + 1
            @p.deleter
            def p(self): log.append('deleted')
            def __init__(self): self._p = 1
        o = A()
        get, set_, delete = A.p.fget, A.p.fset, A.p.fdel
        def f(x):
            a = A()
            a.p = 5
            del a.p
            return x * 2, o.p, a._p, a.p
        ---
        A.p = property(lambda self: 2, set_, delete)
        A.p = property(get, lambda self, v: None, delete)
        A.p = property(get, set_, lambda self: None)
        A.p = property(get, set_)
        A.p = property(get)
        A.p.fget.__code__ = (lambda self: 3).__code__
        A.p.fset.__code__ = (lambda self, v: None).__code__
        A.p.fdel.__code__ = (lambda self: None).__code__
        A.p = 5
        del A.p
        o._p = 9
    """,
    "descriptors": """
        class D:
            def __get__(self, o, t): return self.k + (0 if o is None else 10)
            k = 1
        class A:
            d = D()
        first = D.__get__
        o = A()
        o.__dict__['d'] = 5
        n = A()
        def f(x): return x * 2, outcome(see, o.d), n.d if type(n.d) is int else 0, A.d if type(A.d) is int else 0
        ---
        D.k = 2
        A.__dict__['d'].k = 3
        D.__get__ = lambda self, o, t: 4  # undo: D.__get__ = first
        D.__get__.__code__ = (lambda self, o, t: 4).__code__
        del D.__get__
        D.__set__ = lambda self, o, v: None  # undo: del D.__set__
        D.__delete__ = lambda self, o: None  # undo: del D.__delete__
        A.d = 7
        A.__dict__['d'].__class__ = type('E', (D,), {'__get__': lambda *a: 8})
        del o.d
        A.d = type('E', (D,), {'k': 9})()
    """,
    "descriptors that store": """
        class D:
            def __set__(self, o, v): log.append(('set', v))
            def __delete__(self, o): log.append('deleted')
        class P: pass
        class A:
            d = D()
            p = P()
        o = A()
        def f(x):
            o.d = 1
            del o.d
            o.p = 2
            return x * 2, o.p
        ---
        D.__set__ = lambda self, o, v: log.append('other')
        D.__delete__ = lambda self, o: log.append('other')
        P.__set__ = lambda self, o, v: log.append('new'); P.__get__ = lambda self, o, t: 3
        A.d = D.__new__(type('E', (D,), {'__set__': lambda *a: log.append('E')}))
        D.__set__.__code__ = (lambda self, o, v: None).__code__
    """,
    "slots": """
        class B: __slots__ = ('a', 'b')
        class A(B): __slots__ = ()
        o = A()
        o.a = 1
        member = B.a
        def read(o): return o.b
        def f(x): return x * 2, o.a, outcome(read, o), hasattr(o, 'b')
        ---
        o.a = 2
        o.b = 3  # undo: del o.b
        del o.a  # undo: o.a = 1
        A.a = 5  # undo: del A.a
        A.a = property(lambda self: 6)  # undo: del A.a
        del B.a  # undo: B.a = member
        A.__getattr__ = lambda self, name: 7  # undo: del A.__getattr__
        o = type('S', (A,), {})()  # same
    """,
    "construction": """
        class M(type):
            def __call__(cls, *a): return super().__call__(*a)
        class B:
            def __init__(self, v=1): self.v = v
        class A(B): pass
        class C(metaclass=M):
            def __init__(self, v=1): self.v = v
        def f(x): return x * 2, A().v, A(3).v, C(5).v
        ---
        B.__init__ = lambda self, v=2: setattr(self, 'v', v)
        A.__init__ = lambda self, v=2: setattr(self, 'v', 9)  # undo: del A.__init__
        B.__init__.__defaults__ = (7,)
        B.__init__.__code__ = (lambda self, v=1: setattr(self, 'v', 8)).__code__
        A.__new__ = lambda cls, *a: types.SimpleNamespace(v=4)
        M.__call__ = lambda cls, *a: types.SimpleNamespace(v=6)
        del M.__call__  # same
        M.__call__.__defaults__ = (1,)  # same
        C.__init__ = lambda self, v: setattr(self, 'v', 6)
        A.__setattr__ = lambda self, n, v: object.__setattr__(self, n, v + 1)
    """,
    "dataclasses": """
        @dataclasses.dataclass
        class A:
            a: int = 1
            b: list = dataclasses.field(default_factory=list)
        @dataclasses.dataclass(frozen=True, order=True)
        class F: a: int = 1
        o, p = A(), F()
        def f(x):
            return x * 2, A().a, o == A(), p < F(2), dataclasses.replace(p, a=3).a, A().b
        ---
        o.a = 2
        A.__eq__ = lambda self, other: 5
        A.__init__.__defaults__ = (7, A.__init__.__defaults__[1])
        F.__lt__ = lambda self, other: 5
        F.__init__ = lambda self, a=9: object.__setattr__(self, 'a', 11)
        o.b.append(1)
        object.__setattr__(p, 'a', 4)
        A.a = 5  # same
    """,
    "fields of dataclasses": """
        @dataclasses.dataclass
        class A:
            a: int = 1
            b: int = 2
        o = A()
        def f(x): return x * 2, [d.name for d in dataclasses.fields(A)], dataclasses.asdict(o), dataclasses.astuple(o)
        ---
        del A.__dataclass_fields__['b']
        o.b = 5
        A.__dataclass_fields__ = {}
    """,
    "enums": """
        class E(enum.Enum):
            A = 1
            B = 2
            def m(self): return self.value + 1
            @property
            def p(self): return self._value_
        e = E.A
        def f(x): return x * e.value, e.m(), e is E.A, e.p, e.name, len(E), E['B'].m(), e in E
        ---
        e = E.B
        E.m = lambda self: 7
        E.m.__code__ = (lambda self: 8).__code__
        E.A._value_ = 5
        E.A._name_ = 'Z'
        E.p = property(lambda self: 4)
        E.p.fget.__code__ = (lambda self: 6).__code__
        type.__setattr__(E, '__len__', None)  # same
        E._member_map_['C'] = E.A; E._member_names_.append('C')
    """,
    "missing members of enums": """
        class E(enum.Enum):
            A = 1
            B = 2
            @classmethod
            def _missing_(cls, v): return cls.A
        def f(x): return x * 2, E(9).name, E(2).name
        ---
        E._missing_ = classmethod(lambda cls, v: cls.B)
        E._missing_.__func__.__code__ = (lambda cls, v: cls.B).__code__
    """,
    "flags": """
        class E(enum.Flag):
            A = 1
            B = 2
        e = E.A | E.B
        def f(x): return x * 2, E.A in e, (e & E.B).value, bool(e ^ e), (~E.A).value
        ---
        e = E.A
        E.__and__ = lambda self, other: E.A
        E.__bool__ = lambda self: True
    """,
    "named tuples": """
        class N(typing.NamedTuple):
            a: int
            b: int = 2
            def m(self): return self.a + self.b
        n = N(1)
        def f(x): return x * 2, n.m(), n.a, N(5).b, n._fields, N(3) == (3, 2)
        ---
        n = N(4)
        N.m = lambda self: 9
        N.m.__code__ = (lambda self: 8).__code__
        N.__new__.__defaults__ = (7,)
        N.a = property(lambda self: 6)
        N._fields = ('q',)
        N.__eq__ = lambda self, other: 5
        N.b = N.a
    """,
    "match statements": """
        class A:
            __match_args__ = ('a', 'b')
            def __init__(self): self.a, self.b = 1, 2
        class B(A): pass
        o = A()
        d = {'k': 1}
        l = [1, 2]
        def g(v):
            match v:
                case A(1, q): return 'args', q
                case A(a=p): return 'keyword', p
                case {'k': k}: return 'mapping', k
                case [p, q]: return 'pair', p, q
                case [p, *q]: return 'many', p
                case _: return 'other'
        def f(x): return x * 2, g(o), g(d), g(l)
        ---
        A.__match_args__ = ('b', 'a')
        o.a = 5
        o = B()  # same
        o = 5
        del d['k']
        d['k'] = 2
        l.append(3)
        l[0] = 7
        l = (1, 2)  # same
        A.__match_args__ = ()
        A = B
        B.__match_args__ = ('b',)  # same
    """,
    "subscripted classes": """
        T_ = typing.TypeVar('T_')
        class A:
            def __class_getitem__(cls, k): return k + 1
        class G(typing.Generic[T_]): pass
        def f(x): return x * 2, A[1], G[int].__origin__ is G, G[int] == G[int]
        ---
        A.__class_getitem__ = classmethod(lambda cls, k: 5)
        A.__class_getitem__.__func__.__code__ = (lambda cls, k: 6).__code__
        G = A
    """,
    "callables": """
        class A:
            def __call__(self, v=1): return v
        o = A()
        def g(): return 1
        l = [g]
        def f(x): return x * 2, o(), callable(o), callable(l[0]), l[0]()
        ---
        A.__call__ = lambda self, v=2: v
        A.__call__.__defaults__ = (3,)
        A.__call__ = o.__call__  # same
        l[0] = lambda: 2
        o = g; g.__code__ = (lambda: 4).__code__
        A.__call__ = staticmethod(lambda: 7)
        del A.__call__
    """,
    "context managers": """
        class A:
            def __enter__(self): return 1
            def __exit__(self, *e): return self.k
            k = True
        o = A()
        @contextlib.contextmanager
        def m():
            yield k
        k = 5
        def f(x):
            got = 0
            try:
                with o as got, m() as more: raise ValueError
            except ValueError: return x * 2, got
            return x * 3, got, more
        ---
        A.k = False
        o.k = False
        k = 6
        A.__enter__ = lambda self: 2
        A.__exit__ = lambda self, *e: False
        A.__exit__.__code__ = (lambda self, *e: None).__code__
    """,
    "iterators": """
        class I:
            def __init__(self): self.n = 0
            def __iter__(self): return self
            def __next__(self):
                self.n += 1
                if self.n > 2: raise StopIteration
                return self.n
        class Old:
            def __getitem__(self, k):
                if k > 2: raise IndexError
                return k
        o = Old()
        def f(x): return x * 2, list(I()), list(o), sum(o), 2 in o, [*zip(o, I())]
        ---
        I.__next__ = lambda self: (_ for _ in ()).throw(StopIteration)
        I.__iter__ = lambda self: iter([7])
        Old.__getitem__ = lambda self, k: [5][k]
        Old.__iter__ = lambda self: iter([6])  # undo: del Old.__iter__
        Old.__contains__ = lambda self, k: k == 9  # undo: del Old.__contains__
        Old.__iter__ = None  # undo: del Old.__iter__
    """,
    "reflected operators of two classes": """
        class A:
            def __add__(self, other): return 'A'
        class B:
            def __radd__(self, other): return 'B'
        class C(A): pass
        a, b, c = A(), B(), C()
        def f(x): return x * 2, outcome(operator.add, a, b), outcome(operator.add, a, c), outcome(operator.add, 1, b)
        ---
        A.__add__ = lambda self, other: NotImplemented
        C.__radd__ = lambda self, other: 'C'  # undo: del C.__radd__
        del A.__add__
        B.__radd__ = lambda self, other: 'D'
        B.__radd__ = None
        B.__bases__ = (A,) if False else B.__bases__  # same
        b = C()
    """,
    "hashing and equality in containers": """
        class K:
            def __init__(self, n): self.n = n
            def __hash__(self): return self.n
            def __eq__(self, other): return type(other) is K and self.n == other.n
        k = K(1)
        d = {k: 'a'}
        def f(x): return x * 2, outcome(d.get, K(1)), K(1) in d, len({K(1), K(1)}), K(1) == k, [K(1)].count(k)
        ---
        K.__eq__ = lambda self, other: self is other
        K.__hash__ = lambda self: id(self)
        k.n = 2
        K.__eq__.__code__ = (lambda self, other: False).__code__
    """,
    "text": """
        class A:
            def __str__(self): return 's'
            def __repr__(self): return 'r'
        o = A()
        def f(x): return x * 2, f'{o}', f'{o!r}', '%s' % o, '{}'.format(o), str([o]), ' '.join(map(str, [o]))
        ---
        A.__str__ = lambda self: 't'
        A.__repr__ = lambda self: 'u'
        A.__format__ = lambda self, spec: 'f'
        del A.__str__
        A.__str__.__code__ = (lambda self: 'v').__code__
        o.__str__ = lambda: 'w'  # same
    """,
    "dict subclasses": """
        class S(dict):
            def __missing__(self, k): return self.n
            n = 1
        s = S(a=2)
        def read(k): return s[k]
        def f(x): return x * 2, outcome(read, 'z'), outcome(read, 'a'), 'z' in s, s.get('z'), len(s), bool(s), list(s)
        ---
        S.n = 2
        S.__missing__ = lambda self, k: 3
        del S.__missing__
        S.__getitem__ = lambda self, k: 4  # undo: del S.__getitem__
        S.__contains__ = lambda self, k: True  # undo: del S.__contains__
        S.get = lambda self, k: 5  # undo: del S.get
        S.__len__ = lambda self: 7  # undo: del S.__len__
        S.__bool__ = lambda self: False  # undo: del S.__bool__
        S.__iter__ = lambda self: iter('q')  # undo: del S.__iter__
        s['z'] = 1
        s.clear()
    """,
    "list subclasses": """
        class S(list): pass
        s = S([1, 2])
        def f(x): return x * 2, s[0], len(s), list(s), 1 in s, s == [1, 2], s + [3], s.index(2), bool(s), [*map(abs, s)]
        ---
        S.__getitem__ = lambda self, k: 4  # undo: del S.__getitem__
        S.__len__ = lambda self: 7  # undo: del S.__len__
        S.__iter__ = lambda self: iter('q')  # undo: del S.__iter__
        S.__contains__ = lambda self, k: False  # undo: del S.__contains__
        S.__eq__ = lambda self, o: False  # undo: del S.__eq__
        S.__add__ = lambda self, o: 5  # undo: del S.__add__
        S.index = lambda self, o: 6  # undo: del S.index
        S.__bool__ = lambda self: False  # undo: del S.__bool__
        s.append(3)
        s.reverse()
    """,
    "subclasses of literals": """
        class I(int): pass
        class S(str): pass
        class F(float): pass
        i, s, v = I(2), S('ab'), F(1.5)
        def f(x): return x * 2, i + 1, s.upper(), v * 2, str(i), i == 2, len(s), 'a' in s, -i, f'{v}'
        ---
        I.__add__ = lambda self, o: 5  # undo: del I.__add__
        S.upper = lambda self: 'X'  # undo: del S.upper
        F.__mul__ = lambda self, o: 5.0  # undo: del F.__mul__
        I.__str__ = lambda self: 'i'  # undo: del I.__str__
        I.__eq__ = lambda self, o: False  # undo: del I.__eq__
        S.__len__ = lambda self: 9  # undo: del S.__len__
        S.__contains__ = lambda self, o: False  # undo: del S.__contains__
        I.__neg__ = lambda self: 0  # undo: del I.__neg__
        F.__format__ = lambda self, spec: 'F'  # undo: del F.__format__
        i = I(3)
        s = 'ab'  # same
    """,
    "exceptions": """
        class E(ValueError):
            k = 1
            def __str__(self): return 'E'
        class G(Exception): pass
        kinds = (E,)
        def g():
            try: raise E('a')
            except kinds as e: return e.k, str(e), e.args
            except ValueError: return 'other'
        def f(x): return x * 2, outcome(g)
        ---
        E.k = 2
        E.__str__ = lambda self: 'F'
        kinds = (G,)
        kinds = E  # same
        E.__init__ = lambda self, *a: setattr(self, 'k', 5)
        E.__bases__ = (TypeError,); kinds = TypeError  # same
        E.__init__ = lambda self, *a: ValueError.__init__(self, 'other')
    """,
    "weak references and finalizers": """
        class A: k = 1
        o = A()
        r = weakref.ref(o)
        def f(x): return x * 2, r() is None, getattr(r(), 'k', 0)
        ---
        del o
        A.k = 2
        r = weakref.ref(A())
    """,
    "setting attributes": """
        class A:
            a = 1
        class M(type): pass
        class C(metaclass=M): a = 1
        o = A()
        def f(x):
            o.b = 5
            return x * 2, o.__dict__.get('b')
        ---
        A.b = property(lambda self: 1, lambda self, v: log.append(v))  # undo: del A.b
        A.__setattr__ = lambda self, n, v: log.append(n)  # undo: del A.__setattr__
        A.__slots__ = ()  # same
        o = type('S', (), {'__slots__': 'b', '__dict__': {}})()
    """,
    "defaults that instances of the frame hide": """
        class B: b = None
        class A(B):
            a = 1
            def __init__(self): self.a, self.b = 3, 4
        @dataclasses.dataclass
        class D: a: int = 1
        def f(x):
            o = A()
            return x * 2, o.a, o.b, D().a, D(5).a
        ---
        A.a = property(lambda self: 7, lambda self, v: None)
        B.b = property(lambda self: 8, lambda self, v: None)
        D.a = property(lambda self: 9, lambda self, v: None)
        A.a = 2  # same
        B.b = 5  # same
    """,
    "classes said to be of the library, and of builtins": """
        A = types.new_class('A', exec_body=lambda ns: ns.update(a=1, m=lambda self: 2))
        B, space = abc.ABCMeta('B', (), {'a': 3}), {}
        exec('class C:\\n    def __init__(self): self.v = 1', space)
        C, o = space['C'], A()
        def f(x): return x * 2, o.a, o.m(), B().a, C().v, hasattr(o, 'z'), isinstance(o, B)
        ---
        A.m = lambda self: 5
        A.a = property(lambda self: 9)
        A.z = 1  # undo: del A.z
        B.a = 7
        C.v = property(lambda self: 8, lambda self, v: None)
        B.register(A)
    """,
    "names of classes and functions": """
        class A:
            'doc'
            def m(self): 'mdoc'
        def g(a: int): 'gdoc'
        g.__wrapped__ = A.m
        def f(x):
            return (x * 2, A.__name__, A.__qualname__, A.__module__, A.__doc__, g.__name__, g.__qualname__,
                    g.__doc__, g.__module__, sorted(g.__annotations__), g.__wrapped__ is A.m, A.m.__name__,
                    g.__code__.co_name, g.__defaults__, g.__kwdefaults__, sorted(g.__dict__))
        ---
        A.__name__ = 'B'
        A.__qualname__ = 'B'
        A.__module__ = 'other'
        A.__doc__ = 'other'
        g.__name__ = 'h'
        g.__qualname__ = 'h'
        g.__doc__ = 'other'
        g.__module__ = 'other'
        g.__annotations__ = {}
        g.__annotations__['b'] = int
        g.__wrapped__ = g
        A.m.__name__ = 'n'
        g.__code__ = (lambda a: 1).__code__
        g.__defaults__ = (1,)
        g.__kwdefaults__ = {'k': 1}
        g.extra = 1
        del g.__wrapped__
    """,
    "representations, which no guard asks for": """
        class M(type):
            def __repr__(cls): log.append('M'); return 'M'
        class A(metaclass=M):
            def __repr__(self): log.append('A'); return 'A'
        a = b = A()
        m = types.ModuleType('m'); m.v = 1
        m.__getattr__ = lambda name: log.append(name)
        d = {a: 1}
        def f(x): return x * 2, a is b, isinstance(a, A), d[a], a == b, m.v
        ---
        b = A()
        d[b] = 2  # same
        m.v = 2
    """,
    "subclasses": """
        class B: pass
        class A(B): pass
        def f(x): return x * 2, [c.__name__ for c in B.__subclasses__()]
        ---
        class C(B): pass
        A.__name__ = 'Z'
    """,
    "methods of named tuples": """
        N = collections.namedtuple('N', 'a b', defaults=[2])
        class U(typing.NamedTuple): a: int = 1
        n, u = N(1), U()
        def f(x): return x * 2, n._asdict(), n._replace(b=5), u._asdict(), u._replace(a=4)
        ---
        N._fields = ('b', 'a')
        N._asdict = lambda self: 1
        N._replace = lambda self, **k: 1
        N._make = classmethod(lambda cls, i: 4)
        U._replace = lambda self, **k: 5
    """,
    "lists of attributes": """
        class B: b = 1
        class A(B): a = 1
        o = A()
        def f(x):
            return (x * 2, 'c' in vars(o), sorted(vars(o)), 'c' in A.__dict__,
                    [n for n in vars(A) if n[:2] != '__'])
        ---
        o.c = 1
        A.c = 1
        B.c = 1  # same
        del A.a
        o.__dict__ = {'z': 1}
    """,
}


@pairs_of(PROGRAMS)
def test_classes(pair):
    check_pair(pair)
