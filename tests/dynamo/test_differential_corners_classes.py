"""Corners of classes, metaclasses and modules that CPython's own tests look into (tests/cpython), one
program each; every frame is rewritten, the standard library's, too.
"""

from __future__ import annotations

import pytest

import dynamo
from tests.dynamo.objects_support import run_both

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
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    with dynamo.config.patch(rewrite_all_frames=True):
        assert run_both(PROGRAMS[name])[0], "nothing was captured"
