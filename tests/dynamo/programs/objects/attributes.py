"""The attribute protocol, special methods, and cycles of objects."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "prop": (
        1,
        "",
        """
        class A:
            def __init__(self): self._v = 1
            @property
            def v(self): return self._v
            @v.setter
            def v(self, x): self._v = x + 1
            @v.deleter
            def v(self): del self._v
        a = A()
        def f(x, a):
            a.v = x * 2
            y = a.v + 1
            del a.v
            b = A()
            b.v = 5
            try:
                a.v
            except AttributeError as e:
                log.append(str(e))
            return y, b.v, b
        ---
        run(T(3), a)
        run(T(3), a)
        """,
    ),
    "prop_errors": (
        1,
        "",
        """
        class A:
            @property
            def v(self): return 1
            w = property(None, lambda s, v: None)
        def f(x, a):
            out = []
            for op in (lambda: setattr(a, 'v', 2), lambda: delattr(a, 'v'), lambda: a.w, lambda: delattr(a, 'w'), lambda: delattr(a, 'zz'), lambda: setattr(a, 'w', 1)):
                try:
                    op()
                    out.append('fine')
                except AttributeError as e:
                    out.append(str(e))
            return x + 1, out
        ---
        run(T(3), A())
        """,
    ),
    "descriptor_full": (
        1,
        "",
        """
        class D:
            def __set_name__(self, owner, name): self.name = '_' + name
            def __get__(self, obj, owner=None):
                if obj is None: return self
                log.append('get')
                return obj.__dict__[self.name]
            def __set__(self, obj, value):
                log.append('set')
                obj.__dict__[self.name] = value
            def __delete__(self, obj):
                log.append('del')
                del obj.__dict__[self.name]
        class A:
            d = D()
        a = A()
        def f(x, a):
            a.d = x + 1
            y = a.d * 2
            z = A.d
            del a.d
            return y, hasattr(a, 'd') if False else 0, z is type(a).d
        ---
        run(T(3), a)
        run(T(3), a)
        """,
    ),
    "nondata_descriptor": (
        1,
        "",
        """
        class D:
            def __get__(self, obj, owner):
                return 3 if obj is None else obj.k
        class A:
            d = D()
            def __init__(self): self.k = 5
        def f(x, a):
            p = a.d
            a.d = 7
            return x + p, a.d, A.d
        ---
        run(T(3), A())
        """,
    ),
    "getattribute": (
        1,
        "",
        """
        class A:
            def __init__(self): self.n = 2
            def __getattribute__(self, name):
                if name.startswith('p_'): return 'p'
                return super().__getattribute__(name)
            def __getattr__(self, name):
                return name + '!'
        def f(x, a):
            return x * a.n, a.p_x, a.other, a.__class__.__name__, a.__dict__
        ---
        run(T(3), A())
        """,
    ),
    "getattribute_object": (
        1,
        "",
        """
        class A:
            def __init__(self): self.n = 2
            def __getattribute__(self, name):
                log.append(name)
                return object.__getattribute__(self, name)
        def f(x, a):
            a.m = 3
            return x * a.n + a.m
        ---
        run(T(3), A())
        """,
    ),
    "setattr_delattr": (
        1,
        "",
        """
        class A:
            def __setattr__(self, name, value):
                log.append(('set', name))
                object.__setattr__(self, name, value)
            def __delattr__(self, name):
                log.append(('del', name))
                super().__delattr__(name)
        a = A()
        def f(x, a):
            a.p = x
            a.q = 2
            del a.q
            try: del a.q
            except AttributeError as e: log.append(str(e))
            return a.p + 1
        ---
        run(T(3), a)
        run(T(3), a)
        """,
    ),
    "setattr_dict": (
        1,
        "",
        """
        class A(dict):
            __setattr__ = dict.__setitem__
            __getattr__ = dict.__getitem__
            __delattr__ = dict.__delitem__
        a = A(z=1)
        def f(x, a):
            a.p = x
            b = A()
            b.k = a.p + a.z
            del a.z
            return b, b.k
        ---
        run(T(3), a)
        a
        """,
    ),
    "slots": (
        2,
        "",
        """
        class A:
            __slots__ = ('a', 'b', '__dict__')
        class B:
            __slots__ = ('c',)
        class C(B):
            __slots__ = ('d',)
            def __init__(self): self.c = 1
        c = C()
        def f(x, c):
            a = A(); a.a = x; a.zz = 4
            n = C()
            n.d = a
            try: n.e = 5
            except AttributeError as e: log.append(type(e).__name__)
            try: n.q
            except AttributeError as e: log.append(str(e))
            try: a.b
            except AttributeError as e: log.append(str(e))
            c.d = x + 1
            del c.c
            return n, hasattr(c, 'c'), a.__dict__
        ---
        run(T(3), c)
        c.c = 4
        run(T(3), c)
        """,
    ),
    "static_class": (
        1,
        "",
        """
        class A:
            k = 4
            @staticmethod
            def s(x): return x + 1
            @classmethod
            def c(cls, x): return x * cls.k
            @classmethod
            def make(cls): return cls()
        class B(A):
            k = 5
        def f(x, b):
            return b.s(x), b.c(x), B.c(x), A.c(x), B.s(x), b.make(), type(B.make()).__name__, B.make().k
        ---
        run(T(3), B())
        """,
    ),
    "super_forms": (
        1,
        "",
        """
        class A:
            def __init__(self, v=1): self.v = v
            def m(self, x): return x + self.v
            @property
            def p(self): return 10
            @classmethod
            def c(cls): return cls.__name__
            @staticmethod
            def s(): return 's'
        class B(A):
            def __init__(self):
                super(B, self).__init__(3)
            def m(self, x): return super().m(x) * 2
            @property
            def p(self): return super().p + 1
            @classmethod
            def c(cls): return 'B' + super().c()
            @staticmethod
            def s(): return 'B' + super(B, B).s()
            def n(self, x):
                sup = super()
                return sup.m(x) + sup.p
            def lam(self, x):
                g = lambda: super(B, self).m(x)
                return g()
            def comp(self, x):
                return [super(B, self).m(i) for i in (x, x)]
        class C(B):
            def m(self, x): return super(B, self).m(x)
        def f(x, b, c):
            return b.m(x), b.p, b.c(), b.s(), b.n(x), b.lam(x), b.comp(x), c.m(x), C().v
        ---
        run(T(3), B(), C())
        """,
    ),
    "meta_call": (
        1,
        "",
        """
        class M(type):
            def __call__(cls, *args, **kw):
                log.append('call')
                o = super().__call__(*args, **kw)
                o.tag = cls.__name__
                return o
        class A(metaclass=M):
            def __init__(self, v): self.v = v
        def f(x):
            a = A(x)
            return a.v + 1, a.tag, a
        ---
        run(T(3))
        """,
    ),
    "meta_singleton": (
        2,
        "",
        """
        class M(type):
            _inst = {}
            def __call__(cls, *args):
                if cls not in cls._inst:
                    cls._inst[cls] = super().__call__(*args)
                return cls._inst[cls]
        class A(metaclass=M):
            def __init__(self, v): self.v = v
        def f(x):
            return A(3) is A(4), A(5).v + x
        ---
        run(T(3))
        run(T(3))
        A._inst
        """,
    ),
    "meta_getattr": (
        1,
        "",
        """
        class M(type):
            def __getattr__(cls, name): return name * 2
            @property
            def mp(cls): return cls.__name__
            def mm(cls, y): return y + cls.k
            def __len__(cls): return 3
            def __iter__(cls): return iter([1, 2])
            def __contains__(cls, i): return i == 5
            def __getitem__(cls, i): return i * 2
            def __bool__(cls): return False
        class A(metaclass=M):
            k = 1
        def f(x):
            return A.foo, A.mp, A.mm(x), len(A), list(A), 5 in A, A[4], bool(A)
        ---
        run(T(3))
        """,
    ),
    "prepare_class": (
        1,
        "CLASS_STATEMENT",
        """
        class M(type):
            @classmethod
            def __prepare__(mcs, name, bases): return {'injected': 5}
        def f(x):
            class A(metaclass=M):
                b = 2
            return x + A.injected + A.b
        ---
        run(T(3))
        """,
    ),
    "init_subclass": (
        1,
        "CLASS_STATEMENT",
        """
        reg = []
        class Base:
            def __init_subclass__(cls, tag=None, **kw):
                super().__init_subclass__(**kw)
                cls.tag = tag
                reg.append(cls.__name__)
        class K(Base, tag='t'): pass
        def f(x):
            class L(Base, tag='u'):
                def m(self, x): return x + 1
            return L().m(x), L.tag, K.tag
        ---
        run(T(3))
        reg
        """,
    ),
    "class_getitem": (
        1,
        "",
        """
        class A:
            def __class_getitem__(cls, item): return (cls.__name__, item)
        import typing
        TT = typing.TypeVar('TT')
        class G(typing.Generic[TT]):
            def __init__(self, v): self.v = v
        def f(x):
            return A[3], A['k'], G[int](x).v + 1, x
        ---
        run(T(3))
        """,
    ),
    "new_args": (
        0,
        "",
        """
        class P:
            def __new__(cls, a, *rest, k=1):
                self = object.__new__(cls)
                self.a = a; self.k = k
                return self
            def __init__(self, a, b=2, k=3): self.b = b
        class S:
            _one = None
            def __new__(cls):
                if cls._one is None:
                    cls._one = super().__new__(cls)
                    cls._one.n = 0
                cls._one.n += 1
                return cls._one
        class F:
            def __new__(cls, v): return v
        def f(x):
            p = P(x, 5, k=9)
            return p, F(3), S(), S() is S()
        ---
        run(T(3))
        run(T(3))
        """,
    ),
    "op_mixed": (
        1,
        "",
        """
        class V:
            def __init__(self, t): self.t = t
            def __add__(self, o): return V(self.t + (o.t if isinstance(o, V) else o))
            def __radd__(self, o): return V(o + self.t)
            def __iadd__(self, o):
                self.t = self.t + o
                return self
            def __mul__(self, o): return NotImplemented
            def __rmul__(self, o): return ('r', o, self.t)
            def __matmul__(self, o): return self.t @ o
            def __rsub__(self, o): return ('rsub', o)
            def __pow__(self, o): return ('pow', o)
            def __rpow__(self, o): return ('rpow', o)
            def __neg__(self): return V(-self.t)
            def __pos__(self): return self
            def __invert__(self): return 'inv'
            def __abs__(self): return 'abs'
            def __divmod__(self, o): return ('dm', o)
            def __truediv__(self, o): return ('td', o)
            def __floordiv__(self, o): return ('fd', o)
            def __mod__(self, o): return ('mod', o)
            def __rmod__(self, o): return ('rmod', o)
            def __and__(self, o): return ('and', o)
            def __or__(self, o): return ('or', o)
            def __xor__(self, o): return ('xor', o)
            def __lshift__(self, o): return ('ls', o)
            def __rshift__(self, o): return ('rs', o)
            def __round__(self, n=None): return ('round', n)
            def __trunc__(self): return 7
            def __floor__(self): return 8
            def __ceil__(self): return 9
        def f(x, v):
            w = v + v
            v += x
            z = 2 + v
            return w, v, z, v + 1, 3 * v, 3 - v, v ** 2, 2 ** v, -v, +v is v, ~v, abs(v), divmod(v, 3), v / 2, v // 2, v % 2, v & 1, v | 1, v ^ 1, v << 1, v >> 1, 'a%s' % 3, 5 % v, round(v), round(v, 2), math.trunc(v), math.floor(v), math.ceil(v)
        ---
        v = V(T(3))
        run(T(3), v)
        v
        """,
    ),
    "op_tensor_left": (
        0,
        "",
        """
        class V:
            def __radd__(self, o): return ('radd', o)
            def __rmatmul__(self, o): return ('rmm', o)
            def __rmul__(self, o): return ('rmul', o)
            def __rtruediv__(self, o): return ('rdiv', o)
            def __eq__(self, o): return 'eq'
            def __lt__(self, o): return 'lt'
            def __gt__(self, o): return 'gt'
            __hash__ = None
        def f(x, v):
            return x + v, x @ v, x * v, x / v, x == v, v == x, x < v, v < x, v > x
        ---
        run(T(3), V())
        """,
    ),
    "op_errors": (
        1,
        "UNCAPTURED_CALL",
        """
        class V: pass
        def f(x, v):
            out = []
            for g in (lambda: v + 1, lambda: 1 + v, lambda: -v, lambda: v < v, lambda: len(v), lambda: v[0], lambda: v(), lambda: iter(v), lambda: 1 in v, lambda: next(v), lambda: int(v), lambda: float(v), lambda: abs(v), lambda: round(v), lambda: v.__setitem__, lambda: [1,2][v], lambda: hash([v]), lambda: V(3)):
                try: out.append(g())
                except Exception as e: out.append((type(e).__name__, str(e)))
            try: v[0] = 1
            except TypeError as e: out.append(str(e))
            try: del v[0]
            except TypeError as e: out.append(str(e))
            try:
                with v: pass
            except Exception as e: out.append((type(e).__name__, str(e)))
            return x + 1, out
        ---
        run(T(3), V())
        """,
    ),
    "dunder_misc": (
        1,
        "NOT_GRAPH_ARGUMENT UNCAPTURED_CALL",
        """
        class V:
            def __init__(self, *i): self.i = list(i)
            def __call__(self, a, *, k=2): return a * k
            def __contains__(self, o): return o in self.i
            def __len__(self): return len(self.i)
            def __getitem__(self, k): return self.i[k]
            def __setitem__(self, k, v): self.i[k] = v
            def __delitem__(self, k): del self.i[k]
            def __reversed__(self): return iter(self.i[::-1])
            def __index__(self): return 2
            def __int__(self): return 5
            def __float__(self): return 2.5
            def __complex__(self): return 1j
            def __format__(self, s): return 'F' + s
            def __str__(self): return 'S'
            def __repr__(self): return 'R'
            def __bytes__(self): return b'B'
            def __hash__(self): return 3
            def __eq__(self, o): return isinstance(o, V) and self.i == o.i
            def __bool__(self): return len(self.i) > 2
            def __length_hint__(self): return 3
            def __dir__(self): return ['b', 'a']
            def __missing__(self, k): return k
        def f(x):
            v = V(1, 2, 3)
            w = V(1, 2, 3)
            v[0] = 4
            v[0] = 1
            u = V(1)
            del u[0]
            d = {v: 1}
            d[w] = 2
            return v(x), v(x, k=3), 2 in v, 9 in v, len(v), v[1], v[1:], list(reversed(v)), [5, 6, 7][v], int(v), float(v), complex(v), f'{v}', f'{v:>3}', f'{v!r}', f'{v!s}', str(v), repr(v), '%s' % v, format(v, 'x'), len(d), d[V(1,2,3)], v in {w}, bool(v), not v, bool(u), [v, w], x[v:] , range(v), v == w, v != w, dir(v), 'ab' * 2, [0] * v, (1,)*v
        ---
        run(T(3))
        """,
    ),
    "ctx": (
        1,
        "",
        """
        class C:
            def __enter__(self):
                log.append('in'); return self
            def __exit__(self, t, v, tb):
                log.append((t and t.__name__, str(v))); return t is KeyError
        def f(x, c):
            with c as d, C() as e:
                y = x + 1
                log.append(d is c)
            with C():
                raise KeyError('k')
            try:
                with C():
                    raise ValueError('v')
            except ValueError: pass
            return y
        ---
        run(T(3), C())
        """,
    ),
    "abc": (
        1,
        "",
        """
        import abc
        class A(abc.ABC):
            @abc.abstractmethod
            def m(self, x): ...
            @property
            @abc.abstractmethod
            def p(self): ...
        class B(A):
            def m(self, x): return x + self.p
            @property
            def p(self): return 3
        class Q(A): pass
        def f(x):
            b = B()
            try: A()
            except TypeError as e: log.append(str(e))
            try: Q()
            except TypeError as e: log.append(str(e))
            return b.m(x), isinstance(b, A), issubclass(B, A)
        ---
        run(T(3))
        """,
    ),
    "mixin_mro": (
        1,
        "",
        """
        class Base:
            def go(self, x): return [('base', x)]
        class A(Base):
            def go(self, x): return [('A', x + 1)] + super().go(x)
        class B(Base):
            def go(self, x): return [('B', x + 2)] + super().go(x)
        class C(A, B):
            def go(self, x): return [('C', x)] + super().go(x)
        def f(x, c):
            return c.go(x), [k.__name__ for k in type(c).__mro__], [k.__name__ for k in C.mro()], C.__bases__, A.__subclasses__()
        ---
        run(T(3), C())
        """,
    ),
    "cyclic": (
        1,
        "",
        """
        class N: pass
        def f(x):
            n = N()
            n.me = n
            n.v = x + 1
            a, b = N(), N()
            a.o = b; b.o = a
            l = []
            l.append(l)
            d = {}
            d['d'] = d
            l.append(x * 2)
            return n, a, l, d
        ---
        run(T(3))
        """,
    ),
    "cyclic2": (
        1,
        "",
        """
        class N: pass
        keep = N()
        def f(x, k):
            l = [1]
            n = N()
            n.items = l
            l.append(n)
            t = (n, l)
            n.t = t
            k.n = n
            d = {'l': l}
            l.append(d)
            s = set()
            n.s = s
            s.add(n)
            def fn(): return fn, n
            n.fn = fn
            return x + 1
        ---
        run(T(3), keep)
        keep.n.t[0] is keep.n
        keep.n.fn()[1] is keep.n
        """,
    ),
    "cyclic_parent": (
        1,
        "REQUESTED_BREAK",
        """
        class Node:
            def __init__(self, v, parent=None):
                self.v = v; self.parent = parent; self.kids = []
                if parent is not None: parent.kids.append(self)
        def f(x):
            r = Node(x)
            c = Node(x + 1, r)
            d = Node(x + 2, c)
            torch._dynamo.graph_break()
            return r, d.parent is c
        ---
        run(T(3))
        """,
    ),
    "outside_order": (
        2,
        "",
        """
        class O:
            pass
        a, b = O(), O()
        def f(x, a, b):
            a.x = x; b.y = a; a.z = b; a.x = x + 1
            b.y = [a, b]
            lst = b.y
            lst.append(a)
            a.lst = lst
            return lst
        ---
        run(T(3), a, b)
        run(T(3), a, a)
        """,
    ),
    "alias": (
        0,
        "",
        """
        class O:
            def __init__(self): self.l = [1]
        o = O()
        def f(x, o, p):
            q = o.l
            q.append(x)
            p.l.append(2)
            return q is p.l, o is p, len(o.l)
        ---
        run(T(3), o, o)
        run(T(3), o, O())
        """,
    ),
    "copies_of_objects_that_hear_of_reads": (
        1,
        """
        import copy
        class Config:
            names = {"width": "size"}
            def __init__(self):
                self.size, self.labels = 3, {0: "a", 1: "b"}
            def __getattribute__(self, key):
                log.append(key)
                names = super().__getattribute__("names")
                return super().__getattribute__(names.get(key, key))
        def f(x, n):
            m, shallow = copy.deepcopy(n), copy.copy(n)
            m.size += 1
            m.labels[0] = "c"
            held = copy.deepcopy(m.__dict__)
            return x * m.width, held, n.labels, shallow.labels is n.labels
        ---
        run(T(3), Config())
        run(T(3), Config())
    """,
    ),
    "copies_of_objects_that_answer_for_reducers": """
        import copy
        class Odd:
            size = 3
            def __getattribute__(self, key):
                if key == "__reduce_ex__":
                    return lambda protocol: (Odd, ())
                return object.__getattribute__(self, key)
        def f(x, n):
            m, c = copy.deepcopy(n), copy.copy(n)
            return x * n.size, m.__dict__, c.__dict__
        def odd():
            made = Odd()
            made.size = 4
            return made
        ---
        run(T(3), odd())
        run(T(3), odd())
    """,
    "identities_beside_small_numbers": (
        1,
        """
        def f(x, n, seen):
            return x + len(seen), id(n) in seen, [k for k in seen if k == id(n)]
        ---
        n = [1]
        run(T(3), n, {0: 1, -5: 2})
        run(T(3), [2], {0: 1, -5: 2})
    """,
    ),
}
