"""Corners of classes, metaclasses and modules that CPython's own tests look into; every frame is
rewritten, the standard library's, too.
"""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, captured=False, config={"rewrite_all_frames": True})
PROGRAMS = {
    "an_enum_links_what_missing_raises": """
        class Color(enum.Enum):
            red = 1
            @classmethod
            def _missing_(cls, item):
                if item == "bad": return 5
                if item == "error": raise ZeroDivisionError
                if item == "wrong": raise ValueError("wrong")
        def f(x):
            found = []
            for item in ("bad", "error", "wrong", "none"):
                try: Color(item)
                except Exception as error:
                    found.append((type(error), type(error.__context__), str(error)))
            return x + 1, found
        ---
        run(T(3))
        """,
    "an_enums_metaclass_has_methods_of_its_own": """
        class Meta(enum.EnumType):
            def __call__(cls, *args): return ("call", *args)
            def __iter__(cls): return iter([1, 2])
            def __len__(cls): return 7
            def __contains__(cls, x): return x == 5
            def __getitem__(cls, x): return ("item", x)
            def __bool__(cls): return False
        class E(enum.Enum, metaclass=Meta):
            A = 1
        def f(x):
            y = x + 1
            return y, E(3), len(E), 5 in E, 1 in E, E["q"], 1 if E else 2, list(E)
        ---
        run(T(3))
        """,
    "cells_of_library_functions_at_a_break": """
        def f(x):
            class Auto(enum.EnumMeta):
                def __new__(metacls, cls, bases, d):
                    return super(Auto, metacls).__new__(metacls, cls, bases, d)
            d = Auto.__prepare__("A", (enum.Enum,))
            A = Auto.__new__(Auto, "A", (enum.Enum,), d)
            return x + 1, A.__name__
        ---
        run(T(3))
        """,
    "walks_over_its_globals": """
        def keep(name, value): return print(end="") is None and name.startswith("WALK_")
        WALK_A, WALK_B = 1, 2
        def f(x):
            y = x + 1
            print(end="")
            return y, [name for name, value in globals().items() if keep(name, value)]
        ---
        run(T(3))
        """,
    "special_methods_of_a_metaclass": """
        class M(type):
            def __eq__(cls, o): return True
            def __ne__(cls, o): return False
            def __hash__(cls): return 5
            def __lt__(cls, o): return "lt"
            def __add__(cls, o): return ("add", o)
            def __radd__(cls, o): return ("radd", o)
            def __neg__(cls): return "neg"
            def __len__(cls): return 0
            def __contains__(cls, o): return o == 1
            def __str__(cls): return "STR"
            def __repr__(cls): return "REPR"
            def __iter__(cls): return iter([1, 2])
            def __format__(cls, spec): return "FMT" + spec
            def __index__(cls): return 3
            def __dir__(cls): return ["a"]
            def __getattr__(cls, n): return "attr " + n
        class A(metaclass=M): pass
        class B: pass
        def f(x):
            y = x + 1
            compared = A == 1, 1 == A, A != 1, A is B, A == A, B == A, A == B, A < 3, A < B, 3 > A
            numbers = A + 1, 1 + A, -A, [5, 6, 7, 8][A], range(9)[:A], float(A)
            truths = 1 if A else 2, not A, len(A), bool(A), 1 in A, 2 in A
            texts = str(A), repr(A), f"{A}", "%s" % A, f"{A:>3}", A.foo
            return y, compared, numbers, truths, texts, list(A), [*A], dir(A)
        ---
        run(T(3))
        """,
    "keys_that_a_metaclass_compares": """
        class M(type):
            def __eq__(cls, o): return True
            def __hash__(cls): return 5
        class A(metaclass=M): pass
        def f(x):
            return x + 1, hash(A), {5: "x"}.get(A), A in {5}, {A: 1}[5], [3].index(A), [3].count(A)
        ---
        run(T(3))
        """,
    "one_code_in_two_modules": """
        __src = compile("def g(x):\\n  print('', end='')\\n  return x+K\\n", "<prog2>", "exec")
        __ns1 = {"K": 1}; __ns2 = {"K": 2}
        exec(__src, __ns1); exec(__src, __ns2)
        g1, g2 = __ns1["g"], __ns2["g"]
        def call(g, x):
            print(end='')
            r = g(x)
            print(end='')
            return r
        def f(x, g):
            y = x + 1
            print(end='')
            return y, call(g, x)
        ---
        run(T(3), g1)
        run(T(3), g2)
        run(T(3), g1)
        """,
    "one_code_in_new_globals_each_time": """
        __src = compile(
            "y = sorted([print(end='') for q in range(2)], key=str)\\n"
            "[print(q, end='') for q in (1, 2)]\\n"
            "[q + k for q in (1, 2)]", "<other>", "exec"
        )
        def f(x):
            y = x + 1
            print(end='')
            exec(__src, {"k": 0})
            exec(__src, {"k": 1})
            return y
        ---
        run(T(3))
        run(T(3))
        """,
    "modules_of_a_class_of_their_own": """
        import types, sys
        def tries(fn, *a):
            try: return fn(*a)
            except Exception as e: return type(e).__name__, str(e)
        class MM(types.ModuleType):
            def __getattribute__(self, name):
                log.append(("getattr", name))
                return types.ModuleType.__getattribute__(self, name)
            def __setattr__(self, name, value):
                log.append(("setattr", name, value))
                types.ModuleType.__setattr__(self, name, value)
        class SubType(types.ModuleType): a = 1
        def setd(m): m.__dict__ = {}
        def f(x):
            y = x + 1
            a = MM("a")
            a.foo = 12
            z = a.foo
            m = types.ModuleType("m")
            r = [hasattr(m, "a")]
            m.__class__ = SubType
            r += [m.__class__ is SubType, hasattr(m, "a"), tries(setd, m), tries(setd, SubType("q"))]
            u = types.ModuleType.__new__(types.ModuleType)
            r.append(not u.__dict__)
            u.foo = 1
            r.append(u.__dict__ == {"foo": 1})
            return y, z, r
        ---
        run(T(3))
        """,
    "what_a_new_class_is_refused_for": """
        def conflict():
            class A: pass
            class B: pass
            class C(A, B): pass
            class D(A, B): pass
            class E(C, D): pass
            try: C.__bases__ = (B, A)
            except TypeError as e: return str(e)
            return [k.__name__ for k in A.__subclasses__()]
        def cell():
            try:
                class C3:
                    __classcell__ = 42
                    __slots__ = ["__classcell__"]
            except TypeError as e: return str(e)
        def qual():
            try:
                class Q2:
                    __qualname__ = object()
                    __slots__ = ["__qualname__"]
            except TypeError as e: return str(e)[:20]
        class A(int):
            __eq__ = str.__eq__
            __add__ = str.__add__
            __hash__ = None
        def tries(fn, *a):
            try: return fn(*a)
            except Exception as e: return type(e).__name__, str(e)[:20]
        class SpecialDescr:
            def __init__(self, impl): self.impl = impl
            def __get__(self, obj, owner):
                log.append("get")
                return self.impl.__get__(obj, owner)
        def number(self, key): return (4, key)
        class DictSub(dict): __missing__ = SpecialDescr(number)
        class X:
            __instancecheck__ = lambda self, other: True
            def __getattribute__(self, name): log.append(name); return object.__getattribute__(self, name)
            __instancecheck__ = SpecialDescr(lambda self, thing: True)
        def f(x):
            y = x + 1
            a = A()
            return y, conflict(), cell(), qual(), tries(lambda: a == a), tries(lambda: a + a), DictSub()["hi"], isinstance(int, X())
        ---
        run(T(3))
        """,
    "keys_of_an_instance_dict_that_compare_themselves": """
        class Evil:
            def __hash__(self): return hash('attr')
            def __eq__(self, other):
                try: del C.attr
                except AttributeError: pass
                return 0
        class Descr:
            def __get__(self, ob, type=None): return 1
        class C:
            attr = Descr()
        def f(x):
            y = x + 1
            c = C()
            c.__dict__[Evil()] = 0
            return y, c.attr, hasattr(c, "attr")
        ---
        run(T(3))
        """,
    "special_methods_of_with_are_bound_once": """
        record = []
        class SpecialDescr:
            def __init__(self, impl): self.impl = impl
            def __get__(self, obj, owner):
                record.append(1)
                return self.impl.__get__(obj, owner)
        class X: pass
        X.__enter__ = SpecialDescr(lambda self: self)
        X.__exit__ = lambda *a: None
        class Y: pass
        Y.__exit__ = SpecialDescr(lambda *a: None)
        Y.__enter__ = lambda self: self
        def f(x, X):
            m = X()
            with m:
                y = x + 1
            return y, record
        ---
        run(T(3), X)
        run(T(3), Y)
        """,
    "special_methods_of_with_are_the_classs": """
        class X:
            def __enter__(self): return 1
            def __exit__(self, *a): log.append("class"); return True
        class A:
            async def __aenter__(self): return 1
            async def __aexit__(self, *a): log.append("class"); return True
        def run_co(c):
            try: c.send(None)
            except StopIteration as e: return e.value
        async def g(a):
            async with a: raise ValueError
            return 5
        def f(x, X):
            m = X()
            m.__enter__ = m.__exit__ = lambda *a: log.append("own")
            with m:
                y = x + 1
                raise ValueError
            a = A()
            a.__aenter__ = a.__aexit__ = 5
            return y, run_co(g(a))
        ---
        run(T(3), X)
        log
        """,
    "what_a_descriptors_closure_holds": """
        def make():
            record = []
            class SpecialDescr:
                def __init__(self, impl): self.impl = impl
                def __get__(self, obj, owner):
                    record.append(1)
                    return self.impl.__get__(obj, owner)
            out = []
            for i in range(2):
                record = []
                class X: pass
                X.__enter__ = lambda self: self
                X.__exit__ = SpecialDescr(lambda *a: None)
                out.append((record, X))
            return out, lambda: record
        (r1, X1), (r2, X2) = make()[0]
        def f(m, x):
            with m: pass
        ---
        run(X1(), T(3))
        run(X2(), T(3))
        r1, r2
        """,
    "what_dataclass_and_field_refuse": """
        from dataclasses import dataclass, field, fields
        class Named:
            pass
        Named.__set_name__ = lambda self, owner, name: log.append(name)
        def f(x):
            y = x + 1
            class Odd(list): pass
            class Un:
                __hash__ = None
            said = []
            def attempt(make):
                try: return make() is None
                except (ValueError, TypeError) as error: said.append(str(error))
            def one():
                @dataclass
                class C:
                    z: Odd = Odd()
            def two():
                @dataclass
                class C:
                    z: int = Un()
            def three():
                @dataclass
                class C:
                    z: int = field(metadata=0)
            def four():
                field(default=1, default_factory=list)
                log.append("not reached")
            def five():
                d = {}
                @dataclass
                class C:
                    z: int = field(metadata=d, default=1)
                d["a"] = 1
                said.append(fields(C)[0].metadata["a"])
            def six():
                @dataclass
                class C:
                    z: int = field(default=Named(), init=False)
            for make in (one, two, three, four, five, six): attempt(make)
            return y, said
        ---
        run(T(2))
        """,
    "code_that_has_no_hash": """
        def plain(x): return x * 2
        def strange(x): return x * 3 + 0
        code = strange.__code__
        strange.__code__ = code.replace(co_consts=tuple({} if c == 0 and type(c) is int else c for c in code.co_consts))
        del code
        def f(x, g):
            try: return g(x + 1)
            except TypeError as error: return str(error)
        ---
        run(T(2), plain)
        run(3, strange)
        """,
    "weak_sets_shrink_by_themselves": """
        import weakref
        class O: pass
        def f(x, s):
            y = x + 1
            return y, len(list(s)), len({type(o) for o in s}), len(s)
        ---
        held = [O(), O()]
        s = weakref.WeakSet(held)
        run(T(2), s)
        held.pop()
        run(T(2), s)
        """,
    "products_options_come_first": """
        def f(x):
            y = x + 1
            try: return itertools.product(0, repeat=1, foo=2)
            except TypeError as error: return y, str(error)
        ---
        run(T(2))
        """,
    "modules_whose_class_hides_their_dict": """
        import types
        class Hiding(types.ModuleType):
            __dict__ = 8
        m = Hiding("m")
        m.k = 3
        def f(x, m): return x + m.k, m.__dict__
        ---
        run(T(2), m)
        """,
    "near_the_recursion_limit": """
        import sys
        def deep(n): return print(end="") if n == 0 else deep(n - 1)
        def narrow(call, room):
            before, depth = sys.getrecursionlimit(), 1
            while True:
                try: sys.setrecursionlimit(depth)
                except RecursionError: depth += 1
                else: break
            try:
                sys.setrecursionlimit(depth + room)
                return call()
            finally: sys.setrecursionlimit(before)
        def g(x): return x * 2
        def f(x): return narrow(lambda: g(3), 8), x + 1
        ---
        run(T(2))
        """,
    "what_an_enums_class_does_not_have": """
        class E(enum.Enum):
            A = 1
        def f(x):
            y = x + 1
            said = []
            for name in ("name", "value", "nothing"):
                try: said.append(getattr(E, name))
                except AttributeError as e: said.append(str(e))
                said.append(hasattr(E, name))
            return y, said
        ---
        run(T(2))
        """,
    "descriptors_that_write_the_dict": """
        class Scaled:
            def __set__(self, o, value): log.append(value); o.__dict__["a"] = value * 2
        class O:
            a = Scaled()
            @property
            def kept(self): return self.__dict__.setdefault("kept", 3)
        def f(x, o):
            y = x + 1
            o.a = 3
            o.__dict__["gone"] = 1
            del o.__dict__["gone"]
            return y, o.kept, o.__dict__["a"]
        o = O()
        ---
        run(T(2), o)
        run(T(2), o)
        o.__dict__
        """,
    "deleted_by_a_method_of_its_own": """
        class O:
            def __delattr__(self, name): log.append(name); object.__delattr__(self, name)
        class Frozen:
            def __delattr__(self, name): raise TypeError(name)
        def f(x, o, frozen):
            y = x + 1
            o.a = 1
            del o.a
            frozen.a = 1
            frozen.b = 2
            object.__delattr__(frozen, "a")
            return y
        o, frozen = O(), Frozen()
        ---
        run(T(2), o, frozen)
        run(T(2), o, frozen)
        (o.__dict__, frozen.__dict__)
        """,
    "class_statements_that_are_left_to_python": """
        class Key:
            def __hash__(self): return hash("mykey")
            def __eq__(self, other): log.append(str(other)); return False
        def f(x):
            y = x + 1
            class C(dict, metaclass=lambda *args, **named: ("made", args[0], sorted(named)), z=1): pass
            K = type("K", (), {Key(): 5})
            return y, C, getattr(K, "mykey", None)
        ---
        run(T(2))
        """,
}
