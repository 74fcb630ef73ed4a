"""Methods of C of subclasses of built-in types: what they say, and what they give back."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "errors_of_methods_of_c_tell_the_class_that_has_them": """
        class L(list): pass
        class S(str): pass
        class D(collections.defaultdict): pass
        def f(x, l, s, d, n):
            y = x + 1
            if n == 0: l.clear(2)
            if n == 1: s.istitle(1)
            if n == 2: d.items(3)
            if n == 3: True.as_integer_ratio(1)
            if n == 4:
                bound = l.clear
                bound(2)
            if n == 5: l.__add__(3)
            if n == 6: [1].__mul__("a")
            if n == 7: (1, frozenset([2])).__lt__((1, 2))
            if n == 8: collections.Counter("a").__getitem__(1, 2)
            return y
        def all_of_them():
            for n in range(9):
                try: run(T(2), L([1]), S("a"), D(int), n)
                except TypeError as e: log.append(str(e))
        ---
        all_of_them()
    """,
    "subclasses_that_are_given_too_many_or_the_wrong": """
        class Q(collections.deque): pass
        class D(collections.defaultdict): pass
        class O(collections.OrderedDict): pass
        def f(x, n):
            y = x + 1
            if n == 0: return y, D(3)
            if n == 1: return y, D(int, 2, 3)
            if n == 2: return y, Q(1, 2, 3, 4)
            if n == 3: return y, Q.__init__(Q(), [], 1, 2)
            if n == 4: return y, O(1, 2, 3)
            return y, D(None, a=1), D(int, [(1, 2)], b=3), Q([1, 2], 1), O(a=1)
        def all_of_them():
            for n in range(6):
                try: log.append(run(T(2), n)[1:])
                except TypeError as e: log.append(str(e))
        ---
        all_of_them()
    """,
    "builtins_that_are_given_too_few_or_too_many": """
        import operator
        FUNCTIONS = [
            getattr, setattr, delattr, next, divmod, pow, isinstance, issubclass, len, bool, iter,
            abs, round, reversed, str, repr, format, int, float, complex, hash, math.ceil,
            operator.not_, operator.index, operator.add, operator.lt, sorted, map, filter,
            functools.reduce, sum, any, all, min, max, list, tuple, hasattr, callable,
        ]
        class A: pass
        ARGUMENTS = [(), (A(),), (A(), A()), (A(), A(), A()), (A(), "a", 2, A())]
        def f(x, start):
            made = [x + 1]
            for function in FUNCTIONS[start : start + 8]:
                for args in ARGUMENTS:
                    try: made.append(type(function(*args)).__name__)
                    except Exception as e: made += type(e).__name__, str(e)
            return made
        ---
        [run(T(2), start) for start in range(0, len(FUNCTIONS), 8)]
    """,
    "what_is_asked_for_an_instance_is_not_looked_at": """
        class Checks:
            def __instancecheck__(self, obj): return type(obj) is int
            def __subclasscheck__(self, cls): return cls is int
            def __getattribute__(self, name):
                log.append(name)
                return object.__getattribute__(self, name)
        def f(x, c):
            return x + 1, isinstance(3, c), isinstance(x, c), isinstance(3, (str, c)), issubclass(int, c)
        ---
        run(T(2), Checks())
    """,
    "strs_that_are_written_as_they_are": """
        class S(str): pass
        def f(x, s, e):
            return x + 1, s % b"", s.format(), s.format_map({}), e.format(), e % (), s % {}, S("a%%") % (), S("{{").format()
        def g(s, e):
            _, *made = run(T(2), s, e)
            return [(type(v).__name__, str(v), v is s) for v in made]
        ---
        g(S("abc"), S(""))
        g(S("abc"), S(""))
        g(S("a"), S("b"))
    """,
    "sets_and_dicts_that_iterate_in_their_own_way": """
        class S(set):
            def __iter__(self): return iter([99])
        class D(dict):
            def __iter__(self): return iter(["z"])
            def keys(self): return ["k"]
            def __getitem__(self, key): return 5
        def f(x, a, b, d):
            asked = a == b, a | b, a.issubset(b), a.issuperset(b), a.isdisjoint(b), a - b, a.symmetric_difference(b)
            return x + 1, asked, list(b), d.copy(), d | {"q": 2}, {**d}, dict(d), d.get("a"), list(d)
        ---
        run(T(2), {1, 2}, S([1, 2]), D(a=1))
    """,
}
