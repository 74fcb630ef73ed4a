"""Corners of the language that CPython's own tests found (tests/cpython)."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    # -- generators -------------------------------------------------------------------------------
    "throw_keeps_the_context_of_what_is_thrown": (
        1,
        """
        def g(e):
            try: yield
            finally: raise e
        def f(x):
            errors = [Exception(i) for i in range(4)]
            gens = [g(e) for e in errors[1:]]
            for it in gens: next(it)
            thrown = errors[0]
            chain = []
            try: raise thrown
            except Exception:
                for it in gens:
                    try: it.throw(thrown)
                    except Exception as caught: thrown = caught
            while thrown is not None:
                chain.append(thrown.args[0])
                thrown = thrown.__context__
            return x * len(chain), chain
        ---
        run(T(2))
        """,
    ),
    "throw_into_a_delegate_links_the_delegating_generators_exception": (
        1,
        """
        def inner(): yield
        def outer():
            try: raise KeyError('a')
            except Exception: yield from inner()
        def f(x):
            it = outer()
            next(it)
            try: it.throw(ValueError)
            except ValueError as e: return x + 1, type(e.__context__).__name__, e.__context__.args
        ---
        run(T(2))
        """,
    ),
    "throw_inside_except_sets_no_context": (
        1,
        """
        def g(): yield
        def f(x):
            seen = []
            for started in (True, False):
                it = g()
                if started: next(it)
                try: raise KeyError
                except KeyError:
                    try: it.throw(ValueError)
                    except ValueError as e: seen.append(e.__context__)
            return x + 1, seen
        ---
        run(T(2))
        """,
    ),
    "throw_of_a_class_that_makes_no_exception": (
        None,
        """
        class E(Exception):
            def __new__(cls, *args): return cls
        def g(): yield
        def f(x):
            it = g()
            seen = []
            try: it.throw(E)
            except TypeError as e: seen.append(str(e))
            try: raise E
            except TypeError as e: seen.append(str(e))
            return x + 1, seen
        ---
        run(T(2))
        """,
    ),
    "anext_that_cannot_be_awaited": (
        None,
        """
        class Steps:
            def __aiter__(self): return self
            def __anext__(self): return self
            def __await__(self): 1 / 0
        async def main():
            async for _ in Steps(): pass
        def f(x):
            try: main().send(None)
            except TypeError as e: return x + 1, str(e), repr(e.__cause__), repr(e.__context__)
        ---
        run(T(2))
        """,
    ),
    "next_gives_what_the_generator_or_iterator_raised": (
        None,
        """
        def g(value):
            yield
            return value
        class Own:
            def __next__(self): raise StopIteration('own', 2)
        def f(x):
            seen = []
            for value in (None, 1, (2,), StopIteration(3)):
                it = g(value)
                next(it)
                try: next(it)
                except StopIteration as e: seen.append((repr(e), repr(e.value)))
            try: next(Own())
            except StopIteration as e: seen.append((e.args, e.value))
            return x + 1, seen, next(Own(), 5)
        ---
        run(T(2))
        """,
    ),
    "iterators_of_constants_are_new_each_time": (
        None,
        """
        def f(x):
            letters = 'ab'.__iter__()
            lines = f.__code__.co_lines()
            return x + 1, next(letters), list(letters), len(list(lines)) > 1
        ---
        run(T(2))
        run(T(2))
        run(T(2))
        """,
    ),
    # -- exceptions that are being handled
    # ----------------------------------------------------------
    "exit_sees_the_exception_that_is_handled": (
        None,
        """
        import sys, dynamo
        @dynamo.disable
        def seen(): return sys.exc_info()[1]
        class Manager:
            def __enter__(self): return self
            def __exit__(self, *details):
                self.seen = seen()
                return True
        class Native(Manager):
            __exit__ = dynamo.disable(Manager.__exit__)
        class Broken(Manager):
            def __exit__(self, *details):
                dynamo.graph_break()
                self.seen = sys.exc_info()[1]
                return True
        def f(x):
            for manager in (Manager(), Native(), Broken()):
                with manager:
                    x = x + 1
                    1 / 0
                log.append(manager.seen)
            return x
        ---
        run(T(2))
        """,
    ),
    "raised_where_a_caller_handles_an_exception": (
        None,
        """
        import sys
        def f(x, again=False):
            if again: raise
            try: raise ValueError
            except ValueError as e:
                return x + 1, repr(e.__context__), sys.exc_info()[1] is e
        def outside(*args):
            try: raise KeyError('outside')
            except KeyError: return run(*args)
        ---
        run(T(2))
        outside(T(2))
        run(T(2))
        outside(T(2), True)
        run(T(2), True)
        """,
    ),
    "exceptions_have_the_fields_of_their_classes": (
        None,
        """
        class Own(ImportError):
            def __init__(self, text): super().__init__(text, name='own')
        class Code(OSError):
            def __init__(self, code): super().__init__(code, 'text')
        def f(x):
            e = StopIteration('spam')
            seen = [str(e), e.value]
            e.value = 'eggs'
            seen += [str(e), e.value, e.args]
            e.args = (1, 2)
            seen += [str(e), e.value]
            e = SystemExit(3, 4)
            seen += [e.code, str(e)]
            e = AttributeError('a', name='n', obj=3)
            seen += [e.name, e.obj, str(e), e.args, AttributeError('b').name]
            e = NameError('a', name='n')
            seen += [e.name, str(e)]
            e = Own('m')
            seen += [e.name, e.path, e.msg, str(e), e.args]
            try: b'\\xff'.decode('ascii')
            except UnicodeDecodeError as caught: seen += [caught.start, caught.reason, str(caught)]
            made = [OSError(2, 'x', 'fn'), Code(17), SyntaxError('m', ('f', 1, 2, 't'))]
            made += [UnicodeDecodeError('ascii', b'abc', 0, 1, 'why'), IndentationError('m')]
            seen += [made[0].errno, made[0].filename, made[1].errno, made[2].lineno, made[3].reason]
            seen += [str(e) for e in made] + [type(e) for e in made]
            return x + 1, seen, made, [e, AttributeError('c', name='n'), StopIteration(3)]
        ---
        got = run(T(2))
        [(e.name, e.args) for e in got[3][:2]], got[3][2].value, got[2][0].errno, got[2][1].strerror
        """,
    ),
    "exceptions_that_share_a_traceback": (
        None,
        """
        def f(x):
            group = ExceptionGroup('g', [ValueError(1), TypeError(2)])
            try: raise group
            except ExceptionGroup: pass
            match, rest = group.split(ValueError)
            other = KeyError().with_traceback(group.__traceback__)
            same = [e.__traceback__ is group.__traceback__ for e in (match, rest, other)]
            return x + 1, same, group, match, rest, other
        ---
        got = run(T(2))
        [e.__traceback__ is got[2].__traceback__ for e in got[3:]], got[2].__traceback__.tb_lineno
        """,
    ),
    "errors_tell_of_the_attribute_or_name": (
        1,
        """
        class C:
            def __getattr__(self, name): raise AttributeError(name)
            @property
            def broken(self): return self.inner
        def f(x):
            errors = []
            for read in (lambda: C().one, lambda: x.two, lambda: getattr(C(), 'three'),
                         lambda: C().broken, lambda: C().four(), lambda: nowhere):
                try: read()
                except (AttributeError, NameError) as e: errors.append(e)
            return x + 1, [e.name for e in errors], [type(e.obj) for e in errors[:5]], errors[0]
        ---
        got = run(T(2))
        got[3].name, type(got[3].obj).__name__, got[3].args
        """,
    ),
    "contexts_in_a_circle": (
        1,
        """
        def f(x):
            try:
                try: raise ValueError(1)
                except ValueError as e:
                    e.__context__ = e
                    raise TypeError(2)
            except TypeError as e:
                context = e.__context__
                return x + 1, repr(context), context.__context__ is context
        ---
        run(T(2))
        """,
    ),
    # -- functions and classes
    # ----------------------------------------------------------------------
    "new_functions_take_other_defaults": (
        1,
        """
        def f(x):
            def g(a, b=1, *, c=2): return a, b, c
            got = [g(0)]
            g.__defaults__ = (5,)
            g.__kwdefaults__['c'] = 6
            got.append(g(0))
            g.__kwdefaults__ = None
            try: g(0)
            except TypeError as e: got.append(str(e))
            g.__defaults__ = None
            try: g(0, c=1)
            except TypeError as e: got.append(str(e))
            g.__qualname__ = 'other'
            try: g()
            except TypeError as e: got.append(str(e))
            return x + 1, got, g
        ---
        got = run(T(2))
        got[2](1, 2, c=3), got[2].__qualname__, got[2].__defaults__
        """,
    ),
    "functions_call_themselves_by_name": (
        1,
        """
        def outside(x): return x * 2
        def f(x):
            def inside(x): return x + 1
            y = inside.__call__(x)
            z = inside.__call__.__call__(y)
            bound = inside.__get__(z)
            return outside.__call__(bound()), outside.__call__.__call__(x), [x].append.__call__(y)
        ---
        run(T(2))
        """,
    ),
    "tuples_of_code_objects": (
        1,
        """
        def f(x):
            def g(one, two): pass
            names = g.__code__.co_varnames
            return x + len(names), names == ('one', 'two'), names[1:], type(names), 'one' in names
        ---
        run(T(2))
        """,
    ),
    "class_methods_of_descriptors": (
        None,
        """
        class Bound:
            def __init__(self, wrapped): self.wrapped = wrapped
            def __call__(self, *args): return 'bound', self.wrapped(*args)
        class Wrapper:
            def __init__(self, wrapped): self.wrapped = wrapped
            def __get__(self, instance, owner): return Bound(self.wrapped.__get__(instance, owner))
            def __call__(self, *args): return 'called', self.wrapped(*args)
        class C:
            @Wrapper
            @classmethod
            def inner(cls, x): return x + 1
            @classmethod
            @Wrapper
            def outer(cls, x): return x + 2
        def f(x): return C.inner(x), C().inner(x), C.outer(x), C().outer(x)
        ---
        run(T(2))
        """,
    ),
    # -- names
    # --------------------------------------------------------------------------------------
    "builtins_of_a_functions_own": (
        None,
        """
        namespace = {'__builtins__': {'len': lambda items: 17}}
        exec('def own(x): return x + len([])', namespace)
        bare = {}
        exec('def annotated(): __annotations__[1] = 2', bare)
        def f(x):
            try: bare['annotated']()
            except NameError as e: return namespace['own'](x), str(e)
        ---
        run(T(2))
        """,
    ),
}
