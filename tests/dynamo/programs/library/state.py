"""State that is reached in two ways: by a number and as an object, as an attribute and in a dict, by
the frame and by what a library keeps; and what Python asks of classes before it uses them.
"""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "id_among_numbers_of_an_earlier_frame": """
        import dynamo
        class P: pass
        running = set()
        def shown(self, x):
            key = id(self), 1
            if key in running:
                return ["..."]
            running.add(key)
            try:
                dynamo.graph_break()
                return [x + 1, *[i for part in self.parts for i in shown(part, x)]]
            finally:
                running.discard(key)
        def f(x, p):
            return shown(p, x)
        def nest():
            p, q = P(), P()
            p.parts, q.parts = (q, p), (p,)
            return p
        ---
        run(T(2), nest())
        run(T(2), nest())
    """,
    "id_in_a_memo_from_outside": """
        def f(x, obj, memo):
            return x + 1, id(obj) in memo, memo.get(id(obj)), (id(obj),) in {(k,) for k in memo}
        a, b = [1], [2]
        ---
        run(T(2), a, {id(a): 5})
        run(T(2), b, {id(a): 5})
        run(T(2), a, {id(a): 5})
    """,
    "instance_dict_as_a_dict": """
        class A: pass
        def f(x, obj, d):
            y = x + 1
            d["a"] = 5
            seen = [obj.a]
            obj.b = 7
            seen.append(d.get("b"))
            del d["a"]
            return y * 2, seen, hasattr(obj, "a"), len(d)
        def stored(x, obj, d):
            obj.c = 9
            return x + d["c"]
        obj = A()
        ---
        run(T(2), obj, vars(obj))
        run(T(2), obj, vars(obj))
    """,
    "what_members_of_enums_hold": """
        class G(enum.Enum):
            A = [1, 2]
            B = [3]
            def __init__(self, items): self.w = [len(items)]
            @enum.property
            def twice(self): return self.value * 2
        class I(enum.IntEnum):
            X = 1
        class Bad(enum.Enum):
            A = 1
            def __repr__(self): raise RuntimeError("no")
        def found(item, kind):
            try: return item in kind
            except TypeError as error: return str(error)
        def f(x):
            G.A.w.append(4)
            G.A.value.append(5)
            Bad.A.more = 3
            more = Bad.A.__dict__.pop("more")
            asked = found(1, I), found("x", I), found([], I), found(I.X, I), found(G.A, I)
            return x + 1, len(G.A.w), G.A.value, G.B.twice, G.A.__doc__, more, hasattr(Bad.A, "more"), asked
        ---
        run(T(2))
        run(T(2))
        G.A.w.clear()
        run(T(2))
    """,
    "members_that_are_not_complete": """
        def f(x):
            class E(enum.Enum):
                A = 1
                B = 2
                def __init__(self, v):
                    self.w = x * v
                    self.known = getattr(self, "_name_", None)
            class I(enum.IntEnum):
                def __new__(cls, v):
                    m = int.__new__(cls, v)
                    m._value_ = v + 1
                    m.extra = []
                    m.extra.append(m._value_)
                    return m
                A = 1
            return [(m.name, m.w, m.known) for m in E], [(m.name, m.value, m.extra) for m in I]
        ---
        run(T(2))
        run(T(2))
    """,
    "classes_found_by_what_knows_them": """
        class Base: pass
        class A(Base): items = []
        class B(Base): items = []
        def f(x):
            for cls in Base.__subclasses__():
                cls.items.append(1)
            return x + 1, [cls.items[:] for cls in Base.__subclasses__()]
        ---
        run(T(2))
        run(T(2))
    """,
    "singledispatch_with_an_abstract_class": """
        import collections.abc
        def f(x):
            @functools.singledispatch
            def g(obj): return "base"
            seen = [g({})]
            g.register(collections.abc.Sized, lambda obj: "sized")
            seen.append(g({}))
            return x + 1, seen
        ---
        run(T(2))
        run(T(2))
    """,
    "singledispatch_with_a_cache_that_looks": """
        import weakref
        class Seen(collections.UserDict):
            def __getitem__(self, key):
                found = self.data[key]
                log.append(("get", key))
                return found
            def __setitem__(self, key, value):
                log.append(("set", key))
                self.data[key] = value
        kept = weakref.WeakKeyDictionary
        weakref.WeakKeyDictionary = Seen
        try:
            @functools.singledispatch
            def g(obj): return "base"
        finally:
            weakref.WeakKeyDictionary = kept
        def f(x):
            return x + 1, g(1), g(2), g("")
        ---
        run(T(2))
        run(T(2))
    """,
    "init_that_returns_something": """
        class A:
            def __init__(self, value): return value
        def made(value):
            try: return type(A(value)).__name__
            except TypeError as error: return str(error)
        def f(x):
            return x + 1, made(None), made(3), made("s"), made(x)
        ---
        run(T(2))
    """,
    "data_descriptor_without_get": """
        class D:
            def __set__(self, obj, value): obj.__dict__["a"] = value
        class A: a = D()
        def f(x):
            obj = A()
            before = obj.a is A.__dict__["a"]
            obj.a = x
            return before, obj.a + 1
        ---
        run(T(2))
    """,
    "access_to_attributes_by_any_callable": """
        class Both:
            def __getattribute__(self, name):
                if name == "b": raise AttributeError(name)
                return name
            def __getattr__(self, name): return "fallback " + name
        class D:
            def __get__(self, obj, cls=None):
                def getter(name):
                    log.append(name)
                    raise AttributeError(name)
                return getter
        class G: __getattribute__ = D()
        class H: __getattr__ = D()
        class S(dict):
            __setattr__ = dict.__setitem__
            __delattr__ = dict.__delitem__
            __neg__ = dict.copy
        def f(x):
            s = S()
            s.y = x + 1
            s.z = 2
            del s.z
            both = Both()
            return s, -s, both.a, both.b, hasattr(both, "b"), hasattr(G(), "n"), hasattr(H(), "m")
        ---
        run(T(2))
    """,
    "lengths_that_are_asked_for": """
        class Refused(Exception): pass
        class L:
            def __init__(self, answer): self.answer = answer
            def __iter__(self): log.append("iter"); return iter([1])
        class Length(L):
            def __len__(self): log.append("len"); return self.answer()
        class Hint(L):
            def __length_hint__(self): log.append("hint"); return self.answer()
        def refuse(): raise Refused
        def wrong(): raise TypeError
        def made(make, obj):
            try: return make(obj)
            except (Refused, TypeError, ValueError) as error: return type(error).__name__, str(error)
        makes = list, tuple, lambda o: [].extend(o), lambda o: [*o], lambda o: (0, *o), set, iter
        answers = lambda: 1, lambda: "x", lambda: -1, lambda: NotImplemented, refuse, wrong
        def f(x, kind, answer):
            return x + 1, [made(make, kind(answer)) for make in makes[:-1]]
        ---
        [run(T(2), kind, answer) for kind in (Length, Hint) for answer in answers]
    """,
    "words_of_methods_and_dicts": """
        def failed(*args):
            try: return dict(*args)
            except (TypeError, ValueError) as error: return str(error)
        def f(x):
            a = []
            told = a.append.__doc__, a.append.__qualname__, {}.get.__doc__, hasattr(a.append, "__objclass__")
            return x + 1, told, failed({}, {}), failed(1), failed([1]), failed(["abc"])
        ---
        run(T(2))
    """,
    "parameters_whose_defaults_change": """
        import inspect
        def plain(a, b=1, *, c=2): pass
        @functools.wraps(plain)
        def wrapped(*args): pass
        class A:
            def m(self, a=1): pass
        def f(x):
            told = inspect.signature(plain), inspect.signature(wrapped), inspect.signature(A().m)
            return x + 1, [str(one) for one in told], inspect.getfullargspec(plain).defaults
        ---
        run(T(2))
        plain.__defaults__ = (5, 6)
        run(T(2))
        plain.__kwdefaults__["c"] = 7
        run(T(2))
        A.m.__defaults__ = (8,)
        run(T(2))
    """,
    "literals_among_keys_that_compare_themselves": """
        class K:
            def __init__(self, v): self.v = v
            def __hash__(self): return hash(self.v)
            def __eq__(self, other):
                log.append((self.v, other))
                return isinstance(other, int) and other == self.v
        d = {K(5): "k", 7: "s"}
        def f(x):
            return x + 1, d[5], d.get(7), 5 in d, d.get(9), 3 in d
        ---
        run(T(2))
        run(T(2))
    """,
    "super_of_a_class_alone": """
        class A:
            def m(self): return "A"
        class B(A):
            def m(self): return "B" + self._super.m()
        def f(x):
            y = x + 1
            B._super = super(B)
            return y * 2, B().m(), type(super(B)).__name__
        ---
        run(T(2))
        run(T(2))
    """,
    "bases_that_refuse": """
        import typing
        def f(x):
            y = x + 1
            try:
                class A(typing.Optional): pass
            except TypeError as error:
                return y * 2, str(error)
        ---
        run(T(2))
    """,
    "iterators_over_what_the_frame_has_changed": """
        import dynamo
        class D(dict): pass
        class L(list): pass
        class Q(collections.deque): pass
        class S(set): pass
        class A: pass
        def walk(x, items):
            out = []
            for item in items:
                dynamo.graph_break()
                x = x + 1
                out.append(item)
            return x, out
        def instance(x):
            a = A()
            a.i, a.j = 1, 2
            return walk(x, vars(a))
        def f(x, kind, items, add):
            if kind == "vars":
                items.i, items.j = 1, 2
                return instance(x), walk(x, vars(items))
            getattr(items, add)(*((9, 9) if "__" in add else (9,)))
            if kind == "reversed":
                return walk(x, reversed(items))
            if kind == "late":
                it = iter(items)
                next(it), next(it)
                return walk(x, it)
            return walk(x, items.values() if kind == "values" else items)
        ---
        run(T(2), "", {1: 2, 3: 4}, "__setitem__")
        run(T(2), "values", {1: 2, 3: 4}, "__setitem__")
        run(T(2), "", D({1: 2, 3: 4}), "__setitem__")
        run(T(2), "", collections.OrderedDict({1: 2, 3: 4}), "__setitem__")
        run(T(2), "", collections.UserDict({1: 2, 3: 4}), "__setitem__")
        run(T(2), "late", [1], "append")
        run(T(2), "late", L([1]), "append")
        run(T(2), "reversed", [1, 2], "append")
        run(T(2), "reversed", L([1, 2]), "append")
        run(T(2), "", collections.deque([1, 2]), "append")
        run(T(2), "reversed", Q([1, 2]), "appendleft")
        run(T(2), "", {1, 2}, "add")
        run(T(2), "", S([1, 2]), "add")
        run(T(2), "vars", A(), "")
    """,
    "iterators_over_what_is_filled_later": """
        import dynamo
        class K:
            def __init__(self, n): self.n = n
            def __eq__(self, other): return self.n == other.n
            def __hash__(self): return hash(self.n)
        def f(x, kind):
            items = {K(1): 1, K(2): 2} if kind else [1, 2, 3]
            if kind == "set":
                items = set(items)
            it = iter(items) if kind != "reversed" else reversed([*items, 4])
            if kind != "set":
                next(it)
            if not kind:
                items.append(it)
            dynamo.graph_break()
            rest = list(it)
            return x + 1, sorted(k.n for k in rest) if kind in ("set", "dict") else len(rest)
        ---
        run(T(2), "")
        run(T(2), "set")
        run(T(2), "dict")
        run(T(2), "reversed")
    """,
    "new_objects_whose_items_are_hashed_by_methods": """
        import dynamo
        class K:
            def __init__(self, n): self.n = n
            def __eq__(self, other): return isinstance(other, K) and self.n == other.n
            def __hash__(self): return hash(self.n)
        class D(dict): pass
        class S(set): pass
        class O(collections.OrderedDict): pass
        class C(collections.defaultdict): pass
        class F(frozenset): pass
        class H(dict):
            def __hash__(self): return hash(self.note)
        def f(x, make):
            made = F([K(1)]) if make is F else make()
            rest = {}
            if make is S:
                made.add(K(1))
            elif make is not F:
                made[K(1)] = x + 1
                made["itself"] = made
                made[K(2)] = [made]
            made.note = x - 1
            if make is H:
                made.note = 3
                rest[made] = 1
            dynamo.graph_break()
            if make in (S, F):
                return x + made.note, K(1) in made, len(made)
            same = made[K(2)][0] is made is made["itself"]
            return [getattr(key, "n", key) for key in made], made[K(1)], same, made.note, list(rest.values())
        ---
        run(T(2), D)
        run(T(2), S)
        run(T(2), O)
        run(T(2), C)
        run(T(2), F)
        run(T(2), H)
    """,
    "iterators_over_parts_of_new_objects": """
        import dynamo
        class D(dict): pass
        class L(list): pass
        class Q(collections.deque): pass
        class S(set): pass
        def f(x, make):
            items = make([1, 2, 3]) if make is not D else D({1: 2, 3: 4})
            it = iter(items)
            first = next(it)
            view = items.keys() if make is D else ()
            dynamo.graph_break()
            (items.append if hasattr(items, "append") else functools.partial(items.pop, *[1] * (make is D)))(
                *[4] * hasattr(items, "append"))
            try: return x + 1, first, list(it), len(view)
            except RuntimeError as error: return x + 2, str(error), list(view)
        ---
        run(T(2), D)
        run(T(2), L)
        run(T(2), Q)
        run(T(2), S)
    """,
    "keys_that_change_what_the_frame_has_made": """
        import weakref, dynamo
        class K:
            def __init__(self, n, seen): self.n, self.seen = n, seen
            def __hash__(self): return self.n
            def __eq__(self, other):
                self.seen.pop() if isinstance(self.seen, list) else next(self.seen)
                return self.n == other.n
        def f(x):
            y = x + 1
            for make in (list, iter):
                seen, other = make([0] * 9), make([1] * 9)
                d = {K(1, seen): 1}
                found = d[K(1, seen)], weakref.ref(f) == weakref.ref(f)
                a, b = K(2, other), K(2, other)
                v, w = weakref.ref(a), weakref.ref(b)
                found += v == v, v == w, w in {v}, len(list(other))
                dynamo.graph_break()
                yield_ = found, len(d), len(list(seen))
            return y * 2, yield_
        ---
        run(T(2))
    """,
    "sets_from_outside_changed_by_iterators": """
        import weakref
        class U(collections.UserString): pass
        names = [U("a"), U("b"), U("c")]
        def f(x, s, w, ints):
            x = x + 1
            s.update(n for n in range(4))
            s.difference_update(map(abs, [-1, 1]))
            s.intersection_update(iter([0, 2, 9]))
            s.symmetric_difference_update(zip([5], [6]))
            w &= w
            w |= weakref.WeakSet(names[:2])
            w.difference_update(iter(names[1:]))
            ints ^= {i: i for i in (1, 2)}.keys()
            return x
        ---
        s, w, ints = {7}, weakref.WeakSet(names), {1, 9}
        run(T(2), s, w, ints)
        log.append((s, ints, sorted(map(str, w))))
    """,
    "iterators_past_methods_of_the_class": """
        import dynamo
        class D(dict):
            def __iter__(self): return iter("abc")
            def keys(self): return ["k"]
        class L(list):
            def __iter__(self): return iter("abc")
            def __reversed__(self): return iter("cba")
        class P(tuple):
            def __iter__(self): return iter("abc")
        class S(set):
            def __iter__(self): return iter("abc")
        def f(x, d, l, p, s):
            its = [dict.__iter__(d), list.__iter__(l), list.__reversed__(l), tuple.__iter__(p), set.__iter__(s)]
            for it in its: next(it)
            its += [dict.keys(d), list.__iter__(l), list.__reversed__(l), tuple.__iter__(p), set.__iter__(s)]
            dynamo.graph_break()
            l[0] = 7
            return x + 1, [list(it) for it in its]
        ---
        run(T(2), D({1: 2}), L([1, 2]), P((1, 2)), S([1, 2]))
    """,
    "lazy_modules_made_inside": """
        def f(x):
            m = nn.LazyLinear(3)
            return m(x).shape, type(m).__name__, len(m._forward_pre_hooks), x + 1
        ---
        run(T(2, 2))
        run(T(2, 2))
    """,
    "class_of_a_lazy_module": """
        import re
        torch.manual_seed(0)
        l, m, n = nn.LazyLinear(3), nn.LazyLinear(2), nn.LazyLinear(1)
        def f(x):
            kinds = type(l).__name__, isinstance(m, nn.LazyLinear), n.__class__ is nn.LazyLinear
            x = l(x)
            return n(m(x)), kinds, type(l).__name__, isinstance(m, nn.LazyLinear)
        ---
        run(T(2, 2))
        run(T(2, 2))
    """,
    "cached_answer_of_changed_state": """
        class C: n = 1
        c, w = C(), torch.zeros(3)
        @functools.lru_cache
        def table(name):
            log.append(name)
            return torch.ones(3) * c.n, w.sum()
        def f(x, n):
            log.append("before")
            c.n = n
            w.add_(1)
            t, s = table("a")
            log.append("after")
            return x + t, s
        ---
        run(T(3), 2)
        run(T(3), 3)
        table.cache_clear()
        run(T(3), 4)
        table.cache_clear()
        run(T(3), 5)
        table.cache_info()
    """,
    "cached_answer_of_random_numbers": """
        @functools.lru_cache
        def noise(n): return torch.randn(3) * n
        def f(x):
            a = torch.rand(2)
            return x + noise(2), a, torch.rand(2)
        ---
        run(T(3))
        run(T(3))
        noise.cache_clear()
        run(T(3))
        noise.cache_info()
    """,
    "cached_answer_under_no_grad": """
        p = torch.ones(3, requires_grad=True)
        @functools.lru_cache
        def table(n): return p * n
        def f(x):
            with torch.no_grad():
                t = table(2)
            return x + t
        ---
        run(T(3))
        table.cache_clear()
        run(T(3))
    """,
    "caches_that_no_call_asks": """
        @functools.lru_cache
        def load(name):
            log.append(name)
            return torch.ones(3)
        def f(x, wanted):
            return x + load("a") if wanted and not x.requires_grad else x * 2
        ---
        run(T(3), True)
        load.cache_clear()
        run(T(3), False)
        run(T(3, grad=True), True)
        load.cache_info()
        run(T(3), True)
        run(T(3), True)
        load.cache_info()
    """,
    "cached_function_that_fails_at_first": """
        there = False
        @functools.lru_cache(maxsize=4)
        def load(name, *, n=1):
            log.append(name)
            if not there: raise KeyError(name)
            return torch.ones(3)
        def f(x):
            try:
                return x + load("a", n=2) + load(("b", 1.5))
            except KeyError:
                return x
        ---
        run(T(3))
        run(T(3))
        there = True
        run(T(3))
        run(T(3))
        load.cache_info()
    """,
    "answers_of_one_cache_in_a_graph": """
        @functools.lru_cache(maxsize=None)
        def scale(n): return torch.ones(3) * n
        def f(x): return x * scale(2) + scale(3) + scale(2.0)
        ---
        run(T(3))
        run(T(3))
        scale.cache_info()
    """,
    "starred_variable_of_an_iterator_that_restarts": """
        class I:
            def __iter__(self):
                log.append("iter")
                self.i = 0
                return self
            def __next__(self):
                self.i += 1
                if self.i > 3: raise StopIteration
                return self.i
        def f(x):
            a, *b = I()
            *c, d = I()
            return a, b, c, d, x + 1
        ---
        run(T(3))
    """,
    "backward_behind_a_number_that_varies": """
        w = torch.ones(3, requires_grad=True)
        def f(x, n):
            w.grad = None
            (w * x * n).sum().backward()
            return w.grad * n
        ---
        run(T(3), 2), run(T(3), 3), run(T(3), 4)
    """,
    "arguments_of_abstract_classes": """
        import abc
        class B(abc.ABC):
            @abc.abstractmethod
            def m(self): ...
        class D(B):
            def __init__(self, a): pass
        def f(x, cls, *args, **kwargs):
            try: cls(*args, **kwargs)
            except TypeError as error: return str(error), x + 1
        ---
        run(T(3), B)
        run(T(3), B, 1)
        run(T(3), B, a=1)
        run(T(3), D, 1)
        run(T(3), D)
    """,
    "modules_without_a_name": """
        import types
        m = types.ModuleType.__new__(types.ModuleType)
        def f(x):
            m.a = x + 1
            return m.a, hasattr(m, "b")
        ---
        run(T(2))
    """,
}
