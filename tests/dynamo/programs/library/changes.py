"""Containers that change while somebody looks at them: iterators outside of the frame, keys and items
whose own methods are called, what is changed during a lookup, a comparison or a sort.
"""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    # -- dicts that somebody else iterates over -----------------------------------------------
    "caller_iterates_over_a_dict_with_gaps": """
        def f(x, d, k):
            d[k] = d[k] + 1
            return x + d[k]
        def walk(d):
            del d[1]
            seen = []
            for k in d:
                run(T(2), d, k)
                seen.append(k)
            return seen, d
        ---
        walk({1: 1, 2: 2, 3: 3})
        walk(collections.OrderedDict({1: 1, 2: 2, 3: 3}))
        walk(collections.defaultdict(int, {1: 1, 2: 2, 3: 3}))
    """,
    "subclass_of_dict_that_is_iterated_over": """
        class D(dict):
            def __setitem__(self, k, v): raise AssertionError("not by this method")
        def f(x, d, k):
            dict.__setitem__(d, k, 5)
            return x + len(d)
        def walk(d):
            dict.pop(d, 1)
            return [(k, run(T(2), d, k)) for k in d], d
        ---
        walk(D({1: 1, 2: 2, 3: 3}))
    """,
    "deque_that_is_iterated_over": """
        def f(x, d):
            d[0] = x
            return x + len(d)
        ---
        [run(T(2), d) for d in [collections.deque([1, 2])] for _ in d]
    """,
    "delete_and_insert_during_iteration": """
        def f(x):
            y, d = x + 1, {0: 0}
            for i in d:
                del d[0]
                d[0] = 0
            return y
        ---
        run(T(2))
    """,
    "items_come_go_and_move": """
        def f(x, d):
            d["a"] = 1
            del d["b"]
            d["z"] = x
            d["a"] = 5
            last = d.popitem()
            d["q"] = 7
            if hasattr(d, "move_to_end"):
                d.move_to_end("a")
                d.move_to_end("q", last=False)
            return x + 1, last
        class S(dict): pass
        class O(collections.OrderedDict): pass
        a, b, c, d = (k(b=1, c=2) for k in (dict, S, collections.OrderedDict, O))
        ---
        run(T(2), a)
        run(T(2), b)
        run(T(2), c)
        run(T(2), d)
    """,
    "clear_and_fill": """
        def f(x, d):
            d["a"] = 1
            d.clear()
            d["c"] = x
            d.pop("c")
            d["k"] = 2
            return x + 1
        d = {"b": 1, "c": 2}
        ---
        run(T(2), d)
        run(T(2), d)
    """,
    # -- keys with methods --------------------------------------------------------------------
    "keys_that_count": """
        class K:
            def __init__(self): self.hashed = self.compared = 0
            def __hash__(self):
                self.hashed += 1
                return 42
            def __eq__(self, other):
                self.compared += 1
                return self is other
        def f(x, a, b):
            d = {a: 1, 0: 2}
            d.setdefault(b, 3)
            d[b] = 4
            return x + len(d), a.hashed, b.hashed, a.compared + b.compared
        ---
        run(T(2), K(), K())
    """,
    "keys_that_are_equal_to_literals": """
        class K:
            def __init__(self, k): self.k = k
            def __hash__(self): return hash(self.k)
            def __eq__(self, other):
                return self.k == (other.k if isinstance(other, K) else other)
        class S(str): pass
        k = K("key")
        def f(x, d, k):
            s = {1, k}
            return x + 1, d.get(k), d.get("key"), d.get(S("key")), d.get(K("key")), K(1) in s, K(1.0) in d
        ---
        run(T(2), {"key": 1}, k)
        run(T(2), {k: 1}, k)
        run(T(2), {S("key"): 1, 1: 2}, k)
    """,
    "keys_of_subclasses_with_their_own_equality": """
        class S(str):
            __hash__ = str.__hash__
            def __eq__(self, other): return False
        def f(x, a, b):
            d = {a: 1, "k": 2}
            return x + len(d), d.get(b), d.get(a), len({a, b, "k"}), d
        ---
        run(T(2), S("k"), S("k"))
    """,
    "hashes_of_many_bits": """
        class K:
            def __init__(self, n): self.n = n
            def __hash__(self): return self.n
            def __eq__(self, other): return self.n == getattr(other, "n", other)
        def f(x, n):
            k = K(n)
            return x + 1, hash(k), {k: 1}.get(n, "no"), {n: 1}.get(k, "no"), {hash(k): 2}
        ---
        [run(T(2), n) for n in (1, -1, 2**61, 2**62, 2**63 - 1, 2**63, -2**63, 2**90)]
    """,
    "keys_whose_methods_raise": """
        class K:
            def __init__(self, ok): self.ok = ok
            def __hash__(self):
                if self.ok: return 1
                raise ValueError("hash")
            def __eq__(self, other): raise ValueError("eq")
        def f(x, k):
            seen = []
            for act in (lambda: {k: 1} == {1: 1}, lambda: {k: 1}[1], lambda: {k}, lambda: {1: 2}.get(k)):
                try: seen.append(act())
                except ValueError as e: seen.append(str(e))
            return x + 1, seen
        ---
        run(T(2), K(True))
        run(T(2), K(False))
    """,
    "keys_that_change_their_hash": """
        class K:
            bad = False
            def __hash__(self):
                if self.bad: raise ValueError("hash")
                return 1
        def f(x, d, s):
            y, k = x + 1, K()
            e = {k: 1}
            d[k] = 2
            s.add(k)
            k.bad = True
            try: e.pop(k)
            except ValueError as error: return y, str(error), e, len(d)
        d, s = {}, set()
        ---
        run(T(2), d, s)
    """,
    "unions_of_the_right_class": """
        def f(x):
            d = collections.defaultdict(int, a=1)
            o = collections.OrderedDict(b=2)
            return x + 1, {"c": 3} | d, {"a": 3} | o, d | o, o | d, d | {}, type({} | {})
        ---
        run(T(2))
    """,
    "keys_that_clear_the_dict": """
        class K:
            def __init__(self, d): self.d = d
            def __hash__(self): return 1
            def __eq__(self, other):
                self.d.clear()
                return False
        def f(x):
            d = {}
            d[K(d)] = 1
            d[1] = 2
            return x + len(d), list(d.values())
        ---
        run(T(2))
    """,
    # -- sequences ----------------------------------------------------------------------------
    "lists_that_change_while_they_are_compared": """
        def f(x):
            class C:
                def __init__(self, l): self.l = l
                def __eq__(self, other):
                    self.l.clear()
                    return NotImplemented
            a, b, c = [], [], []
            a.append(C(b))
            b.append(C(a))
            c.append(C(c))
            d = [C(a), 1, 2]
            d[0].l = d
            return x + 1, a == b, c == [1], d.count(1), d
        ---
        run(T(2))
    """,
    "lists_that_change_while_they_are_searched": """
        def f(x, how):
            class C:
                def __init__(self, l): self.l = l
                def __eq__(self, other):
                    self.l.clear()
                    return False
            l = []
            l += [C(l), 1, 2]
            y = x + 1
            return y, how(l), l
        def attempt(how):
            try: return run(T(2), how)
            except (ValueError, IndexError) as e: return str(e)
        ---
        [attempt(h) for h in (lambda l: 1 in l, lambda l: l.index(1), lambda l: l.remove(1), lambda l: l.count(2))]
    """,
    "containers_that_are_made_again": """
        def f(x, l, d, s, q):
            l.__init__([1, x])
            d.__init__({"b": 2}, c=3)
            s.__init__([5])
            q.__init__([1, 2], 1)
            m = [1, 2]
            m.__init__()
            return x + 1, m
        l, d, s, q = [1, 2], {"a": 1}, {1}, collections.deque([1, 2, 3])
        ---
        run(T(2), l, d, s, q)
    """,
    "subclasses_that_give_plain_tuples": """
        class P(tuple): pass
        def f(x, p):
            y = x + 1
            made = [p * 1, p + (), () + p, p[:], p[0:], 1 * p]
            return y, made, [type(m) is tuple for m in made], [m is p for m in made]
        ---
        run(T(2), P((1, 2)))
    """,
    "constructors_that_take_no_keywords": """
        class A(tuple): pass
        class B(list): pass
        class C(frozenset): pass
        class D(tuple):
            def __init__(self, items, k=1): self.k = k
        def f(x):
            y, seen = x + 1, []
            for make in (lambda: A(sequence=()), lambda: B(sequence=()), lambda: C(sequence=()), lambda: B([1], [2]),
                         lambda: A([1], 2), lambda: D([1], k=3).k):
                try: seen.append(make())
                except TypeError as e: seen.append(type(e).__name__)
            return y, seen
        ---
        run(T(2))
    """,
    "reversed_lists_go_on": """
        def f(x, l):
            y = x + 1
            a, b, c = reversed(l), reversed(l), reversed((1, 2, 3))
            next(a), next(c)
            dynamo.graph_break()
            l[0] = 10
            return y * 2, list(a), list(b), list(c)
        import dynamo
        ---
        run(T(2), [1, 2, 3])
    """,
    "deques_that_change_while_they_are_searched": """
        def f(x, how):
            class C:
                def __init__(self, d): self.d = d
                def __eq__(self, other):
                    self.d.append(1)
                    return False
            d = collections.deque([0])
            d.append(C(d))
            y, r = x + 1, reversed(d)
            try: how(d)
            except RuntimeError as e: return y, str(e), len(d), type(r).__name__
        ---
        [run(T(2), h) for h in (lambda d: 5 in d, lambda d: d.index(5), lambda d: d.count(5))]
        run(T(2), lambda d: (d.popleft(), d.index(5)))
        run(T(2), lambda d: [d.append(1) for _ in reversed(d)])
    """,
    "subclasses_with_their_own_iteration": """
        class L(list):
            def __iter__(self): raise TypeError("never")
        class D(collections.deque):
            def __iter__(self): raise TypeError("never")
        class P(tuple):
            def __iter__(self): return iter("ab")
        def f(x, l, d, p):
            return x + 1, l[0], len(l), d[-1], p[1], list(p), l.count(2)
        ---
        run(T(2), L([1, 2]), D([3, 4]), P((5, 6)))
    """,
    "deques_with_a_longest_length": """
        def f(x, d, n):
            d *= n
            e = collections.deque("ab", 3)
            e *= 2
            return x + 1, e, e * 3, raised(lambda: range([]))
        def raised(act):
            try: act()
            except TypeError as e: return str(e)
        d = collections.deque([1, 2], maxlen=3)
        ---
        run(T(2), d, 2)
        run(T(2), d, 0)
    """,
    "reversed_deques_go_on": """
        def f(x, d):
            y, r = x + 1, reversed(d)
            next(r)
            dynamo.graph_break()
            d[0] = 10
            return y * 2, list(r)
        import dynamo
        class D(collections.deque): pass
        ---
        run(T(2), collections.deque([1, 2, 3]))
        (lambda d: type(dynamo.compile(lambda x: (x + 1, d.__copy__()), backend="eager")(T(2))[1]))(D([1]))
    """,
    "plain_values_beside_subclasses": """
        class L(list): pass
        class D(dict): pass
        class S(set): pass
        class I(int):
            def __lt__(self, other): return NotImplemented
        class C(collections.Counter): pass
        def f(x):
            c, d, l, s, i = C("aab"), D(a=1), L([1, 2]), S([1]), I(3)
            return (x + 1, {"a": 2, "b": 1} == c, c == {"a": 2, "b": 1}, c != {"a": 2}, {"a": 1} == d, {"a": 1} != d,
                    [1, 2] == l, [1, 3] > l, [0] + l, {1} == s, {1, 2} > s, {2} | s, i < 4, 4 > i, 3 == i, sorted([i, 1]),
                    type({1: 2} | d) is dict, d == {"a": 2})
        ---
        run(T(2))
    """,
    "sorts_that_are_noticed": """
        def f(x, act):
            l = [3, 1, 2]
            y = x + 1
            def key(v):
                act(l)
                return v
            try: l.sort(key=key)
            except ValueError as e: return y, str(e), l
            return y, l
        ---
        run(T(2), lambda l: l.append(1))
        run(T(2), lambda l: l.clear())
        run(T(2), lambda l: None)
    """,
    "ranges_as_long_as_they_like": """
        def f(x, n):
            r = range(n)
            try: size = len(r)
            except OverflowError as e: size = str(e)
            return x + 1, size, bool(r), r[-1], n // 2 in r, [v for v, _ in zip(r, "ab")], [1] * 3
        ---
        run(T(2), 10**30)
        run(T(2), 5)
    """,
    "int_subclasses_as_indices": """
        class I(int):
            def __index__(self): return int(self) + 1
        def f(x, i):
            return x[operator.index(i)], [1, 2, 3][i], i.__index__(), "abc"[i]
        ---
        run(T(3), I(1))
    """,
    "functions_that_exhaust_their_iterator": """
        def f(x):
            deep = []
            def give():
                if deep: return 2
                deep.append(1)
                list(it)
                return 1
            it = iter(give, 2)
            return x + 1, list(it), next(it, "end")
        ---
        run(T(2))
    """,
    "numbers_that_vary_and_who_they_are": """
        def f(x, a, b):
            return x + 1, a is b, a is None, a is a, a is not b
        v, w = 2.5, 1000
        ---
        run(T(2), v, v)
        run(T(2), w, w)
        run(T(2), 1, 1)
        run(T(2), 2, 2)
        run(T(2), v, v + 1)
    """,
    "methods_with_too_many_arguments": """
        def f(x, d):
            seen = []
            for act in (lambda: d.popitem(1), lambda: d.clear(1), lambda: d.keys(1), lambda: [].pop(1, 2)):
                try: act()
                except TypeError as e: seen.append(str(e))
            return x + 1, seen
        ---
        run(T(2), {})
    """,
}
