"""Names: closures, comprehensions, globals, imports, decorators, recursion."""

import ast

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    "dels": (
        1,
        """
        g1 = 5
        class O: pass
        def f(x):
            global g1, g2, g3
            a = x + 1
            b = a * 2
            del a
            try: a
            except UnboundLocalError as e: log.append(str(e))
            try: del a
            except UnboundLocalError as e: log.append(str(e))
            o = O()
            o.v = 1
            del o.v
            try: del o.v
            except AttributeError as e: log.append(str(e))
            l, d = [1, 2, 3], {'a': 1}
            del l[0], d['a']
            try: del d['zz']
            except KeyError as e: log.append(str(e))
            g2 = 3
            del g2
            g3 = 1
            del g3
            try: g3
            except NameError as e: log.append(str(e))
            return b, l, d
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "nonlocal_global": (
        2,
        """
        c = 0
        def f(x):
            n = 0
            def inc():
                nonlocal n
                global c
                n += 1
                c += 1
                def deeper():
                    nonlocal n
                    n += 10
                    return n
                return deeper
            inc()()
            k = inc()
            return x + n, k(), n, c
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "defaults_mutable": (
        2,
        """
        def g(x, acc=[], *, d={}):
            acc.append(x)
            d[len(d)] = 1
            return len(acc), len(d)
        def f(x):
            def h(v, memo=[]):
                memo.append(v)
                return memo
            a, b = h(1), h(2)
            return g(x), g(x), x + 1, a is b, a, h.__defaults__
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "decorators": (
        None,
        """
        def deco(fn):
            @functools.wraps(fn)
            def w(*a, **k):
                log.append(fn.__name__)
                return fn(*a, **k)
            return w
        def param(n):
            def d(fn):
                def w(x): return fn(x) * n
                return w
            return d
        class Cls:
            def __init__(self, fn): self.fn, self.calls = fn, 0
            def __call__(self, *a):
                self.calls += 1
                return self.fn(*a)
        @deco
        @param(3)
        def g(x): return x + 1
        @Cls
        def h(x): return x * 5
        def f(x):
            @deco
            @Cls
            def inner(x): '''doc'''; return x - 1
            @functools.lru_cache
            def cached(n): log.append(n); return n * 2
            return g(x), h(x), inner(x), h.calls, inner.__name__ if hasattr(inner, '__name__') else None, cached(2), cached(2)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "decorator_wraps_attrs": (
        1,
        """
        def deco(fn):
            @functools.wraps(fn)
            def w(*a): return fn(*a)
            w.extra = 1
            return w
        def f(x):
            @deco
            def inner(x: int, y=2) -> int:
                '''doc'''
                return x
            return inner, inner.__name__, inner.__doc__, inner.__wrapped__.__name__, inner.extra, x + 1, inner.__annotations__
        ---
        r = run(T(2))
        r[0].__qualname__, r[0](3), r[0].__wrapped__.__defaults__
        """,
    ),
    "recursion": (
        1,
        """
        def even(n): return True if n == 0 else odd(n - 1)
        def odd(n): return False if n == 0 else even(n - 1)
        def fact(n, acc=1): return acc if n <= 1 else fact(n - 1, acc * n)
        def tree(x, d):
            if d == 0: return [x]
            return tree(x + 1, d - 1) + tree(x * 2, d - 1)
        def f(x):
            def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
            Y = lambda g: (lambda a: a(a))(lambda a: g(lambda v: a(a)(v)))
            return even(10), fact(6), sum(tree(x, 3)), fib(8), Y(lambda s: lambda n: 1 if n == 0 else n * s(n - 1))(5)
        ---
        run(T(2))
        """,
    ),
    "recursion_deep": (
        1,
        """
        def down(x, n): return x if n == 0 else down(x + 1, n - 1)
        def f(x): return down(x, 60)
        ---
        run(T(2))
        """,
    ),
    "recursion_error": (
        None,
        """
        def forever(n): return forever(n + 1)
        def f(x):
            y = x + 1
            try: forever(0)
            except RecursionError: return y
        ---
        run(T(2))
        """,
    ),
    "annotations": (
        1,
        """
        def f(x: 'torch.Tensor') -> list[int]:
            y: int = 3
            z: 'undefined'
            def g(a: int, *b: str, c: float = 1.0) -> None: pass
            return x + y, g.__annotations__, g
        ---
        r = run(T(2))
        r[2].__annotations__
        """,
    ),
    "comprehension_scope": (
        1,
        """
        def f(x):
            i = 100
            a = [i for i in range(3)]
            b = {i: [j for j in range(i)] for i in range(3)}
            c = {j % 2 for j in range(5)}
            d = [(lambda: i)() for i in range(2)]
            e = [[x + i for i in range(2)] for x in (x, x * 2)]
            fs = [lambda: k for k in range(3)]
            h = [y for y in [x] for z in range(2) if z if y is x]
            return i, a, b, c, d, e, [q() for q in fs], len(h), x
        ---
        run(T(2))
        """,
    ),
    "comprehension_raises": (
        1,
        """
        def f(x):
            i = 5
            try: [1 // i for i in [1, 0]]
            except ZeroDivisionError as e: pass
            return i, x + 1
        ---
        run(T(2))
        """,
    ),
    "comprehension_break": (
        None,
        """
        import dynamo
        def f(x):
            i = 7
            def g(v):
                dynamo.graph_break()
                return v + 1
            r = [g(x * i) for i in range(2)]
            return r, i
        ---
        run(T(2))
        """,
    ),
    "imports": (
        1,
        """
        def f(x):
            import math
            import os.path as p
            import os.path
            from math import sqrt as s, pi
            return x + s(4), math.floor(2.5), p.join('a', 'b'), os.sep, pi
        ---
        run(T(2))
        """,
    ),
    "import_new": (
        None,
        """
        def f(x):
            y = x + 1
            import this_module_is_missing_zz
            return y
        ---
        run(T(2))
        """,
    ),
    "import_error_caught": (
        None,
        """
        def f(x):
            y = x + 1
            try: import missing_zz
            except ImportError as e: y = y * 2; n = e.name
            try: from math import nothing_zz
            except ImportError as e: m = str(e)
            return y, n, m[:40]
        ---
        run(T(2))
        """,
    ),
    "import_fresh": (
        1,
        """
        def f(x):
            y = x + 1
            import colorsys
            from xml.sax import handler
            return y * 2, colorsys.rgb_to_hsv(1, 1, 1)
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "locals_calls": (
        0,
        """
        k = 3
        def f(x):
            a = 1
            y = x + a
            l = sorted(locals())
            return y, l
        ---
        run(T(2))
        """,
    ),
    "globals_calls": (
        0,
        """
        k = 3
        def f(x):
            y = x + globals()['k']
            globals()['newg'] = 5
            return y, 'k' in globals(), newg, len([n for n in dir() if n in 'xy']), sorted(vars())
        ---
        run(T(2))
        newg
        """,
    ),
    "eval_exec": (
        0,
        """
        k = 3
        def f(x):
            y = x + 1
            a = eval('k + 1')
            b = eval('y * 2')
            ns = {'v': 4}
            exec('w = v + 1', ns)
            c = eval('v * 2', {'v': 7})
            return y, a, b, ns['w'], c
        ---
        run(T(2))
        """,
    ),
    "locals_in_callee": (
        None,
        """
        def g(a):
            b = 2
            return dict(locals())
        def h(a): return eval('a + 1')
        def f(x):
            y = x + 1
            return y, g(y), h(3)
        ---
        run(T(2))
        """,
    ),
    "frame_access": (
        None,
        """
        import sys
        def g(): return sys._getframe(1).f_code.co_name, sys._getframe().f_lineno
        def f(x):
            y = x + 1
            return y, g()
        ---
        run(T(2))
        """,
    ),
    "lambda_defaults": (
        1,
        """
        def f(x):
            h = lambda a, b=x, *c, d=3, **e: (a, b, c, d, e)
            return h(1), h(1, 2, 3, d=4, q=5), (lambda: (yield_ := x + 1))()
        ---
        run(T(2))
        """,
    ),
    "pep701": (
        1,
        """
        def f(x):
            return f'{f"{1 + 1}"}' + f'{x.shape[0]:{3}}', x + 1
        ---
        run(T(2))
        """,
    ),
    "global_shadow_builtin": (
        2,
        """
        def len(x): return 'mine'
        def f(x): return len(x), x + 1
        ---
        run(T(2))
        del len
        run(T(2))
        """,
    ),
    "closure_cell_api": (
        1,
        """
        def f(x):
            a = x + 1
            def g(): return a
            c = g.__closure__[0].cell_contents
            a = x * 2
            return c, g(), g.__code__.co_freevars, g.__closure__[0].cell_contents
        ---
        run(T(2))
        """,
    ),
    "free_var_unbound": (
        1,
        """
        def f(x):
            def g(): return later
            try: g()
            except NameError as e: m = str(e)
            later = x + 1
            return g(), m
        ---
        run(T(2))
        """,
    ),
    "comp_break_outer_cell": (
        None,
        """
        import dynamo
        def f(x):
            i = 7
            h = lambda: i
            r = []
            for k in range(2):
                r = [(dynamo.graph_break(), x * i)[1] for i in range(3)]
            return r, i, h()
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "comp_break_inner_cell": (
        None,
        """
        import dynamo
        def f(x):
            r = [((lambda: x * i), dynamo.graph_break())[0] for i in range(3)]
            return [q() for q in r]
        ---
        run(T(2))
        """,
    ),
    "comp_break_both_cells": (
        None,
        """
        import dynamo
        def f(x):
            i = 7
            h = lambda: i
            r = [((lambda: x * i), dynamo.graph_break())[0] for i in range(3)]
            return [q() for q in r], i, h()
        ---
        run(T(2))
        """,
    ),
    "comp_cells_escape": (
        1,
        """
        def f(x):
            i = 7
            h = lambda: i
            r = [lambda: x * i for i in range(3)]
            s = [lambda: j for j in range(3)]
            return r, s, i, h, x + 1
        ---
        a = run(T(2))
        [q() for q in a[0]], [q() for q in a[1]], a[3]()
        """,
    ),
    "comp_cells_in_callee": (
        None,
        """
        import dynamo
        def g(x):
            i = 7
            h = lambda: i
            r = [(lambda: x * i) for i in range(3)]
            k = [(dynamo.graph_break(), x * i)[1] for i in range(2)]
            return [q() for q in r], i, h(), k
        def f(x):
            return g(x + 1)
        ---
        run(T(2))
        """,
    ),
    "comp_cells_exception": (
        1,
        """
        def f(x):
            i = 7
            h = lambda: i
            try:
                r = [(lambda: 1 // i)() for i in (1, 0)]
            except ZeroDivisionError: r = 'caught'
            return r, i, h(), x + 1
        ---
        run(T(2))
        """,
    ),
    "comp_unbound_after": (
        1,
        """
        def f(x):
            r = [(lambda: j)() for j in range(3)]
            try: j
            except NameError as e: m = type(e).__name__
            return r, m, x + 1
        ---
        run(T(2))
        """,
    ),
    "a_cell_and_a_free_variable_of_one_name": (
        None,
        """
        def outer(i):
            def f(x):
                made = [lambda: i for i in range(3)]
                return x + 1, [one() for one in made]
            return f
        inner = outer(7)
        def f(x): return inner(x * 2), inner(x)
        ---
        run(T(2))
        """,
    ),
}
if hasattr(ast, "TypeAlias"):  # type parameters are syntax
    PROGRAMS |= {
        "generic_functions": (
            None,
            """
        def f(x):
            def a[T: str](text: T = 'x', *, k=x.shape[0]): return text, k
            def b[T](text: T = 'y'): return text
            def c[T](*, k=3) -> T: return k
            type Pair[T] = tuple[T, T]
            class C[T]:
                def m[U](self, a: U = 3) -> T: return a
            made = a(), a('z', k=1), b(), c(), C().m()
            return x + 1, made, len(a.__type_params__), str(Pair[int]), C.__type_params__[0].__name__
        ---
        run(T(2))
            """,
        ),
        "generics_from_outside": (
            1,
            """
        def scaled[T](x: T, by=2) -> T: return x * by
        class Box[T]:
            def __init__(self, held: T): self.held = held
        def f(x): return scaled(Box[int](x).held) + 1
        ---
        run(T(2))
            """,
        ),
    }
