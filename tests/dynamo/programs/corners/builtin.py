"""Corners of built-in types, itertools, collections and operator that CPython's own tests look into."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, captured=False)
PROGRAMS = {
    "concatenation_of_what_is_no_sequence": """
        class S:
            def __init__(self, items): self.items = items
            def __getitem__(self, i): return self.items[i]
            def __add__(self, other): return self.items + other.items
        class R:
            def __radd__(self, other): return "asked"
        def tried(*args):
            try: return operator.concat(*args)
            except TypeError as error: return str(error)
        def f(x):
            numbers = tried(13, 29), tried(None, None), tried({}, {})
            return x + 1, *numbers, tried(S([1]), S([2])), tried([1], R()), tried([1], [x]), tried("a", "b")
        ---
        run(T(3))
        """,
    "tee_of_what_asks_the_tee": """
        class I:
            count = 0
            def __iter__(self): return self
            def __next__(self):
                self.count += 1
                if self.count > 2: raise StopIteration
                return next(self.other) if self.count == 1 else 5
        def f(x):
            i = I()
            a, i.other = itertools.tee(i)
            try: next(a)
            except RuntimeError as error: return x + 1, str(error), list(a)
        ---
        run(T(3))
        """,
    "partial_of_another_module": """
        import importlib, sys
        known = sys.modules.pop("functools"), sys.modules.pop("_functools")
        other = importlib.import_module("functools")
        sys.modules["functools"], sys.modules["_functools"] = known
        def f(x):
            y = x + 1
            inner = other.partial(max, 1)
            nested = other.partial(inner, default=2)
            return y, nested.func is max, nested.args
        ---
        run(T(3))
        """,
    "dict_of_a_partial": """
        def f(x):
            y, p = x + 1, functools.partial(max, 1)
            p.a = 5
            return y, p.__dict__
        ---
        run(T(3))
        """,
    "operators_take_two": """
        def f(x, *args):
            y = x + 1
            try: return y, operator.pow(*args)
            except TypeError as error: return y, str(error)
        ---
        run(T(3), 1, 2, 3)
        run(T(3), 2, 3)
        """,
    "named_tuple_field_documented": """
        def f(x):
            y = x + 1
            P = collections.namedtuple("P", "a b")
            before = P.a.__doc__
            P.a.__doc__ = "changed"
            return y, before, P.a.__doc__, P.b.__doc__, P(1, 2).a
        ---
        run(T(3))
        run(T(3))
        """,
    "named_tuple_of_a_set": """
        def f(x):
            words = {"alias", "at", "attribute", "build", "bypass", "create", "doc", "make", "field"}
            words |= {"a" + str(i) for i in range(60)}
            return x + 1, collections.namedtuple("P", words)._fields == tuple(words)
        ---
        run(T(3))
        """,
    "percent_of_an_instance_with_rmod": """
        class S(str):
            def __rmod__(self, other): return f"{other!r} % {str(self)!r}" if other else NotImplemented
        class P(str): pass
        def f(x):
            text = "c"
            text %= S("d")
            return x + 1, "a %% %r" % S("b"), "a %r" % P("b"), text
        ---
        run(T(3))
        """,
    "percent_without_conversions": """
        class S(str): pass
        class A: pass
        class M:
            def __getitem__(self, key): return key
        def tried(value):
            try: return "" % value
            except TypeError as error: return str(error)
        def f(x):
            items = tried({}), tried([x]), tried(M()), tried(b""), tried((x,)), tried(())
            return x + 1, items, tried(A()), tried(S()), tried(None), "%(a)s" % M()
        ---
        run(T(3))
        """,
    "join_of_nothing": """
        def f(x, *args, **kwargs):
            y = x + 1
            try: return y, ",".join(*args, **kwargs)
            except TypeError as error: return y, str(error)
        ---
        run(T(3))
        run(T(3), ["a", "b"])
        run(T(3), ["a"], ["b"])
        run(T(3), iterable=["a"])
        """,
    "literal_subclass_of_what_converts": """
        class S(str):
            def __new__(cls, value):
                self = str.__new__(cls, "")
                self.value = value
                return self
            def __str__(self): return self.value
        class Plain(str): pass
        class I(int):
            def __int__(self): return 42
        class J(int): pass
        class F(float):
            def __float__(self): return 2.5
        class G(float): pass
        class Shown:
            def __str__(self): return "shown"
        def f(x):
            texts = Plain(S("abc")), Plain(S(Plain("abc"))), Plain(Shown()), Plain(b"abc", "ascii")
            return x + 1, texts, J(I(3)), J("12", base=3), G(F(1.0)), J(1.5), J(), Plain()
        ---
        run(T(3))
        """,
    "sets_looked_for_in_sets": """
        class S(set): pass
        def tried(function, *args):
            try: return function(*args)
            except KeyError as error: return "missing", error.args[0]
        def f(x):
            s = {frozenset("ab"), frozenset("c"), 5}
            s.discard({"a", "b"})
            s.discard({"z"})
            kept = len(s), {"c"} in s, S("c") in s
            s.remove(S("c"))
            return x + 1, kept, s, tried(s.remove, {"q"}), tried(s.remove, "q")
        ---
        run(T(3))
        """,
    "text_of_a_set_whose_table_has_gaps": """
        def made():
            s = set("gallahad" * 3) | {chr(i) for i in range(200)}
            for i in range(200): s.discard(chr(i)) if chr(i) not in "xqglahd" else None
            return s
        s = made()
        def f(x, s):
            return x + 1, str(s), f"{s}", "%s" % s, "%r %s" % (1, s)
        ---
        y, *texts = run(T(3), s)
        texts[0] == str(s), texts[1] == str(s), texts[2] == str(s), texts[3] == f"1 {s}"
        """,
    "cycle_draws_when_asked": """
        def endless(n):
            while True:
                log.append(n)
                yield n
                n += 1
        def f(x, first):
            it = itertools.cycle(first)
            y = x + next(it)
            return y, it
        ---
        y, it = run(T(3), endless(1))
        next(it), type(it)
        y, it = run(T(3), [1, 2])
        [next(it) for _ in range(7)]
        """,
    "cycle_in_its_second_round": """
        def f(x):
            it = itertools.cycle([1, 2, 3])
            for _ in range(5): y = x + next(it)
            return y, it
        ---
        y, it = run(T(3))
        [next(it) for _ in range(7)]
        type(it)
        """,
    "iterators_of_itertools_begin_at_once": """
        def tried(function, *args):
            try: return type(function(*args)).__name__
            except TypeError as error: return str(error)
        def f(x):
            ends = [3, None, 2.5]
            found = [tried(itertools.compress, 3, []), tried(itertools.compress, [], None)]
            found += [tried(itertools.takewhile, bool, e) for e in ends]
            found += [tried(itertools.dropwhile, bool, e) for e in ends]
            found += [tried(itertools.starmap, bool, e) for e in ends]
            found += [tried(itertools.filterfalse, bool, e) for e in ends]
            found += [tried(filter, bool, e) for e in ends]
            found += [tried(itertools.pairwise, e) for e in ends]
            found += [tried(itertools.accumulate, e) for e in ends]
            found += [tried(itertools.zip_longest, e) for e in ends]
            found += [tried(itertools.groupby, e) for e in ends]
            found += [tried(itertools.count, e) for e in [*ends, "a", 1j, [], True]]
            found += [tried(map, len), tried(map), tried(filter, len), tried(itertools.compress, [])]
            found += [tried(next, filter(3, [1])), tried(next, itertools.filterfalse(3, [1]))]
            return x + 1, found
        ---
        run(T(3))
        """,
    "iterators_of_itertools_live_on": """
        def less(n): return n < 3
        def f(x, advance):
            made = [
                itertools.compress("abcdef", [1, 0, 1, 1, 0, 1]),
                itertools.takewhile(less, [1, 2, 0, 1, 3, 1]),
                itertools.dropwhile(less, [1, 2, 5, 1, 3, 1]),
                itertools.starmap(pow, [(2, 3), (3, 2), (4, 1)]),
                itertools.filterfalse(less, [1, 5, 2, 6, 7]),
                itertools.filterfalse(None, [1, 0, "", 3, ()]),
                itertools.pairwise([1, 2, 3, 4]),
                itertools.accumulate([1, 2, 3, 4]),
                itertools.accumulate([1, 2, 3, 4], operator.mul, initial=10),
                itertools.zip_longest([1, 2, 3], [4], "ab", fillvalue="-"),
                itertools.product([1, 2], "ab", repeat=2),
                itertools.permutations([1, 2, 3], 2),
                itertools.combinations([1, 2, 3, 4], 2),
                itertools.combinations_with_replacement([1, 2, 3], 2),
            ]
            drawn = [[next(it) for _ in range(advance)] for it in made]
            return x + 1, drawn, made
        ---
        y, drawn, made = run(T(3), 0)
        [type(it) for it in made]
        [list(it) for it in made]
        y, drawn, made = run(T(3), 1)
        [type(it) for it in made]
        [list(it) for it in made]
        y, drawn, made = run(T(3), 2)
        [list(it) for it in made]
        """,
    "iterators_of_itertools_after_an_exception": """
        def positive(n):
            if n < 0: raise ValueError(n)
            return n > 5
        def drained(it):
            found = []
            while True:
                try: found.append(next(it))
                except ValueError as error: found.append(str(error))
                except StopIteration: return found
        def f(x):
            values = [7, -1, 8, -2, 1, 9]
            found = [drained(itertools.takewhile(positive, values))]
            found += [drained(itertools.dropwhile(positive, values))]
            found += [drained(itertools.filterfalse(positive, values))]
            found += [drained(map(positive, values))]
            found += [drained(itertools.starmap(positive, [(n,) for n in values]))]
            return x + 1, found
        ---
        run(T(3))
        """,
    "products_are_not_made_before_they_are_asked_for": """
        def f(x):
            rows = itertools.product(range(10), repeat=30)
            return x + 1, list(itertools.islice(rows, 3)), next(itertools.permutations(range(50)))[0]
        ---
        run(T(3))
        """,
    "groups_that_are_entered_again": """
        def f(x):
            seen = []
            def key(n):
                if n == 5: seen.append(list(group))
                return n != 6
            for k, group in itertools.groupby(range(10), key):
                seen.append((k, list(group)))
            it = itertools.groupby("AABBBA")
            _, first = next(it)
            _, second = next(it)
            seen += [list(first), next(second), [k for k, _ in it], list(second)]
            return x + 1, seen, [(k, len(list(g))) for k, g in itertools.groupby([1, 1, 2], None)]
        ---
        run(T(3))
        """,
    "reversed_of_what_has_items": """
        class S:
            def __init__(self): self.asked = 0
            def __len__(self):
                log.append("len")
                return 3
            def __getitem__(self, i):
                log.append(i)
                return i * 10
        class OnlyItems:
            def __getitem__(self, i): return i
        class OnlyLength:
            def __len__(self): return 1
        def tried(value):
            try: return next(reversed(value))
            except TypeError as error: return str(error)
        def f(x):
            it = reversed(S())
            log.append("made")
            hint = operator.length_hint(it)
            refused = tried(OnlyItems()), tried(OnlyLength()), tried({1}), tried(3)
            kinds = [type(reversed(v)).__name__ for v in (range(3), "ab", b"ab", [1], (1,))]
            return x + 1, [item for item in it], hint, refused, kinds, list(reversed(range(2, 9, 3)))
        ---
        run(T(3))
        """,
    "special_methods_are_looked_up_on_the_type": """
        class A:
            def __format__(self, spec): return "class " + spec
            def __str__(self): return "text"
            def __int__(self): return 1
            def __abs__(self): return 2
            def __round__(self, n=None): return 3
            def __divmod__(self, other): return 4
        def f(x):
            a = A()
            for name in ("format", "str", "int", "abs", "round", "divmod"):
                setattr(a, f"__{name}__", lambda *args: "instance")
            found = f"{a}", format(a, "s"), str(a), int(a), abs(a), round(a), divmod(a, 1)
            return x + 1, found, a.__format__(""), operator.methodcaller("__abs__")(a)
        ---
        run(T(3))
        """,
    "ordered_dict_of_a_subclass": """
        class D(collections.OrderedDict): pass
        class E(collections.defaultdict): pass
        def tried(function, *args):
            try: return repr(function(*args))
            except (TypeError, KeyError) as error: return type(error).__name__, str(error)
        def f(x):
            a, b, e = D(a=1, b=2), D(b=3), E(int, a=1)
            made = a | b, a | {}, {} | a, a.copy(), e | {"b": 2}, e.copy()
            kinds = [type(m).__name__ for m in made]
            return x + 1, kinds, made, tried(D, [("a", 1)], None), tried(D, (), ())
        ---
        run(T(3))
        """,
    "ordered_dict_whose_keys_have_moved": """
        class K: pass
        class D(collections.OrderedDict): pass
        k, l = K(), K()
        ds = [kind([("a", 1), ("b", 2), (k, 3), (l, 4)]) for kind in (collections.OrderedDict, D)]
        def moved(*args, **kwargs):
            for d in ds: d.move_to_end(*args, **kwargs)
        def f(x, d):
            y = x + d[k]
            return y, list(d), list(d.values()), [(key, v) for key, v in d.items()], d == ds[0]
        ---
        [run(T(3), d) for d in ds]
        moved("a")
        [run(T(3), d) for d in ds]
        moved(l, last=False)
        [run(T(3), d) for d in ds]
        ds
        """,
    "ordered_dict_changed_whose_keys_have_moved": """
        class D(collections.OrderedDict): pass
        ds = [kind([("a", 1), ("b", 2), ("c", 3)]) for kind in (collections.OrderedDict, D)]
        def moved(*args, **kwargs):
            for d in ds: d.move_to_end(*args, **kwargs)
        def f(x, d):
            d["new"] = 5
            d.move_to_end("b", last=False)
            return x + 1, list(d), d.popitem()
        ---
        moved("a")
        [run(T(3), d) for d in ds]
        ds
        moved("c")
        [run(T(3), d) for d in ds]
        [list(d) for d in ds]
        """,
    "methods_of_dict_on_an_ordered_dict": """
        class D(collections.OrderedDict): pass
        def tried(kind, function, *args):
            d = kind(a=1, b=2)
            function(d, *args)
            try: return repr(d)
            except KeyError as error: return str(error)
        def f(x):
            kinds = collections.OrderedDict, D
            found = [tried(k, dict.__delitem__, "a") for k in kinds]
            found += [tried(k, dict.pop, "a") for k in kinds]
            found += [tried(k, dict.popitem) for k in kinds]
            found += [tried(k, dict.__setitem__, "a", 5) for k in kinds]
            return x + 1, found
        ---
        run(T(3))
        """,
    "copies_of_immutable_subclasses": """
        class F(frozenset): pass
        class P(tuple): pass
        def told(whole, copies):
            return [(copy is whole, id(copy) == id(whole), type(copy)) for copy in copies]
        def f(x, s, p):
            n, q = F(s), P(p)
            sets = [told(s, [s.copy(), frozenset(s), F(s), s.union(), s | s]) for s in (s, n)]
            tuples = [told(p, [p[:], p + (), p * 1, tuple(p), P(p)]) for p in (p, q)]
            n.a = 1
            return x + 1, sets, tuples, hasattr(n.copy(), "a")
        ---
        run(T(3), F([1, 2]), P([1, 2]))
        run(T(3), frozenset([1, 2]), (1, 2))
        """,
    "frozensets_that_are_keys": """
        KEYS = {frozenset([1, 2]): 1, frozenset([2]): 2}
        NESTED = {frozenset([frozenset([1])]): 1, (1, frozenset([2])): 2}
        def f(x):
            a, b = KEYS
            found = [a == frozenset([1, 2]), frozenset(a) == a, frozenset([2]) < a, {1, 2} >= b]
            found += [u != v for u in KEYS for v in map(frozenset, KEYS)]
            p, q = NESTED
            found += [p == frozenset([frozenset([1])]), frozenset([2]) == q[1]]
            return x + 1, found, [a | {3}, {3} | b, a ^ {1}, {1, 2} - b]
        ---
        run(T(3))
        """,
    "views_of_dicts_have_no_hash": """
        def f(x, d):
            found = []
            for look in (lambda: d.keys() in d, lambda: d.items() in {1}, lambda: {d.keys(): 1}):
                try: found.append(look())
                except TypeError as error: found.append(str(error))
            return x + 1, found, d.values() in [d.values()], d.values() in {1}
        ---
        run(T(3), {1: 2})
        """,
    "attributes_of_immutable_types": """
        def f(x):
            found = []
            for kind in (itertools.count, int, dict):
                try: kind.added = 1
                except TypeError as error: found.append(str(error))
            return x + 1, found
        ---
        run(T(3))
        """,
    "refused_by_format_and_batched": """
        def f(x):
            found = []
            for call in (lambda: format(x.shape[0], None), lambda: format(F(1), 2)):
                try: found.append(call())
                except TypeError as error: found.append(str(error))
            if hasattr(itertools, "batched"):
                try: itertools.batched(3, 2)
                except TypeError as error: found.append(str(error))
            return x + 1, found
        ---
        from fractions import Fraction as F
        run(T(3))
        """,
    "texts_of_copied_properties": """
        def f(x):
            def one(self): return 1
            def two(self):
                "two"
            told = property(one, None, None, "told")
            made = [told.getter(two), property(two).getter(one), property(two).setter(one)]
            made += [told.setter(two), told.deleter(None), property(one).getter(two)]
            return x + 1, [p.__doc__ for p in made], [p.fget is two for p in made]
        ---
        run(T(3))
        """,
    "which_of_two_equal_members_an_intersection_keeps": """
        class A:
            def __init__(self, n, name): self.n, self.name = n, name
            def __eq__(self, other): return self.n == other.n
            def __hash__(self): return hash(self.n)
        a, b = {A(1, "a1"), A(2, "a2")}, {A(1, "b1")}
        c = {A(1, "c1"), A(5, "c5"), A(2, "c2")}
        def f(x, a, b, c):
            keys, other = dict.fromkeys(a).keys(), dict.fromkeys(b)
            changed, updated = set(a), set(a)
            changed &= c
            updated.intersection_update(b, c)
            return x + 1, [
                a & b, b & a, a & c, c & a, a.intersection([*b]), a.intersection(c, b),
                a.intersection([*c], [*b]), keys & b, b & keys, keys & c, c & keys, keys & [*b],
                keys & other.keys(), other.keys() & keys, keys & frozenset(c), changed, updated,
                a.intersection(other), a.intersection(keys), {1} & {True}, {1: 0}.keys() & {True},
            ]
        def names(found): return [sorted(str(getattr(m, "name", m)) for m in one) for one in found]
        ---
        names(run(T(2), a, b, c)[1])
        names(run(T(2), b, c, a)[1])
        names(run(T(2), c, a, b)[1])
        """,
    "copies_of_an_iterator_of_tee": """
        class Copied:
            def __iter__(self): return self
            def __next__(self): return 1
            def __copy__(self): return 5
        def f(x):
            a, b = itertools.tee("abc")
            c, d = itertools.tee(a)
            one, = itertools.tee(a, 1)
            next(c)
            copied = Copied()
            e, five = itertools.tee(copied)
            same = [a is c, a is d, a is one, e is copied]
            nothing = itertools.tee(b, 0), itertools.tee(None, 0)
            return x + 1, same, list(a), list(d), list(b), nothing, five
        ---
        run(T(3))
        """,
    "a_length_that_a_descriptor_gives": """
        class Failing:
            def __get__(self, owner, kind):
                log.append("asked")
                raise KeyError(1)
        class Empty:
            def __iter__(self): return self
            def __next__(self): raise StopIteration
        class Long(Empty): __len__ = Failing()
        class Hinted(Empty): __length_hint__ = Failing()
        def extended(items):
            kept = []
            kept.extend(items)
        def f(x):
            said = []
            for kind in (Long, Hinted):
                for use in (list, tuple, bytes, extended, lambda items: [*items]):
                    try: said.append(use(kind()))
                    except KeyError as error: said.append(str(error))
            return x + 1, said
        ---
        run(T(3))
        """,
    "dir_of_a_bound_method": """
        class A:
            def method(self): pass
        A.method.known = 1
        def f(x):
            return x + 1, "known" in dir(A().method)
        ---
        run(T(3))
        """,
    "yield_from_a_coroutine": """
        def f(x):
            async def ten(): return 10
            coroutine = ten()
            def generator(): yield from coroutine
            try: list(generator())
            except TypeError as error: return x + 1, str(error)
            finally: coroutine.close()
        ---
        run(T(3))
        """,
}
