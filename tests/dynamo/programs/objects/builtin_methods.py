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
    "copies_of_containers_are_made_by_their_class": (
        1,
        "",
        """
        import copy
        class D(collections.deque):
            def __init__(self, it=(), maxlen=None, tag=None):
                super().__init__(it, maxlen)
                self.tag = tag
        class O(collections.OrderedDict):
            def __init__(self, *a, **k):
                log.append("init")
                super().__init__(*a, **k)
            def __getitem__(self, k):
                log.append(("get", k))
                return super().__getitem__(k)
            def copy(self):
                r = super().copy()
                r.extra = 1
                return r
        class DD(collections.defaultdict):
            def __missing__(self, k):
                self[k] = v = self.default_factory(k)
                return v
        class ST(set): pass
        def f(x, d):
            a = D([x, x + 1], maxlen=3, tag="t")
            b, c, e, g = a.copy(), copy.copy(a), copy.deepcopy(a), a + D([4])
            b.append(3)
            log.append([(type(v).__name__, v.maxlen, v.tag) for v in (b, c, e, g)])
            o = O(a=x, b=x + 1)
            p, q, r = o.copy(), copy.deepcopy(o), copy.copy(o)
            log.append([(type(v).__name__, hasattr(v, "extra")) for v in (p, q, r)])
            h = DD(lambda k: x * k)
            y = h[2] + h.copy()[3] + copy.copy(h)[4] + d.copy()[1]
            s = ST([1, 2]); s.tag = 5
            t = copy.copy(s)
            log.append((sorted(h), type(t).__name__, t.tag, len(t)))
            return y + b[0] + e[1] + p["a"], d.default_factory
        ---
        run(T(3), DD(abs))
        run(T(3), DD(abs))
    """,
    ),
    "fields_of_containers_are_read_of_subclasses": (
        1,
        "",
        """
        class DD(collections.defaultdict): pass
        class D(collections.deque): pass
        def f(x, d):
            made = DD(lambda: 3)
            y = x * (2 if getattr(made, "default_factory", None) is None else 5)
            log.append((DD().default_factory, D([1, 2, 3], 2).maxlen, hasattr(D(), "maxlen")))
            return y + (d.maxlen or 7)
        ---
        run(T(3), D([1, 2]))
        run(T(3), D([1]))
    """,
    ),
    "a_class_that_makes_others_copies_natively": (
        2,
        """
        class D(collections.deque):
            def __new__(cls, *a, **k): return super().__new__(cls) if a else 5
        def f(x):
            d = D([1])
            y = x + 1
            e = d.copy()
            return y * len(e)
        ---
        run(T(3))
    """,
    ),
    "an_empty_dict_is_no_state": (
        1,
        "",
        """
        import copy, typing
        class A:
            def __setstate__(self, state): log.append(state)
        class B(A):
            __slots__ = ("q",)
        class DQ(collections.deque):
            def __getstate__(self): return {"got": 1}
        class P(typing.NamedTuple):
            a: object
            b: int = 2
        def f(x, p):
            copy.copy(A()); copy.deepcopy(B())
            c = A(); c.k = 3; copy.copy(c)
            d = copy.deepcopy(DQ([x], 4))
            q = copy.deepcopy(P([x], 4))
            log.append((d.got, d.maxlen, copy.copy(p) is p, type(q).__name__))
            return d[0] + q.a[0]
        ---
        run(T(3), P(1))
    """,
    ),
    "attributes_of_ordered_dicts_are_copied": (
        None,
        """
        import copy
        m = nn.Linear(3, 3)
        def f(x, o):
            made = copy.deepcopy(m.state_dict())
            a, b, c = copy.deepcopy(o), copy.copy(o), o.copy()
            log.append([hasattr(v, "tag") for v in (o, a, b, c)])
            return x + made["weight"], list(made._metadata), a, b
        def tagged(tag):
            made = collections.OrderedDict(a=1)
            made.tag = tag
            return made
        ---
        run(T(3), tagged([1]))
        run(T(3), tagged([1]))
        run(T(3), collections.OrderedDict(a=1))
    """,
    ),
}
