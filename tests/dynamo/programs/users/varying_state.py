"""Objects, schedules, caches and options that change between calls."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "jagged_batches": (
        2,
        """
        def f(x, offs): return torch.stack([x[a:b].sum() for a, b in zip(offs[:-1], offs[1:])])
        ---
        run(T(6), [0, 2, 6])
        run(T(7), [0, 3, 7])
        run(T(8), [0, 1, 8])
        run(T(9), [0, 4, 9])
    """,
    ),
    "count_from": (
        2,
        """
        def f(xs, k): return [x * i for i, x in zip(itertools.count(k), xs)]
        ---
        run([T(3), T(3)], 0)
        run([T(3), T(3)], 1)
        run([T(3), T(3)], 2)
        run([T(3), T(3)], 3)
    """,
    ),
    "range_sym": (
        4,
        """
        def f(x, a):
            for i in range(a, a + 3): x = x * i
            return x
        ---
        run(T(3), 0)
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
    """,
    ),
    "range_step": (
        4,
        """
        def f(x, a):
            for i in range(0, 3 * a, a): x = x + i
            return x
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
    """,
    ),
    "accumulate": (
        2,
        """
        def f(x, ks): return x * list(itertools.accumulate(ks))[-1]
        ---
        run(T(3), [1, 2])
        run(T(3), [2, 3])
        run(T(3), [5, 7])
    """,
    ),
    "dict_values_ints": (
        2,
        """
        def f(x, d): return x * sum(d.values()) + d["a"]
        ---
        run(T(3), {"a": 1, "b": 2})
        run(T(3), {"a": 2, "b": 3})
        run(T(3), {"a": 3, "b": 5})
    """,
    ),
    "nested_dataclass": (
        3,
        """
        @dataclasses.dataclass
        class In:
            n: int = 1
            s: float = 0.5
        @dataclasses.dataclass
        class Out:
            i: In
            k: list
        def f(x, c): return x * c.i.n * c.i.s + c.k[0]
        ---
        run(T(3), Out(In(), [1]))
        run(T(3), Out(In(2), [2]))
        run(T(3), Out(In(3, 0.25), [3]))
        run(T(3), Out(In(4, 0.125), [4]))
    """,
    ),
    "frozen_dataclass": (
        2,
        """
        @dataclasses.dataclass(frozen=True)
        class C:
            n: int
        def f(x, c): return x * c.n
        ---
        run(T(3), C(1))
        run(T(3), C(2))
        run(T(3), C(3))
        run(T(3), C(4))
    """,
    ),
    "dropout_module": (
        4,
        """
        ms = [nn.Dropout(p).eval() for p in (0.1, 0.2, 0.3, 0.4)]
        def f(x, m): return m(x) + 1
        ---
        run(T(3), ms[0])
        run(T(3), ms[1])
        run(T(3), ms[2])
        run(T(3), ms[3])
    """,
    ),
    "layer_idx": (
        5,
        """
        class M(nn.Module):
            def __init__(self, i):
                super().__init__()
                self.layer_idx = i
                self.l = nn.Linear(3, 3)
            def forward(self, x, cache):
                y = self.l(x)
                cache[self.layer_idx] = y
                return y
        ms = [M(i) for i in range(5)]
        def f(x, m, cache): return m(x, cache)
        ---
        c = {}
        run(T(2, 3), ms[0], c)
        run(T(2, 3), ms[1], c)
        run(T(2, 3), ms[2], c)
        run(T(2, 3), ms[3], c)
        run(T(2, 3), ms[4], c)
        len(c)
    """,
    ),
    "layer_idx_list": (
        4,
        """
        class M(nn.Module):
            def __init__(self, i):
                super().__init__()
                self.layer_idx = i
            def forward(self, x, cache):
                k = torch.cat([cache[self.layer_idx], x])
                cache[self.layer_idx] = k
                return k.sum(0)
        ms = [M(i) for i in range(4)]
        def f(x, m, cache): return m(x, cache)
        ---
        c = [T(2, 3) for _ in range(4)]
        run(T(2, 3), ms[0], c)
        run(T(2, 3), ms[1], c)
        run(T(2, 3), ms[2], c)
        run(T(2, 3), ms[3], c)
    """,
    ),
    "residual_or_not": (
        4,
        """
        class M(nn.Module):
            def __init__(self, a, b):
                super().__init__()
                self.l = nn.Linear(a, b)
                self.skip = a == b
            def forward(self, x):
                y = self.l(x)
                return x + y if self.skip else y
        ms = [M(3, 4), M(4, 4), M(4, 5), M(5, 5)]
        def f(x, m): return m(x)
        ---
        run(T(2, 3), ms[0])
        run(T(2, 4), ms[1])
        run(T(2, 4), ms[2])
        run(T(2, 5), ms[3])
    """,
    ),
    "warmup_branch": (
        3,
        """
        def f(x, t):
            if t < 3: lr = t / 3
            else: lr = 1.0 / math.sqrt(t)
            return x * lr
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 5)
    """,
    ),
    "beam": (
        3,
        """
        def f(scores, k):
            v, i = scores.view(-1).topk(k)
            return v, i // scores.shape[1], i % scores.shape[1]
        ---
        run(T(2, 5), 2)
        run(T(3, 5), 3)
        run(T(4, 6), 3)
        run(T(2, 7), 2)
    """,
    ),
    "mask_none_or_not": (
        5,
        """
        def f(x, m=None):
            s = x @ x.transpose(-1, -2)
            if m is not None: s = s + m
            return s.softmax(-1) @ x
        ---
        run(T(2, 3, 4))
        run(T(2, 3, 4), T(3, 3))
        run(T(2, 5, 4), T(5, 5))
        run(T(2, 6, 4))
        run(T(1, 7, 4), T(7, 7))
    """,
    ),
    "mask_4d_or_2d": (
        4,
        """
        def f(x, m):
            if m.dim() == 2: m = m[:, None, None, :]
            return x + m
        ---
        run(T(2, 1, 3, 3), T(2, 3))
        run(T(2, 1, 3, 3), T(2, 1, 3, 3))
        run(T(2, 1, 4, 4), T(2, 4))
        run(T(2, 1, 5, 5), T(2, 1, 5, 5))
    """,
    ),
    "image_batch_or_single": (
        3,
        """
        conv = nn.Conv2d(3, 2, 1)
        def f(x):
            single = x.dim() == 3
            if single: x = x[None]
            y = conv(x)
            return y[0] if single else y
        ---
        run(T(3, 4, 4))
        run(T(2, 3, 4, 4))
        run(T(3, 5, 5))
        run(T(2, 3, 6, 5))
    """,
    ),
    "loss_reduction": (
        4,
        """
        def f(x, y, r): return nn.functional.mse_loss(x, y, reduction=r)
        ---
        run(T(3), T(3), "mean")
        run(T(3), T(3), "sum")
        run(T(4), T(4), "none")
        run(T(5), T(5), "mean")
    """,
    ),
    "act_by_name": (
        4,
        """
        def f(x, a): return getattr(nn.functional, a)(x)
        ---
        run(T(3), "relu")
        run(T(3), "gelu")
        run(T(4), "relu")
        run(T(4), "silu")
    """,
    ),
    "loss_weights": (
        4,
        """
        def f(ls, ws): return sum(w * l for w, l in zip(ws.values(), ls.values()))
        ---
        run({"a": T(1), "b": T(1)}, {"a": 1.0, "b": 0.5})
        run({"a": T(1), "b": T(1)}, {"a": 1.0, "b": 0.25})
        run({"a": T(1), "b": T(1)}, {"a": 0.5, "b": 0.125})
        run({"a": T(1), "b": T(1), "c": T(1)}, {"a": 0.5, "b": 0.125, "c": 0.1})
    """,
    ),
    "deque_window": (
        4,
        """
        q = collections.deque(maxlen=3)
        def f(x):
            q.append(x)
            return sum(q) / len(q)
        ---
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
    """,
    ),
    "running_dict": (
        4,
        """
        stats = {}
        def f(x, name):
            stats[name] = stats.get(name, 0) + x.sum()
            return stats[name]
        ---
        run(T(3), "a")
        run(T(3), "a")
        run(T(3), "b")
        run(T(3), "b")
        run(T(3), "a")
    """,
    ),
    "counter_dict": (
        5,
        """
        c = collections.Counter()
        def f(x, k):
            c[k] += 1
            return x * c[k]
        ---
        run(T(3), "a")
        run(T(3), "a")
        run(T(3), "b")
        run(T(3), "a")
        run(T(3), "b")
    """,
    ),
    "set_of_names": (
        4,
        """
        seen = set()
        def f(x, k):
            first = k not in seen
            seen.add(k)
            return x * 2 if first else x + 1
        ---
        run(T(3), "a")
        run(T(3), "a")
        run(T(3), "b")
        run(T(3), "b")
    """,
    ),
    "int_enum": (
        3,
        """
        class E(enum.IntEnum):
            A = 1
            B = 2
            C = 3
        def f(x, e): return x * e
        ---
        run(T(3), E.A)
        run(T(3), E.B)
        run(T(3), E.C)
    """,
    ),
    "flag_enum": (
        3,
        """
        class E(enum.Flag):
            A = 1
            B = 2
        def f(x, e): return x + 1 if E.A in e else x * 2
        ---
        run(T(3), E.A)
        run(T(3), E.B)
        run(T(3), E.A | E.B)
    """,
    ),
    "none_then_int": (
        4,
        """
        def f(x, n): return x * (n or 1)
        ---
        run(T(3), None)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
        run(T(3), 0)
    """,
    ),
    "tuple_or_int": (
        4,
        """
        def f(x, k):
            k = (k, k) if isinstance(k, int) else k
            return x[: k[0], : k[1]]
        ---
        run(T(6, 6), 2)
        run(T(6, 6), (2, 3))
        run(T(6, 6), 4)
        run(T(6, 6), (4, 3))
    """,
    ),
    "shape_tuple_compare": (
        3,
        """
        def f(x): return x * 2 if tuple(x.shape) == (3, 4) else x + 1
        ---
        run(T(3, 4))
        run(T(3, 5))
        run(T(3, 4))
        run(T(4, 4))
        run(T(5, 6))
    """,
    ),
    "size_in_list": (
        3,
        """
        ok = [2, 4, 8]
        def f(x): return x * 2 if x.shape[0] in ok else x + 1
        ---
        run(T(2))
        run(T(3))
        run(T(4))
        run(T(5))
        run(T(8))
    """,
    ),
    "size_in_range": (
        3,
        """
        def f(x): return x * 2 if x.shape[0] in range(2, 5) else x + 1
        ---
        run(T(2))
        run(T(3))
        run(T(4))
        run(T(5))
        run(T(8))
    """,
    ),
    "tab_get": (
        3,
        """
        tab = {1: 0.5, 2: 0.25}
        def f(x, n): return x * tab.get(n, 1.0)
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
    """,
    ),
    "list_index_value": (
        3,
        """
        tab = [0.5, 0.25, 0.125]
        def f(x, n): return x * tab[n]
        ---
        run(T(3), 0)
        run(T(3), 1)
        run(T(3), 2)
    """,
    ),
    "bisect_lr": (
        2,
        """
        import bisect
        def f(x, t): return x * 0.1 ** bisect.bisect_right([2, 4], t)
        ---
        run(T(3), 0)
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 5)
    """,
    ),
    "every_n": (
        5,
        """
        def f(x, t, n):
            if (t + 1) % n == 0: x = x * 2
            return x + 1
        ---
        run(T(3), 0, 2)
        run(T(3), 1, 2)
        run(T(3), 2, 2)
        run(T(3), 3, 2)
        run(T(3), 4, 3)
        run(T(3), 5, 3)
    """,
    ),
    "clamp_int": (
        3,
        """
        def f(x, n): return x[: max(1, min(n, x.shape[0] - 1))]
        ---
        run(T(9), 2)
        run(T(9), 20)
        run(T(9), 0)
        run(T(7), 5)
        run(T(5), 8)
    """,
    ),
    "ratio_slice": (
        3,
        """
        def f(x, r): return x[: max(1, int(len(x) * r))]
        ---
        run(T(9), 0.5)
        run(T(9), 0.25)
        run(T(9), 0.1)
        run(T(12), 0.01)
    """,
    ),
    "temperature": (
        5,
        """
        def f(x, t=None, k=None):
            if t is not None: x = x / t
            if k is not None:
                v = x.topk(k).values[..., -1, None]
                x = x.masked_fill(x < v, float("-inf"))
            return x.softmax(-1)
        ---
        run(T(1, 6))
        run(T(1, 6), 0.7)
        run(T(1, 6), 0.8, 3)
        run(T(1, 6), 0.9, 4)
        run(T(1, 6), None, 2)
    """,
    ),
    "betas": (
        4,
        """
        def f(g, m, betas, t):
            b1, b2 = betas
            m = m * b1 + g * (1 - b1)
            return m / (1 - b1 ** t), b2 ** t
        ---
        run(T(3), T(3), (0.9, 0.99), 1)
        run(T(3), T(3), (0.9, 0.99), 2)
        run(T(3), T(3), (0.8, 0.99), 3)
        run(T(3), T(3), (0.8, 0.95), 4)
    """,
    ),
    "string_startswith": (
        4,
        """
        def f(x, name): return x * 2 if name.startswith("enc") else x + 1
        ---
        run(T(3), "enc.1")
        run(T(3), "enc.2")
        run(T(3), "dec.1")
        run(T(3), "enc.3")
    """,
    ),
    "output_hidden": (
        5,
        """
        def f(x, output_hidden=False, n=2):
            hs = ()
            for i in range(n):
                x = x * 2
                if output_hidden: hs += (x,)
            return (x, hs) if output_hidden else x
        ---
        run(T(3))
        run(T(3), True)
        run(T(4), True)
        run(T(4))
        run(T(4), False, 3)
    """,
    ),
    "ordered_dict": (
        3,
        """
        def f(d): return [v * 2 for v in d.values()]
        ---
        run(collections.OrderedDict(a=T(3)))
        run(collections.OrderedDict(a=T(3), b=T(3)))
        run(collections.OrderedDict(b=T(3), a=T(3)))
    """,
    ),
    "user_dict": (
        3,
        """
        class D(dict): pass
        def f(d): return d["x"] * d["n"]
        ---
        run(D(x=T(3), n=1))
        run(D(x=T(3), n=2))
        run(D(x=T(3), n=3))
        run(D(x=T(4), n=4))
    """,
    ),
    "simple_namespace": (
        3,
        """
        import types
        def f(c): return c.x * c.n
        ---
        run(types.SimpleNamespace(x=T(3), n=1))
        run(types.SimpleNamespace(x=T(3), n=2))
        run(types.SimpleNamespace(x=T(3), n=3))
        run(types.SimpleNamespace(x=T(4), n=4))
    """,
    ),
    "three_pow": (
        2,
        """
        def f(x, n): return x * 3 ** n
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
    """,
    ),
    "n_pow_n": (
        2,
        """
        def f(x, n): return x * n ** n
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 4)
    """,
    ),
    "log2_int": (
        3,
        """
        def f(x): return x.view([2] * int(math.log2(x.numel()))).sum(0)
        ---
        run(T(4))
        run(T(8))
        run(T(16))
    """,
    ),
    "next_pow2": (
        2,
        """
        def f(x):
            n = 1 << (x.shape[0] - 1).bit_length()
            return nn.functional.pad(x, (0, n - x.shape[0]))
        ---
        run(T(3))
        run(T(5))
        run(T(6))
        run(T(7))
        run(T(9))
    """,
    ),
    "unfold_frames": (
        4,
        """
        def f(x, w, h): return x.unfold(0, w, h).mean(1)
        ---
        run(T(10), 4, 2)
        run(T(12), 4, 2)
        run(T(12), 3, 2)
        run(T(13), 5, 3)
    """,
    ),
    "conv_kernel_arg": (
        3,
        """
        def f(x, w): return nn.functional.conv1d(x, w, padding=w.shape[-1] // 2)
        ---
        run(T(1, 1, 9), T(1, 1, 3))
        run(T(1, 1, 9), T(1, 1, 5))
        run(T(1, 1, 11), T(1, 1, 7))
    """,
    ),
    "pool_kernel": (
        3,
        """
        def f(x, k): return nn.functional.max_pool1d(x, k)
        ---
        run(T(1, 1, 9), 2)
        run(T(1, 1, 9), 3)
        run(T(1, 1, 9), 4)
    """,
    ),
    "avg_pool_kernel": (
        3,
        """
        def f(x, k): return nn.functional.avg_pool2d(x, k)
        ---
        run(T(1, 1, 9, 9), 2)
        run(T(1, 1, 9, 9), 3)
        run(T(1, 1, 9, 9), 4)
    """,
    ),
    "group_norm_groups": (
        3,
        """
        def f(x, g): return nn.functional.group_norm(x, g)
        ---
        run(T(1, 8, 3), 2)
        run(T(1, 8, 3), 4)
        run(T(1, 8, 3), 8)
    """,
    ),
    "normalize_p": (
        3,
        """
        def f(x, p): return nn.functional.normalize(x, p=p)
        ---
        run(T(2, 3), 2.0)
        run(T(2, 3), 1.0)
        run(T(2, 3), 3.0)
        run(T(2, 3), 4.0)
    """,
    ),
    "norm_ord": (
        3,
        """
        def f(x, p): return x.norm(p)
        ---
        run(T(3), 2)
        run(T(3), 1)
        run(T(3), 3)
        run(T(3), 4)
    """,
    ),
    "quantile_q": (
        3,
        """
        def f(x, q): return torch.quantile(x, q)
        ---
        run(T(5), 0.5)
        run(T(5), 0.25)
        run(T(5), 0.75)
    """,
    ),
    "histc": (
        3,
        """
        def f(x, b): return torch.histc(x, b)
        ---
        run(T(5), 4)
        run(T(5), 5)
        run(T(5), 6)
    """,
    ),
    "diag_offset": (
        4,
        """
        def f(x, k): return x.diagonal(k).sum()
        ---
        run(T(5, 5), 0)
        run(T(5, 5), 1)
        run(T(5, 5), 2)
        run(T(5, 5), -1)
    """,
    ),
    "triu_k": (
        3,
        """
        def f(x, k): return x.triu(k)
        ---
        run(T(5, 5), 0)
        run(T(5, 5), 1)
        run(T(5, 5), 2)
        run(T(6, 6), -1)
    """,
    ),
    "rot90": (
        3,
        """
        def f(x, k): return x.rot90(k)
        ---
        run(T(3, 3), 1)
        run(T(3, 3), 2)
        run(T(3, 3), 3)
    """,
    ),
    "block_diag": (
        3,
        """
        def f(*xs): return torch.block_diag(*xs)
        ---
        run(T(2, 2), T(3, 3))
        run(T(3, 2), T(2, 3))
        run(T(4, 4), T(5, 5))
    """,
    ),
}
