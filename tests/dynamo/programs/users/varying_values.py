"""Sizes, numbers, containers and modes that change between calls; graphs are counted."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "part_later": (
        2,
        """
        def f(x): return x.sum(0) * x.shape[0] + x.shape[1]
        ---
        run(T(4,4))
        run(T(6,6))
        run(T(8,6))
        run(T(9,7))
    """,
    ),
    "part_later_two": (
        2,
        """
        def f(x, y): return x.sum() * x.shape[0] + y.sum() * y.shape[0]
        ---
        run(T(4), T(4))
        run(T(6), T(6))
        run(T(8), T(6))
        run(T(8), T(9))
    """,
    ),
    "part_later_int": (
        2,
        """
        def f(x, n): return x.sum() * n
        ---
        run(T(4), 4)
        run(T(6), 6)
        run(T(8), 6)
        run(T(8), 9)
    """,
    ),
    "part_later_ints": (
        2,
        """
        def f(x, n, m): return x.sum() * n + m
        ---
        run(T(4), 4, 4)
        run(T(4), 6, 6)
        run(T(4), 6, 7)
        run(T(4), 7, 7)
    """,
    ),
    "always_equal": (
        2,
        """
        def f(x, y): return x + y
        ---
        run(T(4), T(4))
        run(T(6), T(6))
        run(T(7), T(7))
        run(T(8), T(8))
    """,
    ),
    "mm_parts": (
        2,
        """
        def f(x, y): return x @ y
        ---
        run(T(4,4), T(4,4))
        run(T(6,6), T(6,6))
        run(T(3,6), T(6,5))
        run(T(5,7), T(7,2))
    """,
    ),
    "ranks": (
        3,
        """
        def f(x): return x.mean(-1) * x.ndim
        ---
        run(T(4,5))
        run(T(2,4,5))
        run(T(4,6))
        run(T(3,4,5))
        run(T(3,4,6))
        run(T(2,7))
    """,
    ),
    "ranks_in_turn": (
        4,
        """
        def f(x): return torch.relu(x) + 1
        ---
        run(T(4))
        run(T(4,5))
        run(T(6))
        run(T(6,7))
        run(T(3,4,5))
        run(T(6,4,2))
    """,
    ),
    "compare_number": (
        2,
        """
        def f(x, n): return x + (n > 3) * 2
        ---
        run(T(3), 2)
        run(T(3), 4)
        run(T(3), 5)
        run(T(3), 1)
        run(T(3), 9)
    """,
    ),
    "compare_number_size": (
        2,
        """
        def f(x): return x + (x.shape[0] > 3) * 2
        ---
        run(T(2))
        run(T(4))
        run(T(5))
        run(T(3))
        run(T(9))
    """,
    ),
    "compare_int": (
        2,
        """
        def f(x): return x + int(x.shape[0] == 4)
        ---
        run(T(3))
        run(T(4))
        run(T(5))
        run(T(6))
    """,
    ),
    "sum_bools": (
        3,
        """
        def f(x, a, b, c): return x * sum([a > 3, b > 3, c > 3])
        ---
        run(T(3), 2, 3, 4)
        run(T(3), 4, 4, 4)
        run(T(3), 2, 5, 6)
        run(T(3), 6, 2, 7)
        run(T(3), 5, 5, 5)
    """,
    ),
    "sum_bools_gen": (
        2,
        """
        def f(x, y, z): return x.sum() * sum(t.shape[0] > 3 for t in (x, y, z))
        ---
        run(T(2), T(3), T(4))
        run(T(4), T(5), T(6))
        run(T(3), T(2), T(6))
        run(T(7), T(8), T(2))
    """,
    ),
    "two_pow": (
        2,
        """
        def f(x, n): return x * 2**n
        ---
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 5)
    """,
    ),
    "in_tuple": (
        3,
        """
        def f(x, n): return x + 1 if n in (3, 5) else x * 2
        ---
        run(T(3), 2)
        run(T(3), 4)
        run(T(3), 3)
        run(T(3), 7)
        run(T(3), 5)
        run(T(3), 8)
    """,
    ),
    "in_tuple_size": (
        3,
        """
        def f(x): return x + 1 if x.shape[0] in (3, 5) else x * 2
        ---
        run(T(2))
        run(T(4))
        run(T(3))
        run(T(7))
        run(T(5))
        run(T(8))
    """,
    ),
    "not_in_set": (
        3,
        """
        def f(x): return x + 1 if x.shape[0] not in {3, 5} else x * 2
        ---
        run(T(2))
        run(T(4))
        run(T(3))
        run(T(7))
        run(T(5))
        run(T(8))
    """,
    ),
    "pad_sequence_number": (
        4,
        """
        def f(xs): return nn.utils.rnn.pad_sequence(xs, batch_first=True) * 2
        ---
        run([T(3), T(5)])
        run([T(4), T(2), T(3)])
        run([T(6), T(7)])
        run([T(7), T(3), T(5)])
    """,
    ),
    "list_growing": (
        4,
        """
        def f(xs): return sum(x.sum() for x in xs)
        ---
        run([T(3)])
        run([T(3)]*2)
        run([T(3)]*3)
        run([T(3)]*4)
    """,
    ),
    "list_slice": (
        4,
        """
        def f(xs): return torch.stack(xs[-2:]).sum(0)
        ---
        run([T(3), T(3)])
        run([T(3), T(3), T(3)])
        run([T(3), T(3), T(3), T(3)])
        run([T(3), T(3), T(3), T(3), T(3)])
    """,
    ),
    "list_append_outside": (
        5,
        """
        hist = []
        def f(x):
            hist.append(x)
            return torch.stack(hist[-2:]).sum(0)
        ---
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
    """,
    ),
    "dict_keys": (
        4,
        """
        def f(d): return sum(v.sum() for v in d.values())
        ---
        run({"a": T(3)})
        run({"b": T(3)})
        run({"a": T(3), "b": T(3)})
        run({"a": T(3), "c": T(3)})
        run({"b": T(3)})
    """,
    ),
    "dict_get": (
        3,
        """
        def f(d): return d["x"] * d.get("scale", 2)
        ---
        run({"x": T(3)})
        run({"x": T(3), "scale": 3})
        run({"x": T(3), "scale": 4})
        run({"x": T(3), "other": 4})
        run({"x": T(3)})
    """,
    ),
    "kwargs_extra": (
        3,
        """
        def f(x, **kw): return x * kw.get("s", 1)
        ---
        run(T(3))
        run(T(3), s=2)
        run(T(3), s=3)
        run(T(3), s=4)
        run(T(3), t=1)
    """,
    ),
    "args_number": (
        3,
        """
        def f(*xs): return sum(x.sum() for x in xs)
        ---
        run(T(3))
        run(T(3), T(3))
        run(T(3), T(3), T(3))
        run(T(3), T(3))
    """,
    ),
    "floats_compare": (
        3,
        """
        def f(x, s): return x * s if s > 0.3 else x + s
        ---
        run(T(3), 0.5)
        run(T(3), 0.4)
        run(T(3), 0.1)
        run(T(3), 0.7)
        run(T(3), 0.2)
    """,
    ),
    "float_or_int": (
        3,
        """
        def f(x, s): return x * s
        ---
        run(T(3), 1)
        run(T(3), 2.0)
        run(T(3), 3)
        run(T(3), 4.5)
        run(T(3), 5)
    """,
    ),
    "none_or_tensor": (
        4,
        """
        def f(x, m=None): return x * m if m is not None else x + 1
        ---
        run(T(3))
        run(T(3), T(3))
        run(T(4))
        run(T(4), T(4))
        run(T(5), None)
    """,
    ),
    "bools": (
        4,
        """
        def f(x, flag): return x * 2 if flag else x + 1
        ---
        run(T(3), True)
        run(T(3), False)
        run(T(4), True)
        run(T(4), False)
        run(T(5), True)
    """,
    ),
    "bool_or_int": (
        4,
        """
        def f(x, flag): return x * flag
        ---
        run(T(3), True)
        run(T(3), 2)
        run(T(3), False)
        run(T(3), 3)
        run(T(3), 1)
    """,
    ),
    "strings": (
        4,
        """
        def f(x, mode): return x * 2 if mode == "a" else x + 1
        ---
        run(T(3), "a")
        run(T(3), "b")
        run(T(3), "c")
        run(T(3), "a")
        run(T(3), "d")
    """,
    ),
    "dtypes": (
        5,
        """
        def f(x): return x * 2
        ---
        run(T(3))
        run(T(3, dtype=torch.float64))
        run(T(4))
        run(T(4, dtype=torch.float64))
        run(T(5, dtype=torch.int64))
    """,
    ),
    "dtype_arg": (
        3,
        """
        def f(x, d): return x.to(d)
        ---
        run(T(3), torch.float64)
        run(T(4), torch.float32)
        run(T(5), torch.float64)
        run(T(6), torch.int32)
    """,
    ),
    "grad_mode": (
        4,
        """
        def f(x): return x * 2
        ---
        x = T(3, grad=True)
        run(x)
        with torch.no_grad(): print(run(x))
        run(x)
        with torch.inference_mode(): print(run(x))
        run(x.detach())
    """,
    ),
    "train_eval": (
        4,
        """
        m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.BatchNorm1d(3))
        def f(x): return m(x)
        ---
        run(T(4, 3))
        m.eval()
        run(T(4, 3))
        m.train()
        run(T(5, 3))
        m.eval()
        run(T(6, 3))
    """,
    ),
    "requires_grad": (
        4,
        """
        def f(x): return x * 2
        ---
        run(T(3))
        run(T(3, grad=True))
        run(T(4))
        run(T(4, grad=True))
        run(T(5, grad=True))
    """,
    ),
    "contiguity": (
        4,
        """
        def f(x): return x * 2 + 1
        ---
        run(T(3, 4))
        run(T(4, 3).t())
        run(T(3, 4))
        run(T(3, 8)[:, ::2])
        run(T(3, 6)[:, :4])
    """,
    ),
    "strides_and_sizes": (
        3,
        """
        def f(x): return x.sum(0)
        ---
        run(T(3, 4))
        run(T(5, 6).t())
        run(T(7, 4))
        run(T(4, 3).t())
        run(T(5, 4))
    """,
    ),
    "default_args": (
        3,
        """
        def f(x, k=2, *, s=0.5): return x * k + s
        ---
        run(T(3))
        run(T(3), 3)
        run(T(3), k=4)
        run(T(3), 5, s=0.1)
        run(T(3), s=0.3)
    """,
    ),
    "nested_lists": (
        4,
        """
        def f(d): return d["a"][0] * d["b"]["c"] + d["a"][1]
        ---
        run({"a": [T(3), 1], "b": {"c": 2}})
        run({"a": [T(3), 2], "b": {"c": 3}})
        run({"a": [T(4), 3], "b": {"c": 4}})
        run({"a": (T(4), 3), "b": {"c": 4}})
        run({"a": [T(5), 5], "b": {"c": 5}})
    """,
    ),
    "dataclass_arg": (
        3,
        """
        @dataclasses.dataclass
        class C:
            x: object
            n: int
            s: float = 0.5
        def f(c): return c.x * c.n + c.s
        ---
        run(C(T(3), 2))
        run(C(T(3), 3))
        run(C(T(4), 4, 0.25))
        run(C(T(5), 5, 0.125))
        run(C(T(6), 6, 0.1))
    """,
    ),
    "namedtuple_arg": (
        3,
        """
        P = collections.namedtuple("P", "x n")
        def f(p): return P(p.x * p.n, p.n + 1)
        ---
        run(P(T(3), 2))
        run(P(T(3), 3))
        run(P(T(4), 4))
        run(P(T(5), 5))
    """,
    ),
    "global_list": (
        3,
        """
        ks = [1, 2, 3]
        def f(x): return x * sum(ks)
        ---
        run(T(3))
        ks[0] = 5
        run(T(3))
        ks[1] = 7
        run(T(3))
        ks[1] = 8
        run(T(3))
    """,
    ),
    "step_every": (
        3,
        """
        def f(x, step):
            if step % 3 == 0: return x + 1
            return x * step
        ---
        run(T(3), 0)
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 5)
        run(T(3), 6)
    """,
    ),
    "range_n": (
        3,
        """
        def f(x, n):
            for i in range(n): x = x + i
            return x
        ---
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 2)
        run(T(3), 4)
    """,
    ),
    "index_n": (
        3,
        """
        def f(x, n): return x[n] * 2
        ---
        run(T(10), 0)
        run(T(10), 1)
        run(T(10), 2)
        run(T(10), 5)
        run(T(10), -1)
    """,
    ),
    "split_n": (
        3,
        """
        def f(x, n): return sum(c.sum() for c in x.split(n))
        ---
        run(T(9), 3)
        run(T(12), 3)
        run(T(12), 4)
        run(T(15), 5)
    """,
    ),
    "reshape_heads": (
        3,
        """
        def f(x, h):
            b, t, c = x.shape
            return x.view(b, t, h, c // h).transpose(1, 2)
        ---
        run(T(2, 3, 8), 2)
        run(T(2, 4, 8), 2)
        run(T(3, 5, 8), 4)
        run(T(1, 6, 8), 4)
    """,
    ),
    "tril_mask": (
        4,
        """
        def f(x):
            t = x.shape[1]
            return x.masked_fill(torch.ones(t, t).tril()[None] == 0, float("-inf")).softmax(-1)
        ---
        run(T(2, 3, 3))
        run(T(2, 4, 4))
        run(T(3, 5, 5))
        run(T(1, 6, 6))
    """,
    ),
    "interpolate": (
        3,
        """
        def f(x, s): return nn.functional.interpolate(x, scale_factor=s)
        ---
        run(T(1, 2, 4), 2)
        run(T(1, 2, 6), 2)
        run(T(1, 2, 4), 3)
        run(T(1, 2, 8), 4)
    """,
    ),
    "pad_amount": (
        3,
        """
        def f(x, n): return nn.functional.pad(x, (0, n))
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(4), 0)
        run(T(4), 5)
    """,
    ),
    "pad_to_multiple": (
        3,
        """
        def f(x):
            n = (-x.shape[0]) % 4
            if n: x = nn.functional.pad(x, (0, n))
            return x.view(-1, 4)
        ---
        run(T(3))
        run(T(4))
        run(T(5))
        run(T(8))
        run(T(10))
    """,
    ),
    "isinstance_arg": (
        5,
        """
        def f(x, s):
            if isinstance(s, (list, tuple)): return x * s[0] + s[1]
            return x * s
        ---
        run(T(3), 2)
        run(T(3), (2, 3))
        run(T(3), [2, 3])
        run(T(3), 4)
        run(T(3), (4, 5))
    """,
    ),
    "kv_cache": (
        3,
        """
        cache = {}
        def f(x):
            if "k" in cache: cache["k"] = torch.cat([cache["k"], x])
            else: cache["k"] = x
            return cache["k"].sum(0)
        ---
        run(T(3, 2))
        run(T(1, 2))
        run(T(1, 2))
        run(T(1, 2))
        run(T(1, 2))
    """,
    ),
    "kv_cache_obj": (
        3,
        """
        class Cache:
            def __init__(self): self.k = None; self.n = 0
            def update(self, x):
                self.k = x if self.k is None else torch.cat([self.k, x])
                self.n += x.shape[0]
                return self.k
        c = Cache()
        def f(x): return c.update(x) * c.n
        ---
        run(T(3, 2))
        run(T(1, 2))
        run(T(1, 2))
        run(T(1, 2))
        run(T(1, 2))
    """,
    ),
    "enum_arg": (
        3,
        """
        class E(enum.Enum):
            A = 1
            B = 2
        def f(x, e): return x * e.value
        ---
        run(T(3), E.A)
        run(T(3), E.B)
        run(T(3), E.A)
        run(T(4), E.B)
    """,
    ),
    "function_arg": (
        5,
        """
        def f(x, g): return g(x)
        ---
        run(T(3), torch.sin)
        run(T(3), torch.cos)
        run(T(3), lambda x: x + 1)
        run(T(3), lambda x: x + 2)
        run(T(4), torch.sin)
    """,
    ),
    "tuple_of_sizes": (
        3,
        """
        def f(x, shape): return x.reshape(shape)
        ---
        run(T(12), (3, 4))
        run(T(12), (2, 6))
        run(T(12), (4, 3))
        run(T(20), (4, 5))
    """,
    ),
    "zeros_tensor": (
        3,
        """
        def f(x): return x.sum() if x.numel() else x.new_zeros(())
        ---
        run(T(3))
        run(T(0))
        run(T(4))
        run(T(1))
    """,
    ),
    "cat_lists": (
        4,
        """
        def f(xs): return torch.cat(xs)
        ---
        run([T(3), T(4)])
        run([T(5), T(6)])
        run([T(5), T(6), T(7)])
        run([T(5), T(6), T(8)])
    """,
    ),
    "zip_lists": (
        3,
        """
        def f(a, b): return [x * y for x, y in zip(a, b)]
        ---
        run([T(3), T(4)], [1, 2])
        run([T(3), T(4)], [2, 3])
        run([T(3), T(4)], [3, 5])
        run([T(5), T(6)], [4, 7])
    """,
    ),
    "complex_numbers": (
        3,
        """
        def f(x, z): return x * z
        ---
        run(T(3), 1j)
        run(T(3), 2j)
        run(T(3), 3j)
    """,
    ),
    "scalar_tensor": (
        3,
        """
        def f(x, t): return x * t
        ---
        run(T(3), torch.tensor(2.0))
        run(T(3), torch.tensor(3.0))
        run(T(3), torch.tensor(3))
        run(T(4), torch.tensor(4))
    """,
    ),
}
