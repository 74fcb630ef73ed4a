"""Arguments and state that change between calls: indices, flags, modules, lists."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "interp_float": (
        4,
        """
        def f(x, s): return nn.functional.interpolate(x, scale_factor=s)
        ---
        run(T(1, 2, 4), 2.5)
        run(T(1, 2, 4), 3.5)
        run(T(1, 2, 4), 1.5)
        run(T(1, 2, 4), 4.5)
    """,
    ),
    "closures_separate": (
        3,
        """
        def make(k):
            def g(x): return x * k + 1
            return g
        def f(x): return sum(g(x) for g in gs)
        gs = [make(i) for i in range(3)]
        ---
        run(T(3))
        gs[1] = make(7)
        run(T(3))
        gs[1] = make(8)
        run(T(3))
        gs[2] = make(9)
        run(T(3))
    """,
    ),
    "lambda_list": (
        3,
        """
        def f(x, fs):
            for g in fs: x = g(x)
            return x
        ---
        run(T(3), [torch.sin])
        run(T(3), [torch.sin, torch.cos])
        run(T(3), [torch.cos, torch.sin])
        run(T(3), [torch.sin, torch.cos])
    """,
    ),
    "defaultdict_arg": (
        4,
        """
        def f(d): return sum(d[k].sum() * k for k in d)
        ---
        run(collections.defaultdict(list, {1: T(3), 2: T(3)}))
        run(collections.defaultdict(list, {1: T(3), 3: T(3)}))
        run(collections.defaultdict(list, {1: T(3), 4: T(3)}))
        run(collections.defaultdict(list, {1: T(3), 5: T(3)}))
    """,
    ),
    "int_keys": (
        3,
        """
        def f(d, k): return d[k] * 2
        ---
        run({1: T(3), 2: T(3)}, 1)
        run({1: T(3), 2: T(3)}, 2)
        run({1: T(3), 3: T(3)}, 3)
        run({1: T(3), 2: T(3)}, 1)
    """,
    ),
    "layer_index": (
        4,
        """
        layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
        def f(x, i): return layers[i](x)
        ---
        run(T(2, 3), 0)
        run(T(2, 3), 1)
        run(T(2, 3), 2)
        run(T(2, 3), 3)
    """,
    ),
    "num_layers": (
        3,
        """
        layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
        def f(x, n):
            for l in layers[:n]: x = l(x)
            return x
        ---
        run(T(2, 3), 1)
        run(T(2, 3), 2)
        run(T(2, 3), 3)
        run(T(2, 3), 2)
    """,
    ),
    "timestep_embedding": (
        3,
        """
        def f(t, dim):
            half = dim // 2
            freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
            args = t[:, None].float() * freqs[None]
            return torch.cat([args.cos(), args.sin()], -1)
        ---
        run(torch.tensor([1, 2]), 8)
        run(torch.tensor([1, 2, 3]), 8)
        run(torch.tensor([1, 2, 3, 4]), 16)
        run(torch.tensor([1]), 12)
    """,
    ),
    "sliding_window": (
        4,
        """
        def f(x, w):
            out = []
            for i in range(0, x.shape[0], w): out.append(x[i:i + w].mean())
            return torch.stack(out)
        ---
        run(T(8), 2)
        run(T(8), 4)
        run(T(12), 4)
        run(T(12), 3)
    """,
    ),
    "topk_k": (
        3,
        """
        def f(x, k): return x.topk(k).values.sum()
        ---
        run(T(8), 2)
        run(T(8), 3)
        run(T(9), 4)
        run(T(12), 1)
    """,
    ),
    "topk_min": (
        3,
        """
        def f(x, k): return x.topk(min(k, x.shape[0])).values
        ---
        run(T(8), 2)
        run(T(8), 10)
        run(T(3), 4)
        run(T(12), 5)
    """,
    ),
    "repeat_n": (
        3,
        """
        def f(x, n): return x.repeat(n, 2)
        ---
        run(T(2), 1)
        run(T(2), 2)
        run(T(3), 3)
        run(T(2), 4)
    """,
    ),
    "repeat_interleave": (
        3,
        """
        def f(x, n): return x.repeat_interleave(n)
        ---
        run(T(4), 1)
        run(T(4), 2)
        run(T(3), 3)
        run(T(2), 4)
    """,
    ),
    "stack_rows": (
        3,
        """
        def f(x): return torch.stack([x[i] for i in range(x.shape[0])])
        ---
        run(T(2, 3))
        run(T(3, 3))
        run(T(4, 3))
        run(T(2, 3))
    """,
    ),
    "unbind_sum": (
        3,
        """
        def f(x):
            a, *rest = x.unbind(0)
            return a + len(rest)
        ---
        run(T(2, 3))
        run(T(3, 3))
        run(T(4, 3))
    """,
    ),
    "unpack_shape": (
        3,
        """
        def f(x):
            *lead, c = x.shape
            return x.reshape(-1, c).sum(0) * len(lead)
        ---
        run(T(2, 3))
        run(T(2, 2, 3))
        run(T(4, 2, 3))
        run(T(4, 5))
    """,
    ),
    "einsum": (
        4,
        """
        def f(x, y): return torch.einsum("bij,bjk->bik", x, y)
        ---
        run(T(2, 3, 4), T(2, 4, 5))
        run(T(3, 3, 4), T(3, 4, 5))
        run(T(3, 5, 4), T(3, 4, 6))
        run(T(1, 5, 4), T(1, 4, 6))
    """,
    ),
    "attention_cross": (
        3,
        """
        def f(q, k, v): return nn.functional.scaled_dot_product_attention(q, k, v)
        ---
        run(T(1, 2, 3, 4), T(1, 2, 3, 4), T(1, 2, 3, 4))
        run(T(1, 2, 5, 4), T(1, 2, 5, 4), T(1, 2, 5, 4))
        run(T(1, 2, 5, 4), T(1, 2, 7, 4), T(1, 2, 7, 4))
        run(T(2, 2, 1, 4), T(2, 2, 8, 4), T(2, 2, 8, 4))
    """,
    ),
    "square_images": (
        3,
        """
        conv = nn.Conv2d(1, 2, 3, padding=1)
        def f(x): return nn.functional.adaptive_avg_pool2d(conv(x).relu(), 2)
        ---
        run(T(1, 1, 8, 8))
        run(T(1, 1, 12, 12))
        run(T(1, 1, 12, 10))
        run(T(2, 1, 9, 10))
    """,
    ),
    "image_stride": (
        3,
        """
        conv = nn.Conv2d(1, 2, 3, stride=2)
        def f(x):
            y = conv(x)
            return nn.functional.interpolate(y, size=x.shape[-2:])
        ---
        run(T(1, 1, 8, 8))
        run(T(1, 1, 12, 12))
        run(T(1, 1, 12, 10))
        run(T(2, 1, 9, 10))
    """,
    ),
    "list_of_sizes": (
        3,
        """
        def f(xs): return torch.cat([x.flatten() for x in xs])
        ---
        run([T(2, 2), T(3, 3)])
        run([T(3, 3), T(3, 3)])
        run([T(4, 3), T(3, 5)])
        run([T(5, 3), T(3, 6)])
    """,
    ),
    "two_flags": (
        3,
        """
        def f(x, a=False, b=False):
            if a: x = x + 1
            if b: x = x * 2
            return x
        ---
        run(T(3))
        run(T(3), a=True)
        run(T(3), b=True)
        run(T(3), a=True, b=True)
        run(T(4))
    """,
    ),
    "optional_chain": (
        5,
        """
        def f(x, a=None, b=None):
            if a is not None: x = x + a
            if b is not None: x = x * b
            return x
        ---
        run(T(3))
        run(T(3), a=1)
        run(T(3), a=2)
        run(T(3), a=3, b=2)
        run(T(3), a=4, b=5)
        run(T(3), b=5)
    """,
    ),
    "opt_int_none": (
        3,
        """
        def f(x, n=None): return x[:n]
        ---
        run(T(8))
        run(T(8), 2)
        run(T(8), 3)
        run(T(8), 4)
        run(T(8), None)
    """,
    ),
    "str_format": (
        4,
        """
        def f(x, n): return x * len(f"layer{n}")
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 10)
        run(T(3), 100)
    """,
    ),
    "dict_str_key": (
        3,
        """
        w = {f"w{i}": i + 1.0 for i in range(5)}
        def f(x, n): return x * w[f"w{n}"]
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 1)
    """,
    ),
    "mod_branch": (
        3,
        """
        def f(x, n): return x + 1 if n % 2 else x - 1
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 5)
    """,
    ),
    "clamp_args": (
        5,
        """
        def f(x, lo, hi): return x.clamp(lo, hi)
        ---
        run(T(3), 0, 1)
        run(T(3), 0.5, 1)
        run(T(3), None, 1)
        run(T(3), 0.25, None)
        run(T(3), 0.125, 0.5)
    """,
    ),
    "dropout_p": (
        4,
        """
        def f(x, p, training): return nn.functional.dropout(x, p, training)
        ---
        run(T(3), 0.0, True)
        run(T(3), 0.5, False)
        run(T(3), 0.25, False)
        run(T(3), 0.1, False)
    """,
    ),
    "alpha_add": (
        3,
        """
        def f(x, y, a): return torch.add(x, y, alpha=a)
        ---
        run(T(3), T(3), 1)
        run(T(3), T(3), 2)
        run(T(3), T(3), 3)
        run(T(3), T(3), 0.5)
        run(T(3), T(3), 0.25)
    """,
    ),
    "dim_arg": (
        4,
        """
        def f(x, d): return x.sum(d)
        ---
        run(T(2, 3, 4), 0)
        run(T(2, 3, 4), 1)
        run(T(2, 3, 4), 2)
        run(T(2, 3, 4), -1)
        run(T(2, 3, 4), 0)
    """,
    ),
    "dims_tuple": (
        4,
        """
        def f(x, d): return x.sum(d)
        ---
        run(T(2, 3, 4), (0,))
        run(T(2, 3, 4), (0, 1))
        run(T(2, 3, 4), (1, 2))
        run(T(2, 3, 4), (0, 2))
    """,
    ),
    "keepdim": (
        4,
        """
        def f(x, k): return x.sum(0, keepdim=k)
        ---
        run(T(2, 3), True)
        run(T(2, 3), False)
        run(T(4, 3), True)
        run(T(5, 3), False)
    """,
    ),
    "perm_arg": (
        3,
        """
        def f(x, p): return x.permute(p)
        ---
        run(T(2, 3, 4), (0, 2, 1))
        run(T(2, 3, 4), (2, 0, 1))
        run(T(2, 3, 4), (1, 0, 2))
    """,
    ),
    "full_value": (
        3,
        """
        def f(n, v): return torch.full((n,), v)
        ---
        run(2, 1.0)
        run(3, 2.0)
        run(4, 3.0)
        run(5, 4)
    """,
    ),
    "masked_lengths": (
        3,
        """
        def f(x, lengths): return x * (torch.arange(x.shape[1])[None] < lengths[:, None])
        ---
        run(T(2, 3), torch.tensor([1, 2]))
        run(T(2, 4), torch.tensor([1, 2]))
        run(T(3, 5), torch.tensor([1, 2, 3]))
        run(T(1, 5), torch.tensor([1]))
    """,
    ),
    "embedding_table": (
        4,
        """
        def f(w, i): return nn.functional.embedding(i, w)
        ---
        run(T(4, 2), torch.tensor([0, 1]))
        run(T(5, 2), torch.tensor([0, 1, 2]))
        run(T(6, 3), torch.tensor([[0, 1, 2]]))
        run(T(7, 4), torch.tensor([[0, 1], [2, 3]]))
    """,
    ),
    "attr_int": (
        3,
        """
        class A: pass
        a = A(); a.n = 1; a.s = 0.5
        def f(x): return x * a.n + a.s
        ---
        run(T(3))
        a.n = 2
        run(T(3))
        a.n = 3; a.s = 0.25
        run(T(3))
        a.n = 4; a.s = 0.125
        run(T(3))
    """,
    ),
    "attr_flag": (
        4,
        """
        class A: pass
        a = A(); a.on = True
        def f(x): return x * 2 if a.on else x + 1
        ---
        run(T(3))
        a.on = False
        run(T(3))
        a.on = True
        run(T(4))
        a.on = None
        run(T(5))
    """,
    ),
    "attr_new": (
        3,
        """
        class A: pass
        a = A()
        def f(x): return x * getattr(a, "n", 1)
        ---
        run(T(3))
        a.n = 2
        run(T(3))
        a.n = 3
        run(T(3))
        a.m = 3
        run(T(3))
        del a.n
        run(T(3))
    """,
    ),
    "obj_subclass": (
        4,
        """
        class A:
            def go(self, x): return x + 1
        class B(A):
            def go(self, x): return x * 2
        def f(x, a): return a.go(x)
        ---
        run(T(3), A())
        run(T(3), B())
        run(T(4), A())
        run(T(4), B())
        run(T(5), A())
    """,
    ),
    "slots_obj": (
        3,
        """
        class A:
            __slots__ = ("n", "x")
            def __init__(self, n, x): self.n, self.x = n, x
        def f(a): return a.x * a.n
        ---
        run(A(1, T(3)))
        run(A(2, T(3)))
        run(A(3, T(4)))
        run(A(4, T(5)))
    """,
    ),
    "list_of_ints": (
        4,
        """
        def f(x, ks):
            for k in ks: x = x * k
            return x
        ---
        run(T(3), [1, 2])
        run(T(3), [2, 3])
        run(T(3), [3, 4, 5])
        run(T(3), [4, 5, 6])
        run(T(3), [5, 6])
    """,
    ),
    "sorted_ints": (
        3,
        """
        def f(x, ks): return x * sorted(ks)[0]
        ---
        run(T(3), [1, 2])
        run(T(3), [2, 3])
        run(T(3), [3, 5])
        run(T(3), [7, 6])
    """,
    ),
    "grad_accum": (
        3,
        """
        k = 0
        def f(x):
            global k
            k += 1
            y = x * 2
            if k % 2 == 0: y = y + 1
            return y
        ---
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
    """,
    ),
    "try_key": (
        4,
        """
        def f(d):
            try: return d["a"] * 2
            except KeyError: return d["b"] + 1
        ---
        run({"a": T(3)})
        run({"b": T(3)})
        run({"a": T(4)})
        run({"b": T(4)})
    """,
    ),
    "tuple_lengths": (
        4,
        """
        def f(*xs): return torch.stack(xs).mean(0)
        ---
        run(T(3), T(3))
        run(T(3), T(3), T(3))
        run(T(4), T(4), T(4))
        run(T(4), T(4))
    """,
    ),
    "compare_sizes": (
        4,
        """
        def f(x, y): return x.sum() if x.shape[0] > y.shape[0] else y.sum()
        ---
        run(T(3), T(4))
        run(T(5), T(4))
        run(T(6), T(9))
        run(T(8), T(2))
    """,
    ),
    "sizes_equal": (
        3,
        """
        def f(x, y): return x * 2 if x.shape == y.shape else x + 1
        ---
        run(T(3), T(3))
        run(T(4), T(5))
        run(T(6), T(6))
        run(T(7), T(9))
    """,
    ),
    "numel_big": (
        4,
        """
        def f(x): return x.sum() if x.numel() > 10 else x.mean()
        ---
        run(T(3))
        run(T(20))
        run(T(5))
        run(T(30))
        run(T(4, 4))
    """,
    ),
    "divmod_size": (
        3,
        """
        def f(x, k):
            q, r = divmod(x.shape[0], k)
            return x[: q * k].view(q, k).sum(0), r
        ---
        run(T(7), 2)
        run(T(9), 2)
        run(T(11), 3)
        run(T(13), 4)
    """,
    ),
    "xor_flag": (
        4,
        """
        def f(x, a, b): return x * 2 if a ^ b else x + 1
        ---
        run(T(3), True, False)
        run(T(3), False, False)
        run(T(3), True, True)
        run(T(3), False, True)
    """,
    ),
    "bool_sum": (
        3,
        """
        def f(x, a, b): return x * (a + b)
        ---
        run(T(3), True, False)
        run(T(3), False, False)
        run(T(3), True, True)
    """,
    ),
    "float_to_int": (
        3,
        """
        def f(x, s): return x[: int(s * x.shape[0])]
        ---
        run(T(10), 0.5)
        run(T(10), 0.3)
        run(T(12), 0.7)
        run(T(13), 0.25)
    """,
    ),
    "any_all": (
        4,
        """
        def f(x, ks): return x + 1 if any(k > 2 for k in ks) else x * 2
        ---
        run(T(3), [1, 2])
        run(T(3), [1, 3])
        run(T(3), [2, 4])
        run(T(3), [2, 1])
        run(T(3), [0, 1])
    """,
    ),
    "chained_compare": (
        4,
        """
        def f(x, n): return x + 1 if 2 < n <= 5 else x * 2
        ---
        run(T(3), 1)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 6)
        run(T(3), 2)
        run(T(3), 7)
    """,
    ),
    "n_ternary_number": (
        3,
        """
        def f(x, n): return x * (2 if n > 3 else 1)
        ---
        run(T(3), 1)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 6)
    """,
    ),
    "max_len_lists": (
        3,
        """
        def f(xs):
            m = max(x.shape[0] for x in xs)
            return torch.stack([nn.functional.pad(x, (0, m - x.shape[0])) for x in xs])
        ---
        run([T(2), T(3)])
        run([T(4), T(3)])
        run([T(5), T(6)])
        run([T(7), T(6)])
    """,
    ),
    "autocast_arg": (
        4,
        """
        def f(x, on):
            with torch.autocast("cpu", enabled=on): return x @ x
        ---
        run(T(3, 3), True)
        run(T(3, 3), False)
        run(T(4, 4), True)
        run(T(4, 4), False)
    """,
    ),
    "module_sizes": (
        4,
        """
        ls = [nn.Linear(3, n) for n in (3, 4, 5, 6)]
        def f(x, m): return m(x)
        ---
        run(T(2, 3), ls[0])
        run(T(2, 3), ls[1])
        run(T(2, 3), ls[2])
        run(T(2, 3), ls[3])
    """,
    ),
    "env_like": (
        4,
        """
        cfg = {"hidden": 3, "act": "relu"}
        acts = {"relu": torch.relu, "tanh": torch.tanh}
        def f(x): return acts[cfg["act"]](x) * cfg["hidden"]
        ---
        run(T(3))
        cfg["act"] = "tanh"
        run(T(3))
        cfg["hidden"] = 5
        run(T(3))
        cfg["hidden"] = 6
        run(T(3))
        cfg["act"] = "relu"
        run(T(3))
    """,
    ),
    "index_list": (
        4,
        """
        def f(x, i): return x[i]
        ---
        run(T(9), [0, 3])
        run(T(9), [1, 4])
        run(T(9), [2, 5])
        run(T(9), [2, 5, 6])
    """,
    ),
}
