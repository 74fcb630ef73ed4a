"""Corners of exceptions, tracebacks and generators that CPython's own tests look into."""

from tests.dynamo.differential import SOME
from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "except_asks_no_metaclass": (
        1,
        "ATTRIBUTE_MUTATION NOT_CALLABLE UNSUPPORTED_OPCODE",
        """
        class Meta(type):
            def __subclasscheck__(cls, other): log.append("asked"); return True
            def __instancecheck__(cls, other): log.append("asked"); return True
        class E(Exception, metaclass=Meta): pass
        def caught(kinds):
            try: raise KeyError("k")
            except kinds: return "first"
            except KeyError: return "second"
        def group():
            found = []
            try: raise ExceptionGroup("g", [KeyError("k"), ValueError("v")])
            except* E: found.append("E")
            except* (ValueError, E): found.append("ValueError")
            except* KeyError: found.append("KeyError")
            return found
        def f(x): return x + 1, caught(E), caught((ValueError, E)), group()
        ---
        run(T(3))
        """,
    ),
    "except_star_at_a_break_asks_no_metaclass": (
        SOME,
        "",
        """
        class Meta(type):
            def __subclasscheck__(cls, other): return True
            def __instancecheck__(cls, other): return True
        class E(Exception, metaclass=Meta): pass
        def f(x):
            found = []
            try:
                y = x + 1
                print(y.sum().item() > 0)
                raise KeyError("k")
            except* E: found.append("E")
            except* KeyError: found.append("KeyError")
            return y * 2, found
        ---
        run(T(3))
        """,
    ),
    "keywords_that_exceptions_refuse": (
        SOME,
        "",
        """
        def refused(kind, **kwargs):
            try: kind("m", **kwargs)
            except TypeError as error: return str(error)
            return "taken"
        def f(x):
            return (
                x + 1,
                refused(ImportError, name="n", path="p"),
                refused(ImportError, name="n", invalid=1),
                refused(NameError, name="n"),
                refused(NameError, obj=1),
                refused(AttributeError, name="n", obj=3),
                refused(StopIteration, value=3),
                refused(ValueError, name="n"),
            )
        ---
        run(T(3))
        """,
    ),
    "first_value_sent_to_a_step": (
        None,
        """
        async def gen():
            got = yield 1
            yield got
        def said(call, *args):
            try: call(*args)
            except StopIteration as stop: return stop.value
            except (TypeError, RuntimeError) as error: return str(error)
        def f(x):
            g, h = gen(), gen()
            first = said(g.__anext__().send, None)
            return (
                x + 1,
                first,
                said(g.asend(5).send, 7),
                said(h.__anext__().send, 100),
                said(gen().athrow(ValueError).send, 1),
                said(gen().aclose().send, 1),
            )
        ---
        run(T(3))
        """,
    ),
    "coroutines_that_nothing_awaits": (
        None,
        """
        import warnings
        async def never(x): return x * 2
        async def awaits(x): return await never(x)
        def drive(made):
            try: made.send(None)
            except StopIteration as stop: return stop.value
        def drops(x):
            never(x)
            return x + 1
        def closes(x):
            made = never(x)
            made.close()
            return x + 2
        def f(x):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                y = drops(x)
                y = y + drive(awaits(closes(x)))
                local = never(y)
                local = None
                texts = [str(w.message) for w in caught]
            return y * 2, texts
        ---
        run(T(3))
        run(T(3))
        """,
    ),
    "own_attributes_past_getattribute": (
        SOME,
        "",
        """
        class A:
            __slots__ = ("slot", "__dict__")
            def __init__(self): self.slot, self.own = 3, 4
            def __getattribute__(self, name):
                log.append(name)
                return object.__getattribute__(self, name)
        a = A()
        def f(x, a):
            plain = object.__getattribute__
            y = x + plain(a, "slot") + plain(a, "__dict__")["own"]
            print(y.sum().item() > 0)
            return y + plain(a, "slot"), plain(a, "__dict__")
        ---
        run(T(3), a)
        run(T(3), a)
        """,
    ),
    "lines_where_frames_were_left": (
        SOME,
        "",
        """
        import sys
        class Noop:
            def __enter__(self): return self
            def __exit__(self, *args): pass
        def after_with():
            with Noop():
                1/0
                pass
        def in_named():
            try:
                1/0
            except Exception as ex:
                1/0
                pass
        def deeper():
            in_named()
        def lines(g):
            try:
                g()
            except Exception as ex:
                t = ex.__traceback__
            found = []
            while t:
                found.append((t.tb_lineno - t.tb_frame.f_code.co_firstlineno, t.tb_frame.f_lineno - t.tb_frame.f_code.co_firstlineno, t.tb_frame.f_code.co_name))
                t = t.tb_next
            return found[1:]
        def f(x):
            y = x + 1
            return y, lines(after_with), lines(in_named), lines(deeper)
        ---
        run(T(2))
        """,
    ),
}
