"""Classes defined in a frame."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    "class_plain": (
        1,
        """
        def f(x):
            class A:
                k = 2
                def __init__(self, v): self.v = v
                def go(self, y): return self.v * y + self.k
            a = A(x)
            return a.go(x + 1)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "super_of_a_class_alone": (
        1,
        """
        class Outside(torch.utils.data.IterableDataset):
            def __init__(self, n):
                made = super(Outside)
                made.__init__()
                self.n, self.made = n, made
            def __iter__(self): return iter(range(self.n))
        def f(x):
            class Inside(torch.utils.data.IterableDataset):
                def __init__(self, n):
                    super(Inside).__init__()
                    self.n = n
                def __iter__(self): return iter(range(self.n))
            for i in [*Outside(3), *Inside(2)]: x = x + i
            made = Outside(4).made
            return x, made.__thisclass__, made.__self__.n
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "class_escapes": (
        1,
        """
        def f(x):
            class A:
                '''doc'''
                k = 2
                def __init__(self, v): self.v = v
                def go(self, y): return self.v * y + self.k
            return A, A(x), x * 2
        ---
        r = run(T(2))
        (r[0].__name__, r[0].__qualname__, r[0].__doc__, r[0].__module__, r[0].k, isinstance(r[1], r[0]), r[1].v)
        r[0](3).go(4)
        run(T(2))[0] is r[0]
        """,
    ),
    "class_closure": (
        1,
        """
        def f(x, n):
            y = x * 2
            class A:
                def go(self): return y + n
                def set(self):
                    nonlocal y
                    y = y + 100
            a = A()
            r = a.go()
            a.set()
            return r, y, a.go()
        ---
        run(T(2), 3)
        run(T(2), 3)
        """,
    ),
    "class_super": (
        1,
        """
        class B:
            def __init__(self, v): self.v = v
            def go(self): return self.v + 1
        def f(x):
            class A(B):
                def __init__(self, v):
                    super().__init__(v * 2)
                    self.c = __class__.__name__
                def go(self): return super().go() * 3
            a = A(x)
            return a.go(), a.c
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "class_dataclass": (
        1,
        """
        from dataclasses import dataclass, field
        def f(x):
            @dataclass
            class P:
                a: torch.Tensor
                b: int = 3
                c: list = field(default_factory=list)
            p = P(x + 1)
            q = P(x, 4, [1])
            return p.a * p.b + q.a, p.c, q.c, repr(q.b)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "class_namedtuple": (
        None,
        """
        from collections import namedtuple
        from typing import NamedTuple
        def f(x):
            P = namedtuple('P', 'a b')
            class Q(NamedTuple):
                a: int
                b: int = 3
            p = P(x, x + 1)
            q = Q(2)
            return p.a * q.b + p.b, p._fields, q._asdict()
        ---
        run(T(2))
        """,
    ),
    "class_enum": (
        None,
        """
        from enum import Enum
        def f(x):
            class C(Enum):
                A = 1
                B = 2
            return x + C.B.value, C['A'].name
        ---
        run(T(2))
        """,
    ),
    "class_meta": (
        None,
        """
        class M(type):
            def __new__(mcls, name, bases, ns, **kw):
                ns['made'] = tuple(kw.items())
                return super().__new__(mcls, name, bases, ns)
            def __init__(cls, name, bases, ns, **kw): super().__init__(name, bases, ns)
        def f(x):
            class A(metaclass=M, opt=3):
                def go(self, x): return x + 1
            return A().go(x), A.made
        ---
        run(T(2))
        """,
    ),
    "class_decorated": (
        1,
        """
        def deco(n):
            def d(cls):
                cls.n = n
                return cls
            return d
        def f(x):
            @deco(3)
            @deco(4)
            class A:
                @staticmethod
                def s(x): return x + 1
                @classmethod
                def c(cls, x): return x * cls.n
                @property
                def p(self): return self.n
            return A.s(x), A.c(x), A().p
        ---
        run(T(2))
        """,
    ),
    "class_init_subclass": (
        None,
        """
        class B:
            subs = []
            def __init_subclass__(cls, **kw):
                B.subs.append((cls.__name__, kw))
                super().__init_subclass__()
        def f(x):
            class A(B, tag='t'):
                def go(self, x): return x + 1
            return A().go(x), len(B.subs)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "class_exception": (
        1,
        """
        def f(x):
            class E(Exception):
                def __init__(self, v):
                    super().__init__('msg')
                    self.v = v
            try:
                raise E(x + 1)
            except E as e:
                return e.v * 2, str(e)
        ---
        run(T(2))
        """,
    ),
    "class_module": (
        1,
        """
        def f(x):
            class M(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.k = 2
                def forward(self, x): return x * self.k
            return M()(x)
        ---
        run(T(2))
        """,
    ),
    "class_body_code": (
        1,
        """
        def f(x):
            class A:
                ks = [i * 2 for i in range(3)]
                total = 0
                for k in ks: total += k
                if total > 3:
                    def big(self): return 'big'
                else:
                    def small(self): return 'small'
                del k
                z: int = 3
                __slots__ = ()
            return x + A.total, A().big(), A.__annotations__
        ---
        run(T(2))
        """,
    ),
    "class_global_body": (
        1,
        """
        g = 5
        def f(x):
            global g
            class A:
                g = g + 1
                h = len('abc')
            return x + A.g + A.h
        ---
        run(T(2))
        """,
    ),
    "class_shadow": (
        1,
        """
        def f(x):
            v = 1
            class A:
                v = v + 1 if False else 7
                def get(self): return v
            return x + A().get() + A.v
        ---
        run(T(2))
        """,
    ),
    "class_nested": (
        1,
        """
        def f(x):
            class A:
                class B:
                    def go(self, x): return x + 1
                b = B()
            return A.b.go(x), A.B.__qualname__
        ---
        run(T(2))
        """,
    ),
    "class_in_callee": (
        1,
        """
        def make(n):
            class A:
                def go(self, x): return x + n
            return A
        def f(x):
            A, B = make(1), make(2)
            return A().go(x) * B().go(x), A is B
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "class_operators": (
        1,
        """
        def f(x):
            class V:
                def __init__(self, t): self.t = t
                def __add__(self, o): return V(self.t + o.t)
                def __eq__(self, o): return True
                def __hash__(self): return 3
                def __len__(self): return 2
                def __getitem__(self, i): return self.t[i]
                def __call__(self, k): return self.t * k
                def __iter__(self): return iter([self.t, self.t])
            v = V(x) + V(x * 2)
            a, b = v
            return v.t, v == 3, len(v), v[0], v(3), a + b, {v: 1}[v]
        ---
        run(T(2))
        """,
    ),
    "class_tensor_attr": (
        1,
        """
        def f(x):
            class A:
                w = x * 2
            return A.w + 1
        ---
        run(T(2))
        run(T(2) + 1)
        """,
    ),
    "class_after_break": (
        None,
        """
        def f(x):
            class A:
                def __init__(self, v): self.v = v
                def go(self): return self.v + 1
            a = A(x * 2)
            print('hi', file=__import__('io').StringIO())
            dynamo_break()
            return a.go(), isinstance(a, A)
        import dynamo
        def dynamo_break(): dynamo.graph_break()
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "class_protocol_abc": (
        1,
        """
        import abc
        def f(x):
            class B(abc.ABC):
                @abc.abstractmethod
                def go(self): ...
            class A(B):
                def go(self): return x + 1
            return A().go(), issubclass(A, B)
        ---
        run(T(2))
        """,
    ),
    "class_generic": (
        None,
        """
        from typing import Generic, TypeVar
        T_ = TypeVar('T_')
        def f(x):
            class Box(Generic[T_]):
                def __init__(self, v): self.v = v
            return Box[int](x).v + 1, Box(x).v
        ---
        run(T(2))
        """,
    ),
    "class_descriptor": (
        None,
        """
        class D:
            def __set_name__(self, owner, name): self.name = '_' + name
            def __get__(self, o, t=None): return getattr(o, self.name)
            def __set__(self, o, v): setattr(o, self.name, v * 2)
        def f(x):
            class A:
                d = D()
            a = A()
            a.d = x
            return a.d + 1
        ---
        run(T(2))
        """,
    ),
    "autograd_function_inside": (
        2,
        """
        def f(x):
            class Fn(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x): return x * 2
                @staticmethod
                def backward(ctx, g): return g * 3
            return Fn.apply(x)
        ---
        run(T(2))
        a = T(2, grad=True)
        run(a).sum().backward()
        """,
    ),
    "class_typeddict": (
        None,
        """
        from typing import TypedDict
        def f(x):
            class D(TypedDict):
                a: int
            d = D(a=3)
            return x + d['a']
        ---
        run(T(2))
        """,
    ),
    "type_call": (
        1,
        """
        def f(x):
            A = type('A', (), {'k': 3, 'go': lambda self, y: y + self.k})
            return A().go(x), A.__name__
        ---
        run(T(2))
        """,
    ),
    "class_comp_cells": (
        1,
        """
        def f(x):
            class A:
                v = [(lambda: k)() for k in range(3)]
            return A.v, x + 1
        ---
        run(T(2))
        """,
    ),
    "init_subclass_super": (
        None,
        """
        class B:
            def __init_subclass__(cls, **kw): super().__init_subclass__(**kw); cls.made = True
        def f(x):
            class A(B): pass
            class C(A):
                def __init_subclass__(cls): cls.deep = 1
            class D(C): pass
            return x + 1, A.made, D.deep
        ---
        run(T(2))
        """,
    ),
}
