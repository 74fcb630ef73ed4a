"""Exceptions, their links and notes; exception groups, at which graphs break."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    "except_star": (
        None,
        """
        def f(x, n):
            out = []
            try:
                if n == 1: raise ExceptionGroup('g', [ValueError(1), TypeError(2), ValueError(3)])
                if n == 2: raise ValueError('plain')
                if n == 3: raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [KeyError(2), TypeError(3)])])
                out.append(x + 1)
            except* ValueError as e:
                out.append((type(e).__name__, [str(i) for i in e.exceptions], e.message))
            except* (TypeError, KeyError) as e:
                out.append((type(e).__name__, len(e.exceptions)))
            else:
                out.append('else')
            finally:
                out.append(x * 2)
            return out
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 3)
        """,
    ),
    "except_star_rest": (
        None,
        """
        def f(x):
            y = x * 2
            try:
                raise ExceptionGroup('g', [ValueError(1), TypeError(2)])
            except* ValueError as e:
                y = y + 1
            return y
        ---
        run(T(2))
        """,
    ),
    "except_star_raise": (
        None,
        """
        def raising(x):
            y = x * 2
            try:
                raise ExceptionGroup('g', [ValueError(1), TypeError(2)])
            except* ValueError as e:
                raise KeyError('new')
            return y
        def f(x):
            try: return raising(x)
            except Exception as e: return repr(e), repr(e.exceptions[0].__context__)
        ---
        run(T(2))
        """,
    ),
    "except_star_caught": (
        None,
        """
        def g(x):
            try:
                raise ExceptionGroup('g', [ValueError(1), TypeError(2)])
            except* ValueError as e:
                x = x + 1
            return x
        def f(x):
            y = x * 2
            try:
                return g(y)
            except ExceptionGroup as e:
                return y, [type(i).__name__ for i in e.exceptions], e.args[0]
        ---
        run(T(2))
        """,
    ),
    "group_methods": (
        None,
        """
        def f(x):
            g = ExceptionGroup('g', [ValueError(1), TypeError(2), ExceptionGroup('h', [ValueError(3)])])
            a, b = g.split(ValueError)
            c = g.subgroup(lambda e: isinstance(e, TypeError))
            return x + 1, len(a.exceptions), b.exceptions[0].args, c.message, str(g), g.derive([KeyError(1)]).exceptions
        ---
        run(T(2))
        """,
    ),
    "finally_return": (
        4,
        """
        def g(x, n):
            for i in range(3):
                try:
                    if n == 0: return x + i
                    if n == 1: continue
                    if n == 2: break
                    if n == 3: raise ValueError(n)
                finally:
                    log.append((n, i))
                    if n == 3: return 'swallowed'
            else:
                return 'else', x * 2
            return 'after', x * 3
        def f(x, n): return g(x, n), x * 5
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 3)
        """,
    ),
    "finally_nested": (
        1,
        """
        def f(x):
            out = []
            try:
                try:
                    try:
                        raise ValueError('a')
                    finally:
                        out.append(x + 1)
                        raise KeyError('b')
                except KeyError as e:
                    out.append(repr(e.__context__))
                    raise TypeError('c') from e
            except TypeError as e:
                out += [repr(e.__cause__), repr(e.__context__), e.__suppress_context__]
                try:
                    raise
                except TypeError as again:
                    out.append(again is e)
            return out
        ---
        run(T(2))
        """,
    ),
    "exc_var_cleared": (
        1,
        """
        def f(x):
            e = 5
            try:
                raise ValueError(x)
            except ValueError as e:
                y = x + 1
            try:
                return e
            except UnboundLocalError as u:
                return y, str(u)
        ---
        run(T(2))
        """,
    ),
    "sys_exc_info": (
        1,
        """
        import sys
        def g():
            return sys.exc_info()[0], sys.exc_info()[1]
        def f(x):
            a = sys.exc_info()
            try:
                raise ValueError('v')
            except ValueError as e:
                b = sys.exc_info()
                t, v = g()
                ok = b[1] is e and v is e and t is ValueError and b[2] is e.__traceback__
            return x + 1, a, ok, sys.exc_info()
        ---
        run(T(2))
        """,
    ),
    "sys_exception": (
        1,
        """
        import sys
        def f(x):
            try:
                raise ValueError('v')
            except ValueError as e:
                ok = sys.exception() is e
            return x + 1, ok, sys.exception()
        ---
        run(T(2))
        """,
    ),
    "traceback_attrs": (
        None,
        """
        def g(): raise ValueError(1)
        def f(x):
            y = x * 2
            try:
                g()
            except ValueError as e:
                tb = e.__traceback__
                return y, tb.tb_lineno, tb.tb_next.tb_lineno, tb.tb_next.tb_frame.f_code.co_name, tb.tb_next.tb_next
        ---
        run(T(2))
        """,
    ),
    "traceback_module": (
        None,
        """
        import traceback
        def f(x):
            y = x * 2
            try:
                raise ValueError(1)
            except ValueError as e:
                s = traceback.format_exc()
                return y + 1, s.splitlines()[-1], traceback.format_exception_only(e)
        ---
        run(T(2))
        """,
    ),
    "custom_exception_state": (
        2,
        """
        class E(Exception):
            def __init__(self, code, *, extra=None):
                super().__init__(code, extra)
                self.code, self.extra = code, extra
            def __str__(self): return f'E{self.code}'
        class F(E): pass
        def g(x, n):
            if n: raise F(n, extra=x * 2)
            return x
        def f(x, n):
            try:
                y = g(x, n)
            except E as e:
                return e.code, e.extra + 1, str(e), e.args[0], type(e).__name__, f'{e}', repr(e.code)
            else:
                return y + 1
        ---
        run(T(2), 0)
        run(T(2), 1)
        """,
    ),
    "exception_returned": (
        1,
        """
        class E(Exception):
            def __init__(self, code): self.code = code
        def f(x):
            try: raise E(x * 2)
            except E as e: keep = e
            return keep, keep.code + 1
        ---
        run(T(2))
        """,
    ),
    "add_note": (
        1,
        """
        def f(x):
            try:
                raise ValueError(1)
            except ValueError as e:
                e.add_note('n1')
                e.add_note('n2')
                return x + 1, e.__notes__
        ---
        run(T(2))
        """,
    ),
    "raise_from_none": (
        1,
        """
        def f(x):
            try:
                try: raise ValueError(1)
                except ValueError: raise KeyError(2) from None
            except KeyError as e:
                return x + 1, e.__cause__, e.__suppress_context__, repr(e.__context__)
        ---
        run(T(2))
        """,
    ),
    "raise_uncaught_chain": (
        1,
        """
        def f(x):
            y = x + 1
            log.append(y)
            try: raise ValueError(1)
            except ValueError as e: raise KeyError(2) from e
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "assert_msgs": (
        1,
        """
        def f(x, n):
            y = x + 1
            assert n > 0, f'n is {n}'
            assert n
            return y, __debug__
        ---
        run(T(2), 1)
        run(T(2), 0)
        """,
    ),
    "chained_finally_loop": (
        1,
        """
        def f(x):
            out = []
            for i in range(4):
                try:
                    if i == 1: continue
                    if i == 3: break
                    out.append(x + i)
                except ValueError: pass
                else: out.append('else%d' % i)
                finally: out.append('fin')
            return out
        ---
        run(T(2))
        """,
    ),
    "exception_in_except": (
        1,
        """
        def f(x):
            try:
                try: {}['a']
                except KeyError as e: e.missing
            except AttributeError as e:
                return x + 1, repr(e.__context__), e.name
        ---
        run(T(2))
        """,
    ),
    "error_attrs": (
        1,
        """
        def f(x):
            out = []
            try: None.foo
            except AttributeError as e: out.append((str(e), e.name, e.obj))
            try: undefined
            except NameError as e: out.append((str(e), e.name))
            try: {}[3]
            except KeyError as e: out.append((str(e), e.args))
            try: int('z')
            except ValueError as e: out.append(str(e))
            try: raise StopIteration(5)
            except StopIteration as e: out.append(e.value)
            try: raise SystemExit(3)
            except SystemExit as e: out.append(e.code)
            return x + 1, out
        ---
        run(T(2))
        """,
    ),
    "os_error_attrs": (
        None,  # OSError chooses a subclass by its number: made natively
        """
        def f(x):
            try: raise OSError(2, 'nope', 'file')
            except OSError as e: out = e.errno, e.strerror, e.filename, type(e).__name__, str(e)
            return x + 1, out
        ---
        run(T(2))
        """,
    ),
    "eg_break_at_match": (
        None,
        """
        import dynamo
        class H: pass
        h = H()
        h.e = ExceptionGroup('g', [ValueError(1), TypeError(2)])
        import sys
        def f(x):
            y = x * 2
            try:
                raise h.e
            except* ValueError as e:
                y = y + 1
                log.append(sys.exc_info()[0].__name__)
            except* TypeError as e:
                y = y + 2
                log.append(len(e.exceptions))
            return y * 3, sys.exc_info()
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "eg_break_in_body": (
        None,
        """
        import dynamo, sys
        def f(x):
            y = x * 2
            try:
                raise ExceptionGroup('g', [ValueError(1), TypeError(2)])
            except* ValueError as e:
                y = y + 1
                dynamo.graph_break()
                log.append((sys.exc_info()[0].__name__, len(sys.exc_info()[1].exceptions)))
            except* TypeError as e:
                dynamo.graph_break()
                y = y + 2
                raise
            return y * 3, sys.exc_info()
        ---
        run(T(2))
        run(T(2))
        """,
    ),
    "eg_naked": (
        None,
        """
        def f(x):
            try:
                raise ValueError('plain')
            except* (ValueError, TypeError) as e:
                return_ = [type(e).__name__, e.message, len(e.exceptions), x + 1]
            return return_
        ---
        run(T(2))
        """,
    ),
    "eg_errors": (
        None,
        """
        def f(x, n):
            y = x + 1
            try:
                if n == 0: ExceptionGroup('g', [])
                if n == 1: ExceptionGroup(1, [ValueError()])
                if n == 2: ExceptionGroup('g', 3)
                if n == 3: ExceptionGroup('g', [3])
                if n == 4: ExceptionGroup('g', [KeyboardInterrupt()])
                if n == 5: BaseExceptionGroup('g', [KeyboardInterrupt()])
                if n == 6: ExceptionGroup('g')
                if n == 7:
                    try: raise ValueError(1)
                    except* ExceptionGroup: pass
            except Exception as e: return y, type(e).__name__, str(e)
            return y, type(BaseExceptionGroup('g', [ValueError()])).__name__
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 3)
        run(T(2), 4)
        run(T(2), 5)
        run(T(2), 6)
        run(T(2), 7)
        """,
    ),
    "eg_subclass": (
        None,
        """
        class G(ExceptionGroup):
            def derive(self, excs): return G(self.message + '!', excs)
        def f(x):
            try:
                raise G('g', [ValueError(1), G('h', [TypeError(2), ValueError(3)])])
            except* TypeError as e:
                a = (type(e).__name__, e.message, type(e.exceptions[0]).__name__)
            except* ValueError as e:
                b = (type(e).__name__, e.message, [str(v) for v in e.exceptions if not isinstance(v, G)])
            return x + 1, a, b
        ---
        run(T(2))
        """,
    ),
    "eg_nested_try": (
        None,
        """
        def f(x):
            out = []
            try:
                try:
                    raise ExceptionGroup('g', [ValueError(1), KeyError(2), OSError(3)])
                except* ValueError:
                    out.append('v')
                    raise RuntimeError('from v')
                except* KeyError as e:
                    out.append('k')
                    raise TypeError('from k') from e
            except* RuntimeError as e:
                out.append(('r', len(e.exceptions)))
            except* (TypeError, OSError) as e:
                out.append([type(v).__name__ for v in e.exceptions])
            return out, x + 1
        ---
        run(T(2))
        """,
    ),
    "eg_traceback": (
        0,
        """
        def g(): raise ValueError(1)
        def f(x):
            y = x + 1
            errors = []
            for i in range(2):
                try: g()
                except ValueError as e: errors.append(e)
            raise ExceptionGroup('g', errors)
        ---
        run(T(2))
        """,
    ),
    "notes": (
        1,
        """
        def f(x):
            try: raise ValueError(1)
            except ValueError as e:
                e.add_note('a')
                try: e.add_note(3)
                except TypeError as t: m = str(t)
                return e, e.__notes__, m, x + 1
        ---
        run(T(2))
        """,
    ),
}
