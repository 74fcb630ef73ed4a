"""Corners of Python's protocols: what CPython's own tests found."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "outside_exception_is_caught": """
        err = RuntimeError('outside')
        class M:
            def __enter__(self): return self
            def __exit__(self, kind, value, tb):
                log.append((kind.__name__, tb is None))
                return True
        def raising(): raise err
        def f(x):
            x = x * 2
            with M():
                raising()
            return x + 1
        ---
        run(T(3))
    """,
    "outside_exception_in_a_loop": """
        err = KeyError(1)
        def f(x):
            for i in range(2):
                try:
                    raise err
                except KeyError as e:
                    log.append(e is err)
                x = x + i
            return x
        ---
        run(T(3))
    """,
    "bare_raise_keeps_the_traceback": """
        def inner(x):
            try:
                raise ValueError(1)
            except ValueError:
                raise
        def f(x):
            y = x + 1
            try:
                inner(x)
            except ValueError as e:
                return y, e
        ---
        run(T(3))
    """,
    "raise_from_none": """
        def f(x):
            y = x + 1
            try:
                try:
                    raise TypeError(1)
                except TypeError:
                    raise ValueError(2) from None
            except ValueError as e:
                return y, e.__suppress_context__, e.__cause__, e
        ---
        run(T(3))
    """,
    "traceback_is_one_object": """
        def f(x):
            try:
                raise TypeError(1)
            except TypeError as e:
                tb = e.__traceback__
                return x + 1, tb is e.__traceback__, tb == e.__traceback__
        ---
        run(T(3))
    """,
    "args_are_one_tuple": """
        def f(x):
            y = x + 1
            try:
                raise KeyError(1, x)
            except KeyError as e:
                log.append(e.args)
                log.append(e.args)
                return y, e, e.args is e.args
        ---
        run(T(3))
    """,
    "slots_are_not_in_the_dict": """
        class A:
            def __init__(self): self.n = 1
        class B(A):
            __slots__ = ('extra',)
        def f(x, b):
            b.extra = x + 1
            made = B()
            made.extra = x
            return vars(b), sorted(vars(made)), 'extra' in b.__dict__, vars(made).get('extra')
        ---
        run(T(3), B())
    """,
    "new_of_an_exception_runs_once": """
        class E(ValueError):
            def __new__(cls, *args):
                log.append(args)
                return super().__new__(cls, *args)
        def f(x):
            y = x + 1
            try:
                raise E(1)
            except E as e:
                return y, e
        ---
        run(T(3))
    """,
    "cause_must_be_an_exception": """
        def f(x):
            y = x + 1
            log.append(y)
            raise ValueError(1) from 5
        ---
        run(T(3))
    """,
    "switched_off_bool": """
        class A:
            __bool__ = None
            def __len__(self): return 1
        def f(x):
            y = x + 1
            return y if A() else x
        ---
        run(T(3))
    """,
    "switched_off_contains": """
        class A:
            __contains__ = None
            def __iter__(self): return iter([1])
        def f(x):
            y = x + 1
            return y, 1 in A()
        ---
        run(T(3))
    """,
    "bool_gives_something_else": """
        class A:
            def __bool__(self): return 1
        def f(x):
            y = x + 1
            return y if A() else x
        ---
        run(T(3))
    """,
    "str_gives_something_else": """
        class A:
            def __str__(self): return 1
        def f(x):
            return x + 1, str(A())
        ---
        run(T(3))
    """,
    "len_is_negative": """
        class A:
            def __len__(self): return -1
        def f(x):
            return x + 1, len(A())
        ---
        run(T(3))
    """,
    "index_gives_something_else": """
        class A:
            def __index__(self): return 1.5
        def f(x):
            return x + 1, [1, 2][A()]
        ---
        run(T(3))
    """,
    "virtual_subclasses_do_not_go_first": """
        import abc
        class A(abc.ABC):
            def __add__(self, other): return 'A'
        @A.register
        class B:
            def __radd__(self, other): return 'B'
        def f(x):
            return x + 1, A() + B()
        ---
        run(T(3))
    """,
    "c_types_compare_by_value": """
        import fractions, decimal
        a, b = bytearray(b'x'), bytearray(b'x')
        c, d = decimal.Decimal(1), decimal.Decimal('1.0')
        class S(str): pass
        s, t = S('a'), S('a')
        def f(x):
            return x + 1, a == b, a != b, c == d, s == t, s < t, c in [d], a == b'x'
        ---
        run(T(3))
    """,
    "methods_compare_by_what_they_bind": """
        class A:
            def f(self): pass
            def g(self): pass
        a, b = A(), A()
        def f(x):
            made = A()
            table = {a.f: 1, made.f: 2}
            return (x + 1, a.f == a.f, a.f == b.f, a.f != a.g, made.f == made.f,
                    made.f == a.f, table[a.f], table[made.f], b.f in table)
        ---
        run(T(3))
    """,
    "divmod_has_its_own_method": """
        class A:
            def __divmod__(self, other): return 'divmod', other
            def __floordiv__(self, other): return 'floordiv'
            def __mod__(self, other): return 'mod'
        def f(x):
            return x + 1, divmod(A(), 2), divmod(7, 2)
        ---
        run(T(3))
    """,
    "del_runs_when_it_should": """
        import dynamo
        class A:
            def __init__(self, k): self.k = k
            def __del__(self): log.append(('del', self.k))
        @dynamo.disable(recursive=False)
        def helper(k):
            a = A(k)
            log.append('made')
        def f(x):
            x = x + 1
            helper(1)
            log.append('after')
            return x * 2
        ---
        run(T(3))
    """,
    "user_code_does_not_run_while_capturing": """
        class A:
            def __index__(self):
                log.append('index')
                return 3
        a = A()
        def f(x):
            return x + 1, hex(a)
        ---
        run(T(3))
        run(T(3))
    """,
    "init_is_a_property": """
        class A:
            @property
            def __init__(self): raise AttributeError('no init')
        def f(x):
            y = x + 1
            A()
            return y
        ---
        run(T(3))
    """,
    "object_refuses_arguments": """
        class A: pass
        class B:
            def __init__(self, *a): super().__init__(*a)
        class C:
            def __new__(cls, *a): return super().__new__(cls, *a)
        def f(x, cls, *args):
            y = x + 1
            return y, type(cls(*args)).__name__
        ---
        run(T(3), A, 1)
        run(T(3), B, 1)
        run(T(3), C, 1)
        run(T(3), B)
    """,
    "calls_that_do_not_fit": """
        def f(x, k):
            y = x + 1
            if k == 0: bool(1, 2)
            if k == 1: len()
            if k == 2: [].append()
            if k == 3: {}.get()
            if k == 4: functools.reduce(1)
            if k == 5: getattr(x=1)
            if k == 6: object.__eq__(1)
            return y
        ---
        run(T(3), 0)
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 5)
        run(T(3), 6)
    """,
    "deleting_an_unset_slot": """
        class A:
            __slots__ = ('a',)
        class B: pass
        def f(x, cls):
            y = x + 1
            a = cls()
            try:
                del a.a
            except AttributeError as e:
                return y, str(e)
        ---
        run(T(3), A)
        run(T(3), B)
    """,
    "methods_of_c_have_an_identity": """
        bound, slot, held = 'abc'.upper, (3).__add__, [1].append
        class A:
            def m(self): pass
        items = [1]
        one, two = items.append, items.append
        method = A().m
        def f(x, a, b, c):
            told = bound is bound, slot is slot, held is held, a is a, a is b, b is c, a == b
            return x + 1, told, object.__eq__(bound, bound), [a, b, c].index(c), a is bound
        ---
        run(T(3), one, one, two)
        run(T(3), one, two, two)
        run(T(3), two, one, two)
        run(T(3), bound, one, bound)
        run(T(3), method, method, method.__self__.m)
        run(T(3), method.__self__.m, method, method)
    """,
    "a_method_of_c_given_back_is_the_object": """
        items = [1]
        one, slot, text = items.append, (3).__add__, 'a'.upper
        def f(x, a): return x + 1, a
        ---
        log.append(run(T(3), one)[1] is one)
        log.append(run(T(3), items.append)[1] is one)
        log.append(run(T(3), slot)[1] is slot)
        log.append(run(T(3), text)[1] is text)
    """,
    "words_of_built_in_types": """
        import collections, types, decimal
        class Text(str): pass
        class Int(int): pass
        proxy = types.MappingProxyType({'b': 1})
        filled = collections.defaultdict(int, a=1)
        size = torch.Size([1, 2])
        past = tuple.__dict__['__rmul__'].__get__(size), tuple.__dict__['__add__'].__get__(size)
        held = functools.cached_property(len)
        class Plain: pass
        def told(uses):
            results = []
            for use in uses:
                try:
                    results.append(use())
                except Exception as e:
                    results.append((type(e), str(e)))
            return results
        def f(x):
            y = x + 1
            return y, told([
                lambda: proxy.__ge__(bool), lambda: proxy.__eq__(3), lambda: proxy < proxy,
                lambda: proxy == {'b': 1}, lambda: list(reversed(proxy)),
                lambda: {}.__ior__(x), lambda: dict(x), lambda: {}.update([3]),
                lambda: collections.OrderedDict([3]), lambda: collections.OrderedDict([(1,)]),
                lambda: collections.OrderedDict().update([(1, 2, 3)]),
                lambda: collections.OrderedDict([()]), lambda: dict([(1,)]),
                lambda: 'a'.join(held), lambda: Text('a').join(held), lambda: Int(3).to_bytes(Text('3')),
                lambda: super(int | str), lambda: past[0](Plain()), lambda: past[0](2),
                lambda: past[1]([1]), lambda: size.__rmul__(Plain()), lambda: x.__rdiv__.shared,
                lambda: reversed(typing.Optional[int]), lambda: torch.nn.Module.__init__({1}),
                lambda: x.__dir__() == dir(x), lambda: filled.__init__(), lambda: filled.default_factory,
            ])
        ---
        run(T(3))
        log.append(filled)
    """,
    "abstract_classes": """
        import abc
        class A(abc.ABC):
            @abc.abstractmethod
            def one(self): ...
        class B(A):
            @abc.abstractmethod
            def two(self): ...
        def f(x, cls):
            y = x + 1
            try:
                cls()
            except TypeError as e:
                return y, str(e)
        ---
        run(T(3), A)
        run(T(3), B)
    """,
}


# In place of the dots: statements that raise natively while an exception is being handled. What they
# raise has it as its context.
HANDLING = """
    import dynamo
    class A:
        def __delattr__(self, name): raise KeyError(name)
    other = OSError(7)
    def helper(x): raise ValueError(5)
    def f(x, k):
        y = x + 1
        try:
            helper(x)
        except ValueError:
            dynamo.graph_break()
            y = y + 1
            log.append(y)
            ...
            log.append('went on')
            y = y * 2
        return y
    ---
    run(T(2), A())
    run(T(2), 1)
"""
RAISING = ["del k.a", "raise other", "raise", "raise KeyError(1) from other", "k.foo", "k['a']"]
RAISING += ["y = y + k", "k[0] = 1", "del k[0]", "a, b = k", "x + torch.ones(7)", "undefined"]
RAISING += ["with k: pass", "import no_such_module", "for i in k: pass", "a, *b = k", "int(k)"]
RAISING += ["assert x.sum() > 1000, other", "(y := y + 1) if k else 3", "k[1:2]", "k < 3", "y in k"]

PROGRAMS |= {
    f"context_of_what_is_raised: {text}": HANDLING.replace("...", text) for text in RAISING
}


# Each with an instance `k` of a class whose metaclass has the special methods that the class lacks,
# an enum's member `r`, and `d`, which holds a method `keys` of its own.
LACKING = """
    import enum
    class Meta(type):
        def __iter__(cls): return iter([1])
        def __next__(cls): return 1
        def __await__(cls): return iter([])
        def __aiter__(cls): return cls
        def __anext__(cls): return cls
        def __index__(cls): return 3
        def __getitem__(cls, place): return 1
        def keys(cls): return []
    class K(metaclass=Meta): pass
    class R(enum.Enum):
        RED = 1
    class D:
        def __init__(self): self.keys = lambda: ['a']
        def __getitem__(self, key): return 4
    def g(*args, **kwargs): return args, kwargs
    async def awaited(k): await k
    async def looped(k):
        async for item in k: pass
    def f(x, k, r, d):
        y = x + 1
        try:
            return y, ...
        except Exception as e:
            return y, type(e), str(e)
    ---
    run(T(2), K(), R.RED, D())
"""
USES = ["[*k]", "[*r]", "[1, *k]", "(*r,)", "{*r}", "{**k}", "{**d}", "{**r}", "g(*k)", "g(1, *r)"]
USES += ["g(**k)", "g(**d)", "next(k)", "[1, 2, 3, 4][k]", "iter(k)", "'%s %s' % k", "'%s' % r"]
USES += ["[a for a, b in [k]]", "[a for a in r]", "aiter(k)", "anext(k)", "awaited(k).send(None)"]
USES += ["looped(k).send(None)", "range(k)", "operator.length_hint(k)", "k in k", "k[0]", "len(r)"]

PROGRAMS |= {f"special_methods_of_the_class: {use}": LACKING.replace("...", use) for use in USES}
