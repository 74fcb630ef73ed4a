"""When objects end that frames hold which an exception has left: its traceback holds the frames."""

from tests.dynamo.programs import ONE, Family

DEFINITIONS = """
import weakref, dynamo
class D:
    def __init__(self, n): self.n = n
    def __del__(self): log.append(("end", self.n))
class Manager:
    def __enter__(self): return self
    def __exit__(self, *a): log.append(("exit", a[0] and a[0].__name__))
def catches(function, *args):
    try: return function(*args)
    except Exception as e:
        log.append("caught")
        result = type(e).__name__, str(e)
    log.append("after")
    return result
"""
FAMILY = Family(backends=ONE, prelude=DEFINITIONS, captured=False, collector=False)
PROGRAMS = {
    "local_raised": """
        def f(x):
            d = D(1)
            y = x + 1
            raise ValueError("a")
        def g():
            return catches(run, T(2))
        ---
        g()
        g()
        list(log)
    """,
    "arg_last": """
        def f(x, d):
            y = x + 1
            raise ValueError("a")
        def g():
            return catches(run, T(2), D(1))
        ---
        g()
        list(log)
    """,
    "error_from_op": """
        def f(x):
            d = D(1)
            y = x + 1
            return y @ torch.ones(5, 5)
        def g():
            return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "inner_caught": """
        def f(x):
            def h():
                d = D(1)
                raise ValueError("q")
            try: h()
            except ValueError as e:
                log.append("caught")
            log.append("after")
            return x + 1
        ---
        run(T(2))
        list(log)
    """,
    "inner_kept": """
        def f(x):
            def h():
                d = D(1)
                raise ValueError("q")
            k = None
            try: h()
            except ValueError as e:
                k = e
            log.append("after")
            del k
            log.append("del")
            return x + 1
        ---
        run(T(2))
        list(log)
    """,
    "inner_kept_leaves": """
        def f(x):
            def h():
                d = D(1)
                raise ValueError("q")
            k = None
            try: h()
            except ValueError as e:
                k = e
            log.append("after")
            return x + 1, k
        def g():
            _, k = run(T(2))
            log.append("have")
            k = None
            log.append("gone")
        ---
        g()
        list(log)
    """,
    "inner_context": """
        def f(x):
            def h():
                d = D(1)
                raise ValueError("q")
            try:
                try: h()
                except ValueError as e:
                    raise KeyError(1)
            except KeyError as e2:
                log.append("caught")
            log.append("after")
            return x + 1
        ---
        run(T(2))
        list(log)
    """,
    "leaves_inner": """
        def f(x):
            def h():
                d = D(1)
                raise ValueError("q")
            y = x + 1
            h()
        def g(): return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "temp_in_call": """
        def f(x):
            def h(d):
                raise ValueError("q")
            try: h(D(1))
            except ValueError: log.append("caught")
            log.append("after")
            return x + 1
        ---
        run(T(2))
        list(log)
    """,
    "weakcb": """
        def f(x):
            d = D(1)
            w = weakref.ref(d, lambda r: log.append("cb"))
            y = x + 1
            raise ValueError(w)
        def g(): return catches(run, T(2))[0]
        ---
        g()
        list(log)
    """,
    "with_exit": """
        def f(x):
            d = D(1)
            with Manager():
                e = D(2)
                raise ValueError(x.shape)
        def g(): return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "finally": """
        def f(x):
            try:
                d = D(1)
                raise ValueError("a")
            finally:
                log.append("fin")
                x = x + 1
        def g(): return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "from_outside_object": """
        class H: pass
        H_ = H()
        def f(x):
            d = H_.d
            H_.d = None
            y = x + 1
            raise ValueError("a")
        def g():
            H_.d = D(3)
            return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "from_outside_nolocal": """
        class H: pass
        H_ = H()
        def f(x):
            H_.d = None
            y = x + 1
            log.append("set")
            raise ValueError("a")
        def g():
            H_.d = D(3)
            return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "reraised": """
        def f(x):
            try:
                d = D(1)
                raise ValueError("a")
            except ValueError as e:
                d2 = D(2)
                raise KeyError("b") from e
        def g(): return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "disabled_raises": """
        @dynamo.disable
        def bad(): raise ValueError("z")
        def f(x):
            d = D(1)
            y = x + 1
            bad()
            return y
        def g(): return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "assert_tensor": """
        def f(x):
            d = D(1)
            y = x + 1
            assert (y > 100).all(), "no"
            return y
        def g(): return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "generator_dropped": """
        def f(x):
            def gen():
                d = D(1)
                try:
                    yield x
                finally: log.append("closed")
            for v in gen():
                raise ValueError("a")
        def g(): return catches(run, T(2))
        ---
        g()
        list(log)
    """,
    "exception_subclass_del": """
        class E(Exception):
            def __del__(self): log.append("E end")
        def f(x):
            try: raise E("a")
            except E: log.append("c")
            log.append("d")
            return x + 1
        ---
        run(T(2))
        list(log)
    """,
    "exception_attr": """
        class E(Exception): pass
        def f(x):
            try:
                e = E("a"); e.d = D(1)
                raise e
            except E as q: log.append("c")
            log.append("d")
            del e
            log.append("f")
            return x + 1
        ---
        run(T(2))
        list(log)
    """,
    "iterator_holds_generator": """
        def guarded(x):
            try:
                for i in range(2): yield x * i
            finally: log.append("closed")
        def inner(x, y, wrap):
            for k in wrap(guarded(x)):
                y.add_(int(x.sum() > 0))
                raise ValueError("a")
        def f(x, y, wrap): inner(x, y, wrap)
        def chained(it): return itertools.chain(it, [1])
        ---
        catches(run, T(2), T(2), enumerate)
        catches(run, T(2), T(2), chained)
        list(log)
    """,
    "iterator_holds_object": """
        def inner(x, y):
            for k in map(lambda d, i: i, [D(1)], [1, 2]):
                y.add_(int(x.sum() > 0))
                raise ValueError("a")
        def f(x, y): inner(x, y)
        ---
        catches(run, T(2), T(2))
        list(log)
    """,
}
