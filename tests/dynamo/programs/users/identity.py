"""Identity, hashes, weak references, methods through names, assertions, custom operators."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "dicts_and_devices_themselves": """
        class C: pass
        G, net = C(), nn.Linear(4, 2)
        def f(x):
            c = C()
            c.device = x.device
            one, other = x.device, x.device
            dicts = c.__dict__ is c.__dict__, vars(c) is c.__dict__, c.__dict__ is G.__dict__, vars(G) is G.__dict__
            of_modules = net.__dict__ is vars(net), net._buffers is net.__dict__["_buffers"]
            devices = one is one, one is other, one == other, c.device is c.device, c.device is one, len({id(one), id(other)})
            others = x.dtype is x.dtype, x.layout is net.weight.layout, net.weight.device is net.weight.device, x.shape is x.shape
            return x + 1, dicts, of_modules, devices, others
        ---
        run(T(3, 4))
        run(T(3, 4))
    """,
    "repr_default": (
        3,
        """
        import re
        class P: pass
        def g(a): return a
        def f(x, p):
            y = x + 1
            s = re.sub("0x[0-9a-f]+", "0x", repr(p)), re.sub("0x[0-9a-f]+", "0x", str(g)), re.sub("0x[0-9a-f]+", "0x", repr(p.__init__)[:20])
            return y * 2, s
        ---
        p, q = P(), P()
        run(T(3), p)
        run(T(3), q)
    """,
    ),
    "repr_is_real": (
        1,
        """
        class P: pass
        def g(a): return a
        def f(x, p):
            y = x + 1
            return y * 2, repr(p), f"{g}", hash(p), id(p), str(P)
        ---
        p = P()
        __r = run(T(3), p)
        __r[1] == repr(p), __r[2] == str(g), __r[3] == hash(p), __r[4] == id(p), __r[5]
        q = P()
        __r = run(T(3), q)
        __r[1] == repr(q), __r[2] == str(g), __r[3] == hash(q), __r[4] == id(q)
    """,
    ),
    "id_keys": (
        3,
        """
        class P: pass
        def f(x, ps):
            y = x + 1
            seen = {}
            for p in ps:
                if id(p) not in seen:
                    seen[id(p)] = len(seen)
            return y * len(seen), [seen[id(p)] for p in ps], id(ps[0]) == id(ps[-1])
        ---
        a, b = P(), P()
        run(T(3), [a, b])
        run(T(3), [a, b, a])
        run(T(3), [a, a])
    """,
    ),
    "id_of_numbers_that_vary": (
        None,
        """
        def f(x, v, w):
            return x + 1, id(v) == id(v), id(v) == id(w), id(w) != id(v), {id(v): 1}.get(id(w))
        a, b, n, m = 1.5, 2.5, 1000, 2000
        ---
        run(T(2), a, b)
        run(T(2), b, a)
        run(T(2), b, b)
        run(T(2), n, m)
        run(T(2), m, n)
        run(T(2), m, m)
        run(T(2), np.float32(2), 3)
        run(T(2), np.float32(3), 3)
    """,
    ),
    "is_of_a_number_that_varies_and_another": (
        None,
        """
        def f(x, v, w): return x + 1, v is w, w is v, v is not w
        a = 1.5
        ---
        run(T(2), a, 2.5)
        run(T(2), a, 3.5)
        run(T(2), a, a)
        run(T(2), a, 4.5)
    """,
    ),
    "id_in_sets_alone": (
        2,
        """
        class P: pass
        def f(x, p, q): return x * len({id(p), id(q)})
        ---
        p, q = P(), P()
        run(T(3), p, q)
        run(T(3), p, p)
    """,
    ),
    "id_tensor_memo": (
        2,
        """
        def f(x, y):
            memo = {id(x): x * 2, id(y): y * 3}
            return memo[id(x)], memo[id(y)], id(x) in memo, id(x) != id(y), len(memo)
        ---
        a, b = T(3), T(3)
        run(a, b)
        run(a, a)
        run(b, a)
    """,
    ),
    "id_tensor_intermediate": (
        1,
        """
        def f(x):
            y = x + 1
            z = y
            w = y.view(-1)
            return y * 2, id(y) == id(z), id(w) == id(y), {id(y): 1, id(w): 2}[id(z)]
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "id_set_params": (
        2,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        m[1].weight = m[0].weight
        def f(x):
            seen = set()
            n = 0
            for p in m.parameters():
                if id(p) in seen: continue
                seen.add(id(p)); n += p.numel()
            return m(x) * n, len(seen)
        ---
        run(T(3))
        m[1].weight = nn.Parameter(T(3, 3))
        run(T(3))
    """,
    ),
    "hash_user": (
        2,
        """
        class P:
            def __init__(self, v): self.v = v
            def __hash__(self): return hash((1, self.v))
            def __eq__(self, o): return self.v == o.v
        def f(x, p, d):
            y = x + 1
            return y * d[p], hash(p), p in d, {p: 3}[P(p.v)]
        ---
        d = {P(1): 5, P(2): 6}
        run(T(3), P(1), d)
        run(T(3), P(2), d)
    """,
    ),
    "hash_of_addresses": (
        2,
        """
        class K:
            def __init__(self, n): self.n = n
            def __hash__(self): return hash((type(self), self.n))
            def __eq__(self, o): return isinstance(o, K) and self.n == o.n
        class M:
            def __init__(self): self.held = None
            def __hash__(self): return hash((id(self), id(self.__dict__.get("held"))))
            def __eq__(self, o): return self is o
        def f(x, ms):
            y = x + 1
            seen = set()
            for m in ms:
                if m not in seen:
                    seen.add(m)
                    y = y * 2
            named = {K(1): 1, K(2): 2, K(1): 3}
            alike = hash(K(1)) == hash(K(1)), hash(K(1)) == hash(K(2)), hash((K, -1)) == hash((K, -2))
            return y * named[K(2)], len(seen), alike, len(frozenset({"a": K(1), "b": K(2)}.items()))
        ---
        a, b = M(), M()
        run(T(3), [a, b, a])
        run(T(3), [b, a, b])
        run(T(3), [b, b, a])
    """,
    ),
    "hash_of_address_and_number": (
        2,
        """
        class K:
            def __init__(self, n): self.n = n
            def __hash__(self): return hash((type(self), self.n))
            def __eq__(self, o): return isinstance(o, K) and self.n == o.n
        def f(x, n):
            named = {K(1): 1, K(2): 2, K(1): 3}
            return x * named[K(n)]
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 1)
    """,
    ),
    "hash_of_addresses_is_real": (
        None,
        """
        class K:
            def __init__(self, n): self.n = n
            def __hash__(self): return hash((type(self), self.n))
            def __eq__(self, o): return isinstance(o, K) and self.n == o.n
        def f(x, k, n):
            y = x + 1
            h = hash(k), hash((f, n)), hash((k, f)), hash(frozenset([k, f]))
            k.n = n
            return y * 2, h, hash(k), {k: 1}
        ---
        k = K(1)
        __old = (hash(k), hash((f, 5)), hash((k, f)), hash(frozenset([k, f])))
        __r = run(T(3), k, 5)
        __r[1] == __old, __r[2] == hash(k), __r[3][k]
        __old = (hash(k), hash((f, 6)), hash((k, f)), hash(frozenset([k, f])))
        __r = run(T(3), k, 6)
        __r[1] == __old, __r[2] == hash(k), __r[3][K(6)]
    """,
    ),
    "hash_of_addresses_outside": (
        None,
        """
        class K:
            def __init__(self, n): self.n = n
            def __hash__(self): return hash((type(self), self.n))
            def __eq__(self, o): return isinstance(o, K) and self.n == o.n
        kept = {K(1): 5}
        def f(x, k):
            if k not in kept:
                kept[k] = len(kept) + 2
            return x * kept[k], k in kept
        ---
        run(T(3), K(1))
        run(T(3), K(2))
        run(T(3), K(2))
        kept.pop(K(2))
        run(T(3), K(2))
        sorted(kept.values())
    """,
    ),
    "hash_function_key": (
        2,
        """
        def g(x): return x + 1
        def h(x): return x + 2
        def f(x, t):
            d = {g: 2, h: 3}
            return t(x) * d[t], t in d, hash(t) == hash(g), t.__name__, t == g
        ---
        run(T(3), g)
        run(T(3), h)
    """,
    ),
    "hash_method_key": (
        1,
        """
        class A:
            def a(self, x): return x + 1
            def b(self, x): return x + 2
        def f(x, o):
            d = {o.a: 1, o.b: 2}
            return o.a(x) * d[o.b], o.a == o.a, o.a is o.a, hash(o.a) == hash(o.a)
        ---
        run(T(3), A())
        run(T(3), A())
    """,
    ),
    "hash_tensor": (
        2,
        """
        def f(x, y):
            d = {x: 1, y: 2}
            s = {x, y}
            return x * d[y], len(d), x in d, hash(x) == id(x), len(s), x in s
        ---
        a, b = T(3), T(3)
        run(a, b)
        run(a, a)
    """,
    ),
    "weak_key_dict": (
        None,
        """
        import weakref
        class P: pass
        D = weakref.WeakKeyDictionary()
        def f(x, p):
            y = x + 1
            if p not in D:
                D[p] = y.shape[0]
            return y * D[p], len(D)
        ---
        p = P()
        run(T(3), p)
        run(T(3), p)
        run(T(4), p)
        q = P()
        run(T(4), q)
        del q
        len(D)
        D = None
    """,
    ),
    "weak_value_dict": (
        None,
        """
        import weakref
        class P:
            k = 4
        D = weakref.WeakValueDictionary()
        def f(x, p):
            y = x + 1
            D['a'] = p
            return y * D['a'].k, D.get('b') is None, 'a' in D
        ---
        p = P()
        run(T(3), p)
        run(T(3), p)
        D = None
    """,
    ),
    "weak_set": (
        None,
        """
        import weakref
        class P: pass
        S = weakref.WeakSet()
        def f(x, p):
            y = x + 1
            S.add(p)
            return y * len(S), p in S
        ---
        p = P()
        run(T(3), p)
        run(T(3), p)
        S = None
    """,
    ),
    "weak_ref": (
        None,
        """
        import weakref
        class P:
            k = 3
        def f(x, r):
            y = x + 1
            o = r()
            if o is None:
                return y
            return y * o.k, weakref.ref(o) is r, weakref.ref(o)() is o
        ---
        p = P()
        r = weakref.ref(p)
        run(T(3), r)
        run(T(3), r)
        del p
        run(T(3), r)
        r = None
    """,
    ),
    "weak_proxy": (
        None,
        """
        import weakref
        class P:
            k = 3
            def m(self, x): return x * self.k
        def f(x, p):
            q = weakref.proxy(p)
            return q.m(x) + q.k, type(q).__name__, weakref.getweakrefcount(p) >= 0
        ---
        p = P()
        run(T(3), p)
        run(T(3), p)
    """,
    ),
    "weak_method": (
        None,
        """
        import weakref
        class P:
            k = 3
            def m(self, x): return x * self.k
        def f(x, w):
            return w()(x) + 1
        ---
        p = P()
        w = weakref.WeakMethod(p.m)
        run(T(3), w)
        p.k = 4
        run(T(3), w)
        w = None
    """,
    ),
    "weak_finalize": (
        None,
        """
        import weakref
        class P: pass
        def f(x):
            p = P()
            weakref.finalize(p, log.append, 'gone')
            y = x + 1
            del p
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "method_wrappers": (
        2,
        """
        def f(x, v):
            c = [1, 2, 3].__contains__
            g = [5].__getitem__
            a = []
            ap = a.append
            ap(4)
            l = list.append
            l(a, 5)
            d = {1}.isdisjoint
            h = "abc".startswith
            i = (3).__add__
            e = x.__add__
            u = {}.setdefault
            u('k', 2)
            return e(1) * i(v), c(v), g(0), a, d([v]), h("a"), list(map([1, 2].__getitem__, [1, 0])), list(filter({1, 2}.__contains__, [1, 5])), sorted([2, 1], key={1: 5, 2: 3}.get), c.__name__, c.__self__
        ---
        run(T(3), 1)
        run(T(3), 7)
    """,
    ),
    "method_wrapper_stored": (
        2,
        """
        class A:
            def __init__(self):
                self.items = []
                self.add = self.items.append
                self.has = self.items.__contains__
        def f(x, a):
            y = x + 1
            a.add(y.shape[0])
            return y * 2, a.has(3), len(a.items)
        ---
        a = A()
        run(T(3), a)
        run(T(4), a)
        a = None
    """,
    ),
    "descriptor_functions": (
        1,
        """
        class A:
            def m(self, x): return x + self.k
            k = 3
            @property
            def p(self): return 5
        def f(x, a):
            return A.m(a, x) * A.p.fget(a), A.__dict__['m'](a, x), A.m.__get__(a)(x), type(a).p.__get__(a), getattr(A, 'm').__qualname__, object.__getattribute__(a, 'k'), A.__init__ is object.__init__
        ---
        run(T(3), A())
        run(T(3), A())
    """,
    ),
    "unittest_asserts": (
        None,
        """
        import unittest
        class C(unittest.TestCase):
            def runTest(self): pass
        tc = C()
        def f(x):
            y = x + 1
            tc.assertEqual(y.shape[0], 3)
            tc.assertTrue(y.dim() == 1)
            tc.assertIn(3, [3, 4])
            tc.assertIsInstance(y, torch.Tensor)
            tc.assertIs(y, y)
            tc.assertIsNone(None)
            tc.assertNotEqual(1, 2)
            tc.assertGreater(2, 1)
            tc.assertAlmostEqual(1.0, 1.0 + 1e-9)
            tc.assertListEqual([1], [1])
            tc.assertDictEqual({1: 2}, {1: 2})
            tc.assertTupleEqual((1,), (1,))
            tc.assertCountEqual([1, 2], [2, 1])
            tc.assertRegex("abc", "b")
            tc.assertSetEqual({1}, {1})
            tc.assertEqual([1], [1]); tc.assertEqual("a", "a"); tc.assertEqual({1: 2}, {1: 2})
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "unittest_raises": (
        None,
        """
        import unittest
        class C(unittest.TestCase):
            def runTest(self): pass
        tc = C()
        def f(x):
            y = x + 1
            with tc.assertRaises(ValueError) as cm:
                raise ValueError("q")
            with tc.assertRaisesRegex(KeyError, "k"):
                {}['k']
            tc.assertRaises(TypeError, lambda: 1 + 'a')
            tc.assertRaises(IndexError, [].__getitem__, 0)
            return y * 2, str(cm.exception)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "unittest_fails": (
        None,
        """
        import unittest
        class C(unittest.TestCase):
            def runTest(self): pass
        tc = C()
        def f(x, n):
            y = x + 1
            tc.assertEqual(y.shape[0], n, "sizes")
            return y * 2
        ---
        run(T(3), 3)
        run(T(3), 4)
    """,
    ),
    "unittest_fails_raises": (
        None,
        """
        import unittest
        class C(unittest.TestCase):
            def runTest(self): pass
        tc = C()
        def f(x, n):
            y = x + 1
            with tc.assertRaises(ValueError):
                y = y + n
            return y * 2
        ---
        run(T(3), 3)
    """,
    ),
    "unittest_subtest": (
        None,
        """
        import unittest
        class C(unittest.TestCase):
            def runTest(self): pass
        tc = C()
        def f(x):
            y = x + 1
            for i in range(2):
                with tc.subTest(i=i):
                    y = y + i
                    tc.assertEqual(i, i)
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "unittest_method": (
        None,
        """
        import unittest
        class C(unittest.TestCase):
            def setUp(self): self.k = 3
            def test_a(self, x):
                y = x * self.k
                with self.subTest("s"):
                    self.assertEqual(y.shape, torch.Size([3]))
                self.assertTrue(isinstance(y, torch.Tensor), msg="no")
                return y + 1
        tc = C('test_a'); tc.setUp()
        f = tc.test_a
        ---
        run(T(3))
        run(T(3))
        tc = None
    """,
    ),
    "torch_testing": (
        2,
        """
        def f(x):
            y = x + 1
            torch.testing.assert_close(y, y)
            return y * 2
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "torch_equal_allclose": (
        1,
        """
        def f(x):
            y = x + 1
            a = torch.equal(y, y)
            b = torch.allclose(y, y)
            return y * 2, a, b
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "assert_statements": (
        1,
        """
        def f(x):
            y = x + 1
            assert y.shape[0] == 3, f"bad {y.shape}"
            assert isinstance(y, torch.Tensor)
            assert (y < 100).all(), "too large"
            return y * 2
        ---
        run(T(3))
        run(T(3))
        run(T(3) + 500)
        run(T(4))
    """,
    ),
    "custom_op": (
        2,
        """
        @torch.library.custom_op("probe_lib1::addk", mutates_args=())
        def __addk(x: torch.Tensor, k: float) -> torch.Tensor:
            return x + k
        @__addk.register_fake
        def _(x, k): return torch.empty_like(x)
        def f(x, k):
            y = x * 2
            z = __addk(y, k)
            return z * 3, torch.ops.probe_lib1.addk(y, 1.0)
        ---
        run(T(3), 2.0)
        run(T(3), 3.0)
        _ = None
    """,
    ),
    "custom_op_mutating": (
        1,
        """
        @torch.library.custom_op("probe_lib2::inc", mutates_args={"x"})
        def inc(x: torch.Tensor) -> None:
            x.add_(1)
        def f(x):
            y = x * 2
            inc(y)
            inc(x)
            return y * 3
        ---
        a = T(3)
        run(a)
        run(a)
        inc = None
    """,
    ),
    "custom_op_grad": (
        1,
        """
        @torch.library.custom_op("probe_lib3::sq", mutates_args=())
        def sq(x: torch.Tensor) -> torch.Tensor:
            return x * x
        sq.register_fake(lambda x: torch.empty_like(x))
        def setup(ctx, inputs, output): ctx.save_for_backward(*inputs)
        def back(ctx, g): return 2 * ctx.saved_tensors[0] * g
        sq.register_autograd(back, setup_context=setup)
        def f(x):
            return sq(x * 2).sum()
        ---
        a = T(3, grad=True)
        run(a).backward()
        a
        sq = setup = back = None
    """,
    ),
    "custom_op_lists": (
        2,
        """
        @torch.library.custom_op("probe_lib4::cat2", mutates_args=())
        def __cat2(xs: list[torch.Tensor], dims: list[int], name: str = "q", flag: bool | None = None) -> list[torch.Tensor]:
            return [torch.cat(xs) * dims[0], xs[0] + 1]
        @__cat2.register_fake
        def _(xs, dims, name="q", flag=None): return [torch.cat(xs), torch.empty_like(xs[0])]
        def f(x):
            a, b = __cat2([x, x * 2], [2, 3], name="z")
            return a * 3, b
        ---
        run(T(3))
        run(T(4))
        _ = None
    """,
    ),
    "custom_op_no_fake": (
        2,
        """
        @torch.library.custom_op("probe_lib5::plain", mutates_args=())
        def plain(x: torch.Tensor) -> torch.Tensor:
            return x.clone() * 2
        def f(x):
            y = x + 1
            return plain(y) + 1
        ---
        run(T(3))
        plain = None
    """,
    ),
    "set_of_results": (
        1,
        """
        def f(x):
            x = x.round(); a = x + 1; b = x * 2; c = x - 1
            s = {a, b}
            s.add(c)
            out = torch.zeros(3)
            for v in s:
                out = out + v
            return out, len(s), a in s
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "set_of_results_returned": (
        1,
        """
        def f(x):
            a = x + 1; b = x * 2
            s = {a, b}
            n = [v.shape for v in s]
            return len(s), n, sorted(float(v.sum()) for v in s), s
        ---
        run(T(3))[:3]
        __l = []
        def g():
            r = run(T(3))
            return len(r[3]), sum(v.sum() for v in r[3])
        g()
    """,
    ),
    "set_of_results_changed": (
        1,
        """
        def f(x):
            x = x.round()
            s = {x + i for i in range(3)}
            t = sum(s)
            s = {v * 2 for v in s}
            print("sum")
            return t + sum(s) + sum(v for v in s | {x * 3})
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "built_in_functions_equal": (
        2,
        """
        def f(x, function):
            if function in (torch.cos, torch.sin):
                x = x * 2
            known = [torch.zeros, len, torch.Tensor.add]
            return function(x), len in known, max in known, function == max, torch.zeros != torch.ones, 3 in known
        ---
        run(T(3), torch.sin)
        run(T(3), torch.exp)
    """,
    ),
    "id_among_numbers": (
        5,
        """
        class P: pass
        _framegraph_cache = {}  # its keys differ from world to world
        def f(x, p, number):
            found = id(x) == number, id(p) != number, id(p) == 3.5, _framegraph_cache.get(id(p), 7)
            if id(x) in _framegraph_cache: return x + _framegraph_cache[id(x)], found
            _framegraph_cache[id(x)] = len(_framegraph_cache)
            return x * 2, found
        ---
        p, x, y = P(), T(3), T(3)
        [run(x, p, 3), run(x, p, id(x)), run(y, p, id(x)), run(y, p, id(p)), run(x, x, id(x))]
    """,
    ),
    "texts_of_descriptors": (
        1,
        """
        class A: __slots__ = ("q",)
        def f(x):
            named = torch.Tensor.add, int.__add__, dict.get, A.q, torch.ops.aten.add, torch.ops.aten.add.Tensor
            return x + 1, [*map(repr, named), *map(str, named), f"{named[0]}"]
        ---
        run(T(3))
    """,
    ),
    "line_of_a_traceback": (
        1,
        """
        def g(): raise KeyError
        def f(x):
            try: raise ValueError
            except ValueError as e: first, nothing = e.__traceback__.tb_lineno, e.__traceback__.tb_next
            try:
                g()
            except KeyError as e: second = e.__traceback__.tb_lineno
            return x + first, nothing, second
        ---
        run(T(3))
    """,
    ),
}
