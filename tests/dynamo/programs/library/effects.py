"""Effects and assumptions of the standard library: what is printed and logged and when, what is
guarded about containers, caches and settings from outside, what is written back to them.
"""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    # -- print --------------------------------------------------------------------------------
    "print_after_the_graph": """
        def f(x, n):
            print("start", n, sep=":")
            y = x * n
            print([n, {"a": (1,)}], tuple(y.shape), end="!")
            return y + 1
        ---
        run(T(3), 2)
        run(T(3), 2)
        run(T(4), 3)
    """,
    "print_then_raise": """
        def f(x, flag):
            y = x + 1
            print("before")
            if flag:
                raise ValueError("no")
            print("after")
            return y
        ---
        run(T(2), False)
        run(T(2), True)
        run(T(2), True)
    """,
    "print_before_an_index_that_fails": """
        def f(x, i):
            y = x * 2
            print("indexing")
            return y[i] + 1
        ---
        run(T(4), torch.tensor([0, 3]))
        run(T(4), torch.tensor([0, 9]))
        run(T(4), torch.tensor([1, 2]))
    """,
    "print_what_changes_later": """
        def f(x, l):
            l.append(1)
            print(l)
            l.append(2)
            print(l)
            return x + len(l)
        ---
        run(T(2), log)
        run(T(2), [5])
    """,
    "print_user_objects": """
        class C:
            def __init__(self): self.n = 0
            def __str__(self):
                self.n += 1
                return f"C{self.n}"
        c = C()
        def f(x, c):
            print(c, c)
            return x + c.n
        ---
        run(T(2), c)
        run(T(2), c)
    """,
    "print_to_a_stream": """
        import io, sys
        s = io.StringIO()
        def f(x):
            print("a", file=s)
            print("b", file=sys.stdout, flush=True)
            with contextlib.redirect_stdout(io.StringIO()) as t:
                print("inside")
            return x + 1, s.getvalue(), t.getvalue()
        ---
        run(T(2))
        run(T(2))
    """,
    "print_a_tensor": """
        def f(x):
            y = x + 1
            print(y)
            y.mul_(2)
            print(y.shape, y)
            return y
        ---
        run(T(2))
        run(T(2))
    """,
    "print_in_a_loop_and_a_callee": """
        def g(i):
            print("g", i)
            return i
        def f(x, n):
            for i in range(n):
                x = x + g(i)
            return x
        ---
        run(T(2), 3)
        run(T(2), 2)
    """,
    "print_under_a_caught_exception": """
        def f(x):
            try:
                print("one")
                {}["k"]
            except KeyError:
                print("two")
            finally:
                print("three")
            return x + 1
        ---
        run(T(2))
        run(T(2))
    """,
    # -- logging and warnings -----------------------------------------------------------------
    "logging_levels": """
        import logging
        __lg = logging.getLogger("differential.levels")
        __lg.propagate = False
        class __H(logging.Handler):
            def emit(self, r): log.append((r.levelname, r.getMessage(), r.lineno, r.funcName))
        __lg.handlers[:] = [__H()]
        __lg.setLevel(logging.WARNING)
        def f(x):
            y = x + 1
            __lg.debug("quiet %s", y)
            __lg.log(logging.INFO, "quiet")
            __lg.warning("loud %d", 3)
            if __lg.isEnabledFor(logging.DEBUG):
                y = y + 10
            return y * 2
        ---
        run(T(2))
        run(T(2))
        __lg.setLevel(logging.DEBUG)
        run(T(2))
        __lg.setLevel(logging.ERROR)
        run(T(2))
        logging.disable(logging.CRITICAL)
        run(T(2))
        logging.disable(logging.NOTSET)
    """,
    "logging_by_name": """
        import logging
        logging.getLogger("differential.named").setLevel(logging.ERROR)
        def f(x):
            lg = logging.getLogger("differential.named")
            lg.info("quiet")
            logging.getLogger("differential.named").debug("quiet")
            return x + lg.level
        ---
        run(T(2))
        logging.getLogger("differential.named").setLevel(logging.CRITICAL)
        run(T(2))
    """,
    "warnings_as_errors": """
        import warnings
        def f(x):
            y = x + 1
            warnings.warn("careful")
            log.append("after")
            return y
        ---
        run(T(2))
        warnings.simplefilter("error")
        run(T(2))
        warnings.simplefilter("ignore")
        run(T(2))
    """,
    # -- what comes from outside at each call -------------------------------------------------
    "random_numbers": """
        import random
        def f(x):
            y = x * random.random()
            l = [1, 2, 3, 4]
            random.shuffle(l)
            return y + random.randint(1, 9), l, random.choice("abc"), random.sample(range(9), 2)
        ---
        run(T(2))
        run(T(2))
        random.seed(3)
        run(T(2))
    """,
    "random_instances": """
        import random
        r = random.Random(4)
        def f(x):
            mine = random.Random(5)
            return x + r.random(), mine.random(), r.gauss(0, 1), r.getrandbits(5)
        ---
        run(T(2))
        run(T(2))
    """,
    "environment": """
        import os
        os.environ["DIFFERENTIAL"] = "1"
        def f(x):
            if os.environ.get("DIFFERENTIAL") == "1":
                x = x + 1
            if "DIFFERENTIAL_NOT" in os.environ:
                x = x * 2
            return x, os.getenv("DIFFERENTIAL", "none")
        ---
        run(T(2))
        os.environ["DIFFERENTIAL"] = "2"
        run(T(2))
        os.environ["DIFFERENTIAL_NOT"] = "2"
        run(T(2))
        del os.environ["DIFFERENTIAL"], os.environ["DIFFERENTIAL_NOT"]
        run(T(2))
    """,
    "clock": """
        import time
        def f(x, then):
            y = x + 1
            later = time.time() >= then and time.monotonic() > 0
            return y * 2, later
        ---
        run(T(2), 0.0)
        run(T(2), 1e12)
        run(T(2), 0.0)
    """,
    "context_variables": """
        import contextvars
        v = contextvars.ContextVar("v", default=1)
        def f(x):
            y = x + v.get()
            t = v.set(v.get() * 10)
            z = y * v.get()
            v.reset(t)
            return z
        ---
        run(T(2))
        token = v.set(3)
        run(T(2))
        v.get()
        v.reset(token)
        token = None
    """,
    "thread_locals": """
        import threading
        local = threading.local()
        local.n = 2
        def f(x):
            local.n += 1
            return x * local.n, hasattr(local, "other")
        ---
        run(T(2))
        run(T(2))
        local.n
    """,
    # -- caches -------------------------------------------------------------------------------
    "cached_function": """
        n = {"v": 2}
        @functools.lru_cache(maxsize=None)
        def g(k):
            log.append(k)
            return n["v"] * k
        def f(x):
            return x * g(3) + g(4)
        ---
        run(T(2))
        run(T(2))
        n["v"] = 5
        run(T(2))
        g.cache_clear()
        run(T(2))
        run(T(2))
    """,
    "cached_tensor": """
        @functools.cache
        def g(k): return T(k)
        def f(x):
            return x + g(3), g(3)
        ---
        run(T(3))
        g(3).add_(1)
        run(T(3))
        g.cache_clear()
        run(T(3))
    """,
    "autocast_of_changing_weights": """
        w = T(3, 3, grad=True)
        def f(x, backward):
            with torch.autocast('cpu', dtype=torch.bfloat16):
                y = (x @ w).sum()
            if backward:
                w.grad = None
                y.backward()
            with torch.no_grad(): w.add_(0.1)
            return y.detach()
        ---
        run(T(3, 3), False), run(T(3, 3), False), run(T(3, 3), False)
        run(T(3, 3), True), run(T(3, 3), True), run(T(3, 3), True)
    """,
    "cached_function_of_tensors": """
        @functools.lru_cache
        def g(x, k=1):
            log.append(k)
            return torch.zeros_like(x) + k
        @functools.lru_cache(maxsize=None, typed=True)
        def h(x, k): return x * k
        def f(x):
            a = g(x)
            a.add_(1)
            return a, g(x) is a, g(x, k=3), g(x * 2), h(x, 1), h(x, 1.0), h(x, k=True)
        x, y = T(3), T(2)
        ---
        run(x)
        g.cache_info(), h.cache_info()
        run(x)
        g(x).sub_(5)
        run(x), run(y), g.cache_info()
        g.cache_clear()
        run(x)
    """,
    "cached_functions_of_objects": """
        class C:
            def __init__(self, n): self.n = n
            @functools.lru_cache(2)
            def m(self, x): return x * self.n
        @functools.cache
        def fib(x, n): return x if n < 2 else fib(x, n - 1) + fib(x, n - 2)
        @functools.cache
        def bad(x):
            if len(x) == 3: raise ValueError("three")
            return x
        def f(c, x):
            try: last = bad(x)
            except ValueError as error: last = str(error)
            if c.n == 3: c.m.cache_clear()
            return c.m(x), c.m(x), fib(x, 5), last
        c, d, x, y = C(2), C(3), T(2), T(3)
        ---
        run(c, x)
        run(c, x)
        run(c, y), run(d, x), run(d, x), run(c, x), run(C(4), x)
        C.m.cache_info(), fib.cache_info(), bad.cache_info()
    """,
    "cache_made_inside": """
        def f(x, k):
            @functools.lru_cache(maxsize=2)
            def g(i):
                log.append(i)
                return i * 2
            return x + g(k) + g(k) + g(1), tuple(g.cache_info())
        ---
        run(T(3), 5)
        run(T(3), 1)
    """,
    "cache_info_inside": """
        @functools.lru_cache
        def g(i): return i * 2
        def f(x):
            y = x + g(1)
            return y * 2, g.cache_info().currsize
        ---
        run(T(3))
        g(7)
        run(T(3))
    """,
    "cached_property": """
        class C:
            n = 1
            @functools.cached_property
            def p(self):
                log.append("p")
                return self.n * 2
        c = C()
        def f(x, c):
            return x * c.p + c.p
        ---
        run(T(2), c)
        run(T(2), c)
        vars(c)
        c.__dict__.pop("p")
        c.n = 4
        run(T(2), c)
    """,
    "single_dispatch_later": """
        @functools.singledispatch
        def g(v): return "base"
        @g.register
        def _(v: int): return "int"
        def f(x, v):
            return x + len(g(v)), g(v)
        ---
        run(T(2), 1)
        run(T(2), "a")
        g.register(str, lambda v: "a string")
        run(T(2), "a")
        run(T(2), 1)
    """,
    # -- containers from outside --------------------------------------------------------------
    "deque_from_outside": """
        d = collections.deque([1, 2, 3], maxlen=4)
        def f(x, d):
            d.append(7); d.rotate(1); d.appendleft(d.pop())
            return x + d[0], list(d), d.maxlen
        ---
        run(T(2), d)
        run(T(2), d)
        d.clear()
        run(T(2), d)
        run(T(2), collections.deque([1, 2, 3]))
    """,
    "ordered_dict_from_outside": """
        d = collections.OrderedDict(a=1, b=2, c=3)
        def f(x, d):
            d.move_to_end("a")
            k, v = d.popitem(last=False)
            d["z"] = v + 1
            return x + v, k, list(d)
        ---
        run(T(2), d)
        run(T(2), d)
        run(T(2), d)
    """,
    "counter_from_outside": """
        c = collections.Counter("aab")
        def f(x, c):
            c.update("bc"); c["a"] -= 1
            return x * c["b"], c.most_common(1), +c, c.total()
        ---
        run(T(2), c)
        run(T(2), c)
        c.clear()
        run(T(2), c)
    """,
    "default_dict_from_outside": """
        d = collections.defaultdict(list, a=[1])
        def f(x, d):
            d["a"].append(2)
            d["b"].append(x)
            return x + len(d["c"]), "q" in d, d.get("q")
        ---
        run(T(2), d)
        run(T(2), d)
        d.default_factory = None
        run(T(2), d)
        del d["c"]
        run(T(2), d)
    """,
    "chain_map_from_outside": """
        a, b = {"k": 1}, {"k": 2, "m": 3}
        c = collections.ChainMap(a, b)
        def f(x, c):
            c["n"] = c["m"] + 1
            return x * c["k"], len(c), c.get("q", 9)
        ---
        run(T(2), c)
        a.pop("k")
        run(T(2), c)
        b["q"] = 4
        run(T(2), c)
    """,
    "set_changes": """
        s = {3, 1, 2}
        def f(x, s):
            s.add(9); s.discard(1); s.add(4)
            return x + len(s), 9 in s
        ---
        run(T(2), s)
        run(T(2), s)
        [v for v in s]
        run(T(2), {"a"})
    """,
    "set_changes_in_every_way": """
        s = {"b", "a", "c"}
        def f(x, s, other):
            s.update(["x", "y"], {"z": 1})
            s |= other
            s.discard("a"); s.add("q"); s.add("r"); s.remove("b")
            s -= {"zz"}
            s &= {"x", "q", "r", "c", "y", "o"}
            s ^= {"o", "p"}
            return x + len(s), "q" in s
        ---
        run(T(2), s, {"o"})
        run(T(2), s, {"o"})
        list(s)
        run(T(2), {"b", 1}, {2, 3})
    """,
    "many_additions": """
        seen = {0}
        def f(x, seen):
            for i in range(300):
                if i not in seen:
                    seen.add(i)
            return x + len(seen)
        ---
        run(T(2), seen)
        run(T(2), seen)
        list(seen)
    """,
    "set_changed_while_iterated": """
        def f(x, s):
            try:
                for v in s:
                    s.add(v + 10)
            except RuntimeError as e:
                log.append(str(e))
            return x + 1
        ---
        run(T(2), {5})
        run(T(2), set())
        run(T(2), {5})
    """,
    "dict_changed_while_iterated": """
        def f(x, d):
            seen = []
            try:
                for k in d:
                    seen.append(k)
                    d.pop(k)
            except RuntimeError as e:
                log.append(str(e))
            return x + 1, seen
        ---
        run(T(2), {"a": 1})
        run(T(2), {"a": 1, "b": 2})
        run(T(2), {})
    """,
    "list_changed_while_iterated": """
        l = [1, 2, 3]
        def f(x, l):
            for v in l:
                if v < 6:
                    l.append(v + 3)
                x = x + v
            return x, l is log
        ---
        run(T(2), l)
        run(T(2), log)
        run(T(2), [9])
    """,
    "list_sorted_by_what_raises": """
        l = [3, 1, 2, "a", 0]
        def f(x, l):
            y = x + 1
            try:
                l.sort()
            except TypeError as e:
                log.append(str(e))
            return y, sorted([2, 1], key=lambda v: -v)
        ---
        run(T(2), l)
        run(T(2), [2, 1])
    """,
    "containers_that_hold_themselves": """
        l = [1]
        l.append(l)
        d = {"l": l}
        d["d"] = d
        def f(x, l, d):
            l.append(d)
            mine = [x]
            mine.append(mine)
            d["mine"] = mine
            return x + l[0], d["d"] is d, l[1] is l, mine
        ---
        run(T(2), l, d)
        run(T(2), l, d)
    """,
    "views_are_live": """
        d = {"a": 1}
        k = d.keys()
        def f(x, d):
            v, i = d.values(), d.items()
            d["n"] = len(d)
            return x + sum(v), list(i), v, len(i)
        ---
        run(T(2), d)
        d.clear()
        run(T(2), d)
    """,
    "aliased_containers": """
        l = [1]
        d = {"a": l, "b": l}
        def f(x, d, l):
            d["a"].append(2)
            d["b"].append(3)
            return x + sum(l), d["a"] is l
        ---
        run(T(2), d, l)
        run(T(2), {"a": [1], "b": [1]}, l)
        run(T(2), d, l)
    """,
    "named_tuples_from_outside": """
        P = collections.namedtuple("P", "x y")
        class Q(P):
            def norm(self): return self.x * self.y
        def f(x, p):
            if isinstance(p, Q):
                return x * p.norm(), p._replace(x=9)
            return x + p.y, p
        ---
        run(T(2), P(1, 2))
        run(T(2), P(1, 5))
        run(T(2), Q(2, 3))
        run(T(2), Q(2, 4))
    """,
    "dataclasses_from_outside": """
        @dataclasses.dataclass
        class D:
            a: int
            b: list = dataclasses.field(default_factory=list)
        @dataclasses.dataclass(frozen=True, slots=True)
        class E:
            a: int
        d = D(1)
        def f(x, d, e):
            d.a += e.a
            d.b.append(dataclasses.replace(e, a=d.a))
            return x * d.a, dataclasses.asdict(d), hash(e) == hash(E(e.a))
        ---
        run(T(2), d, E(2))
        run(T(2), d, E(2))
        run(T(2), D(5, [1]), E(3))
    """,
    "enums_from_outside": """
        class E(enum.Enum):
            A = 1
            B = 2
        def f(x, e, d):
            return x + d[e] + e.value, e.name, E(2) is e
        ---
        run(T(2), E.A, {E.A: 1, E.B: 2})
        run(T(2), E.B, {E.A: 1, E.B: 2})
        run(T(2), E.B, {E.A: 1, E.B: 7})
    """,
    "heap_from_outside": """
        import heapq
        h = [3, 5, 4]
        def f(x, h, v):
            heapq.heappush(h, v)
            return x + heapq.heappop(h), heapq.nsmallest(2, h)
        ---
        run(T(2), h, 1)
        run(T(2), h, 9)
        run(T(2), [], 2)
    """,
    "copies_of_outside_objects": """
        import copy
        class C:
            def __init__(self, v): self.v = v
        l = [1]
        c = C([l, l])
        def f(x, c):
            d = copy.deepcopy(c)
            e = copy.copy(c)
            d.v[0].append(2)
            e.w = 3
            return x + len(d.v[1]), d.v[0] is d.v[1], e.v is c.v, d, e
        ---
        run(T(2), c)
        l.append(5)
        run(T(2), c)
        run(T(2), C([[1], [2]]))
    """,
    "iterators_across_calls": """
        it = iter([1, 2, 3, 4])
        def f(x, it):
            a = next(it)
            return x + a, list(itertools.islice(it, 1))
        ---
        run(T(2), it)
        run(T(2), it)
        run(T(2), iter([7, 8, 9]))
    """,
    "iterators_that_escape": """
        def f(x):
            y = x + 1
            c = itertools.count(3)
            next(c)
            z = zip([1, 2], itertools.cycle("ab"))
            next(z)
            d = collections.deque([1, 2, 3])
            i = iter(d)
            next(i)
            s = iter({5})
            return y, next(c), c, list(z), i, s, enumerate([y], 4), map(abs, [-1])
        ---
        [v if not hasattr(v, "__next__") else next(v) for v in run(T(2))]
        [v if not hasattr(v, "__next__") else next(v) for v in run(T(2))]
    """,
    "patterns_from_outside": """
        import re
        pat = re.compile(r"(\\d+)")
        def f(x, s):
            m = pat.search(s)
            if m is None:
                return x
            return x * int(m.group(1)), pat.sub(lambda m: str(int(m[1]) + 1), s)
        ---
        run(T(2), "a12b3")
        run(T(2), "none")
        pat = re.compile("(b)?")
        run(T(2), "a12b3")
    """,
    "text_of_outside_objects": """
        class C:
            def __init__(self, n): self.n = n
            def __repr__(self): return f"C({self.n})"
        def f(x, c, l):
            return x + 1, f"{c} {c!r:>6} {l}", "%s|%r" % (c, l), "{0} {1[0]}".format(c, l), str([c])
        ---
        run(T(2), C(1), [1, "a"])
        run(T(2), C(2), [2, None])
    """,
}
