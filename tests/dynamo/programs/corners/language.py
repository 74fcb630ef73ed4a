"""Corners of the language that CPython's own tests look into (tests/cpython)."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, captured=False)
PROGRAMS = {
    "conversions_by_lookup_order": (
        1,
        "",
        """
        class I(int):
            def __index__(self): return 42
        class S(str): pass
        class B(bytes): pass
        class C(complex): pass
        def f(x):
            z = C(1.5, -2)
            return x + 1, int(I(7)), float(S(" 1.5 ")), int(S("12")), int(B(b"3")), float(B(b"4")), z.real, z.imag, round(I(5)), round(I(5), None)
        ---
        run(T(3))
        """,
    ),
    "conversions_of_buffers": (
        1,
        "NOT_CALLABLE UNCAPTURED_CALL",
        """
        def f(x):
            y = x + 1
            return y, float(bytearray(b"2.5"))
        ---
        run(T(3))
        """,
    ),
    "str_of_bytes": (
        1,
        "",
        """
        def f(x):
            return x + 1, str(b"abc", "ascii"), str(b"\\xe4", "latin-1", "strict")
        ---
        run(T(3))
        """,
    ),
    "format_refused": (
        1,
        "",
        """
        class A: pass
        def refused(value):
            try: return format(value, ">10")
            except TypeError as error: return str(error)
        def f(x):
            return x + 1, refused([1]), refused(A()), refused(None)
        ---
        run(T(3))
        """,
    ),
    "repr_does_not_hide_str": (
        1,
        "",
        """
        class E(Exception):
            def __repr__(self): return "E!"
        class I(int):
            def __repr__(self): return "I!"
        def f(x):
            return x + 1, str(E("text")), repr(E("text")), str(I(3)), f"{I(3)}"
        ---
        run(T(3))
        """,
    ),
    "hash_of_nan": (
        1,
        "",
        """
        class F(float): pass
        def f(x):
            v, w = float("nan"), F("nan")
            return x + 1, hash(v) == hash(v), hash(w) == hash(w), {v: 1}[v]
        ---
        run(T(3))
        """,
    ),
    "frozenset_of_changed_set": (
        1,
        "",
        """
        s = {3}
        def f(x, s):
            s.add(5)
            return x + 1, frozenset(s)
        ---
        run(T(3), s)
        """,
    ),
    "isinstance_by_own_metaclass": (
        1,
        "",
        """
        class Meta(type):
            def __instancecheck__(cls, obj):
                log.append(("instance", cls.__name__))
                return getattr(obj, "member", False)
            def __subclasscheck__(cls, sub):
                log.append(("subclass", cls.__name__))
                return sub is int
        class A(metaclass=Meta): pass
        class B: member = True
        def f(x):
            return x + 1, isinstance(B(), A), isinstance(3, (A, str)), issubclass(int, A), issubclass(str, (A, str))
        ---
        run(T(3))
        run(T(3))
        """,
    ),
    "isinstance_claims": (
        1,
        "",
        """
        class A: pass
        class B:
            @property
            def __class__(self):
                log.append("asked")
                return A
        b = B()
        def f(x, b):
            return x + 1, isinstance(b, A), isinstance(b, B), isinstance(B(), A), isinstance(b, int | A)
        ---
        run(T(3), b)
        """,
    ),
    "isinstance_of_what_looks_like_a_class": (
        1,
        "UNCAPTURED_CALL",
        """
        class Class:
            def __init__(self, *bases): self.bases = bases
            __bases__ = property(lambda self: self.bases)
        class Instance:
            def __init__(self, cls): self.cls = cls
            __class__ = property(lambda self: self.cls)
        base = Class()
        sub = Class(base)
        obj = Instance(sub)
        def f(x, obj, base):
            y = x + 1
            return y, isinstance(obj, base)
        ---
        run(T(3), obj, base)
        """,
    ),
    "abc_registered_later": (
        2,
        "",
        """
        import abc
        class A(abc.ABC): pass
        class B: pass
        def f(x):
            return (x + 1, "yes") if isinstance(B(), A) else (x - 1, "no")
        ---
        run(T(3))
        A.register(B)
        run(T(3))
        """,
    ),
    "abc_in_python": (
        1,
        "OBJECT_DIES UNCAPTURED_CALL",
        """
        import _py_abc
        _py_abc.ABCMeta._abc_invalidation_counter = 0
        class A(metaclass=_py_abc.ABCMeta): pass
        class B: pass
        def f(x):
            before = issubclass(B, A)
            A.register(B)
            return x + 1, before, issubclass(B, A), isinstance(B(), A)
        ---
        run(T(3))
        """,
    ),
    "subclass_hook_runs_when_asked": (
        1,
        "UNCAPTURED_CALL",
        """
        import abc
        class A(abc.ABC):
            @classmethod
            def __subclasshook__(cls, other):
                log.append(other.__name__)
                return hasattr(other, "mine")
        class B: mine = 1
        def f(x):
            y = x + 1
            return y, isinstance(B(), A)
        ---
        run(T(3))
        run(T(3))
        """,
    ),
    "abstract_by_descriptor": (
        1,
        "CLASS_STATEMENT",
        """
        import abc
        class Descriptor:
            def __init__(self, get): self.get = get
            @property
            def __isabstractmethod__(self): return getattr(self.get, "__isabstractmethod__", False)
        def f(x):
            class C(abc.ABC):
                @Descriptor
                @abc.abstractmethod
                def foo(self): pass
            class D(abc.ABC):
                def foo(self): pass
                foo.__isabstractmethod__ = False
            try: C()
            except TypeError as error: return x + 1, type(error), bool(D())
        ---
        run(T(3))
        """,
    ),
    "super_of_a_stranger": (
        1,
        "",
        """
        class A:
            def f(self): return super().__init__
        def f(x):
            try: A.f(3)
            except TypeError as error: return x + 1, str(error)
        ---
        run(T(3))
        """,
    ),
    "operator_module_loaded_again": (
        1,
        "",
        """
        from test.support import import_helper
        again = import_helper.import_fresh_module("operator", fresh=["_operator"])
        def f(x):
            a = [1, 2, 3]
            again.setitem(a, 0, 5)
            again.delitem(a, 1)
            again.iconcat(a, [7])
            return x + 1, a, again.is_(a, a), again.call(len, a)
        ---
        run(T(3))
        """,
    ),
    "import_from_of_a_submodule": (
        1,
        "MODULE_IMPORT",
        """
        import sys, wsgiref
        def f(x):
            y = x + 1
            from wsgiref import types
            return y, types
        ---
        vars(wsgiref).pop("types", None) and sys.modules.pop("wsgiref.types", None) and None
        run(T(3))
        """,
    ),
    "copy_asks_the_object": (
        1,
        "UNCAPTURED_CALL",
        """
        import copy
        class A:
            def __getattribute__(self, name):
                if name.startswith("__reduce"): raise AttributeError(name)
                return object.__getattribute__(self, name)
        a = A()
        def f(x, a):
            y = x + 1
            try: copy.copy(a)
            except copy.Error as error: return y, type(error)
        ---
        run(T(3), a)
        """,
    ),
    "copies_of_unhashable_objects": (
        1,
        "",
        """
        import copy
        class A:
            def __init__(self): self.items = [1]
            def __eq__(self, other): return True
        a, b = A(), A()
        def f(x, a, b):
            return x + 1, copy.deepcopy([a, b, a])
        ---
        run(T(3), a, b)
        """,
    ),
    "super_prepare": (
        1,
        "UNCAPTURED_CALL",
        """
        class M(type):
            @classmethod
            def __prepare__(cls, *args, **kwargs):
                return super().__prepare__(*args, **kwargs)
        def f(x):
            return x + 1, M.__prepare__("A", ())
        ---
        run(T(3))
        """,
    ),
    "partialmethod_knows_its_object": (
        1,
        "",
        """
        class A:
            def add(self, n, m): return n + m
            three = functools.partialmethod(add, 3)
        a = A()
        def f(x, a):
            return x + a.three(4), a.three.__self__ is a, a.three
        ---
        run(T(3), a)[:2]
        run(T(3), a)[2].__self__ is a
        """,
    ),
    "readonly_members": (
        1,
        "ATTRIBUTE_MUTATION UNCAPTURED_CALL",
        """
        p = functools.partial(max, 1)
        def f(x, p):
            y = x + 1
            try: p.func = min
            except AttributeError as error: return y, p(2), str(error)
        ---
        run(T(3), p)
        """,
    ),
    "proxies": (
        1,
        "UNKNOWN_TYPE",
        """
        import weakref
        class A:
            v = 3
        a = A()
        p = weakref.proxy(a)
        def f(x, p):
            y = x + 1
            return y, p.v, isinstance(p, A)
        ---
        run(T(3), p)
        """,
    ),
    "mapping_proxies": (
        1,
        "UNCAPTURED_CALL UNKNOWN_OBJECT",
        """
        import types
        class M(dict):
            def __getitem__(self, key): return key * 2
        def refused(value):
            try: types.MappingProxyType(value)
            except TypeError as error: return str(error)
        def f(x, m):
            y = x + 1
            return y, refused(3), refused([]), types.MappingProxyType(m)["k"]
        ---
        run(T(3), M(a=1))
        """,
    ),
    "subscripts_and_unions_of_classes": (
        1,
        "",
        """
        class A:
            def __class_getitem__(cls, key):
                log.append(key)
                return cls, key
        class Meta(type):
            def __getitem__(cls, key): return key + 1
        class B(metaclass=Meta): pass
        def refused(function):
            try: return function()
            except TypeError as error: return str(error)
        def f(x):
            return x + 1, A[3], B[4], refused(lambda: int[3]), refused(lambda: int | 5), refused(lambda: 5 | int)
        ---
        run(T(3))
        """,
    ),
    "two_cells_of_one_name": (
        1,
        "UNSUPPORTED_OPCODE",
        """
        class A:
            def g(self, x):
                y = x + 1
                class X:
                    seen = __class__
                    def h(self): return __class__
                return y, X.seen, X().h().__name__
        a = A()
        def f(x, a): return a.g(x)
        ---
        run(T(3), a)
        """,
    ),
    "literals_subclasses_that_vary": (
        5,
        "",
        """
        class I(int): pass
        def f(x, i, n):
            i.seen = n
            return x + 1, i + n
        ---
        for k in range(4): run(T(3), I(k + 2), k + 3)
        i = I(9)
        run(T(3), i, 4), i.seen
        """,
    ),
    "caches_with_effects_on_new_objects": (
        1,
        "",
        """
        class I(int):
            count = 0
            @functools.lru_cache(2)
            def g(self, n):
                self.count += 1
                return self * n
        def f(x):
            a = I(5)
            y = x + 1
            return y, a.g(2), a.g(2), a.count
        ---
        run(T(3))
        """,
    ),
    "wrong_calls": (
        None,
        "",
        """
        class Format:
            def __format__(self, spec): return 1
        class S(str): pass
        def refused(function, *args, **kwargs):
            try: return function(*args, **kwargs)
            except TypeError as error: return str(error)
        def f(x):
            return (
                x + 1, refused(sorted, iterable=[1]), refused(vars, 42), refused(format, Format(), ""), refused(iter, 42, 42),
                refused(type, "A", [], {}), refused(type, "A", (), [1]),
                refused(dict, **{S("a"): 1}),
            )
        ---
        run(T(3))
        """,
    ),
    "members_that_hold_classes": (
        1,
        "",
        """
        class Kind(enum.Enum):
            number = int
            text = str
        class Point(tuple, enum.Enum):
            first = (1, 2)
        def f(x):
            return x + 1, Kind.number.value is int, Kind.text.value(3), Point.first == (1, 2), (1, 2) == Point.first, Kind(int)
        ---
        run(T(3))
        """,
    ),
    "members_that_were_missing": (
        1,
        "",
        """
        class Kind(enum.Enum):
            one = 1
            @classmethod
            def _missing_(cls, value):
                log.append(value)
                return cls.one
        def f(x):
            y = x + 1
            return y, Kind(7)
        ---
        run(T(3))
        run(T(3))
        """,
    ),
    "singledispatch_registered_in_the_frame": (
        1,
        "ATTRIBUTE_ACCESS UNCAPTURED_CALL",
        """
        @functools.singledispatch
        def kind(v): return "base"
        def f(x):
            y = x + 1
            before = kind("text")
            @kind.register(str)
            class Text:
                def __init__(self, v): self.v = v
            return y, before, kind("text").v, kind(3)
        ---
        run(T(3))[:2]
        """,
    ),
    "descriptors_copy_names": (
        1,
        "",
        """
        def f(x):
            def named(v):
                "Its text."
                return v
            @classmethod
            @functools.wraps(named)
            def wrapper(*args): return args
            class A:
                g = wrapper
            return x + 1, A
        ---
        vars(run(T(3))[1])["g"].__doc__
        vars(run(T(3))[1])["g"].__name__
        """,
    ),
    "unhashable_classes": (
        1,
        "UNKNOWN_OBJECT",
        """
        class Meta(type):
            def __eq__(cls, other): return True
        class A(metaclass=Meta):
            n = 1
        class B: pass
        def f(x):
            B.k = 2
            y = x + 1
            return y, A.n, A().n, B.k
        ---
        run(T(3))
        """,
    ),
    "properties_without_a_name": (
        1,
        "",
        """
        class A: pass
        A.p = property()
        a = A()
        def refused(function, *args):
            try: return function(*args)
            except AttributeError as error: return str(error)
        def f(x, a):
            return x + 1, refused(getattr, a, "p"), refused(setattr, a, "p", 1), refused(delattr, a, "p")
        ---
        run(T(3), a)
        """,
    ),
    "class_of_super": (
        1,
        "",
        """
        class A:
            def g(self): return super().__class__
        a = A()
        def f(x, a): return x + 1, a.g() is super
        ---
        run(T(3), a)
        """,
    ),
    "class_cell_that_holds_no_class": (
        1,
        "",
        """
        class A:
            def g(self): return super().__init__
        a, g = A(), A.g
        g.__closure__[0].cell_contents = 3
        def f(x, a):
            try: return a.g()
            except Exception as error: return x + 1, type(error), str(error)
        ---
        run(T(3), a)
        """,
    ),
    "class_dict_after_store": (
        1,
        "ATTRIBUTE_ACCESS",
        """
        class A: x = 1
        def f(x):
            y = x + 1
            A.new = 5
            return y, "new" in vars(A), A.new
        ---
        run(T(3))
        A.new
        """,
    ),
}
