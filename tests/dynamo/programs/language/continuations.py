"""Continuations of continuations, classes that the frame makes, and cells that have no value."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "two_breaks_in_init": """
        import dynamo
        class A:
            def __init__(self, x):
                dynamo.graph_break()
                self.x = x + 1
                dynamo.graph_break()
                self.y = self.x * 2
        def f(x):
            a = A(x)
            return a.x + a.y
        ---
        run(T(3))
        run(T(3))
    """,
    "three_breaks_below_init": """
        import dynamo
        class A:
            def __init__(self, x):
                self.x = self.step(x)
                log.append(self.step(x))
            def step(self, x):
                x = x + 1
                dynamo.graph_break()
                x = x * 2
                dynamo.graph_break()
                return x
        def f(x):
            with contextlib.nullcontext():
                a = A(x)
                dynamo.graph_break()
            return a.x + 1
        ---
        run(T(3))
        run(T(3))
    """,
    "cell_of_a_class_in_native_code": """
        import dynamo
        def f(x):
            class A:
                def made(self):
                    return A, x
                def __eq__(self, other):
                    return isinstance(other, A)
            a = A()
            dynamo.graph_break()
            y = x + 1
            return y, a.made()[0] is A, a == a, [1, A()].index(a)
        ---
        run(T(3))
        run(T(3))
    """,
    "only_the_instance_leaves": """
        def f(x):
            class A:
                def fresh(self):
                    return A()
                def __eq__(self, other):
                    return isinstance(other, A)
            a = A()
            y = x + 1
            log.append((y, [1, 2].count(a)))
            return a
        ---
        made = run(T(3))
        log.append((made == made.fresh(), type(made).__name__))
        del made
    """,
    "class_of_two": """
        import dynamo
        def f(x):
            class E(Exception):
                pass
            class A:
                @property
                def __bases__(self):
                    raise E
            def call():
                try:
                    return issubclass(A(), dict)
                except E:
                    return 'E'
            y = x + 1
            return y, call()
        ---
        run(T(3))
        run(T(3))
    """,
    "unset_own_cell": """
        import dynamo
        def f(x, n):
            y = x + 1
            if n > 5:
                z = 1
            if n > 3:
                dynamo.graph_break()
                y = y * 2
            try:
                log.append(z)
            except UnboundLocalError as e:
                log.append(str(e))
            return y, (lambda: z) and z
        ---
        run(T(3), 1)
        run(T(3), 4)
        run(T(3), 6)
    """,
    "deleted_own_cell": """
        import dynamo
        def f(x):
            z = 3
            g = lambda: z
            y = x + 1
            dynamo.graph_break()
            del z
            try:
                del z
            except NameError as e:
                log.append((type(e).__name__, str(e)))
            y = y * 2
            dynamo.graph_break()
            try:
                g()
            except NameError as e:
                log.append((type(e).__name__, str(e)))
            return y + z
        ---
        run(T(3))
    """,
    "callable_of_a_call_raises_behind_a_break": """
        import dynamo
        def made(*args):
            return args
        def pick(x):
            dynamo.graph_break()
            if x.dim() > 1:
                raise RuntimeError(str(x.shape))
            return made
        def f(*args):
            y = args[0] * 2
            return pick(args[0])(*args, y + 1)
        ---
        run(T(3))
        run(T(3, 2))
        run(T(3))
    """,
    "iterator_of_c_whose_tuple_lacks_items": """
        import dynamo
        class Zipped(itertools.zip_longest): pass
        @dynamo.disable
        def begun(kind, x):
            made = kind(iter([x]), iter([x, x, x]))
            next(made), next(made)
            return made
        def f(x, kind):
            y, rest = x + 1, begun(kind, x)
            return y * 2, list(rest)
        ---
        run(T(3), itertools.zip_longest)
        run(T(3), Zipped)
    """,
    "unset_free_variable": """
        import dynamo
        def outer():
            def g(x):
                dynamo.graph_break()
                y = x * 2
                return y + z
            if 0:
                z = 1
            return g
        g = outer()
        def f(x):
            return g(x)
        ---
        run(T(3))
    """,
    "super_without_what_it_needs": """
        def none():
            super()
        def deleted(x):
            del x
            super()
        class A:
            def empty(x):
                nonlocal __class__
                del __class__
                super()
            def own(self):
                return super().__repr__
        def f(x, call):
            y = x + 1
            try:
                call()
            except (RuntimeError, TypeError) as e:
                return y, type(e).__name__, str(e)
        ---
        run(T(2), none)
        run(T(2), lambda: deleted(1))
        run(T(2), A().empty)
        run(T(2), lambda: super(1, int))
    """,
    "keywords_named_like_parameters": """
        def f(x, d):
            d.update(self=x + 1)
            d.update(other=2, tx=3)
            made = collections.defaultdict(factory=4)
            return dict(d, tx=5), made, made.default_factory
        ---
        run(T(2), {})
        run(T(2), collections.OrderedDict())
    """,
}
