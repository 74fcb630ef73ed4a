"""numpy in programs: preprocessing, dtypes, layouts, keywords, arrays turned round."""

PROGRAMS = {
    "np_len_varies": (
        2,
        """
        def f(a): return a + 1, len(a), a.shape
        ---
        run(np.arange(3.0))
        run(np.arange(4.0))
        run(np.arange(5.0))
    """,
    ),
    "np_numbers_beside_sequences": (
        1,
        """
        def f(x, n, l):
            y = x + 1
            return y, n == l, l == n, n != l, n < l, l > n, n == [], n == [[1], [2]], n in l, n + l
        ---
        repr(run(T(3), np.int64(2), [1, 2]))
        repr(run(T(3), np.int64(1), [1, 2]))
        repr(run(T(3), np.float32(1), [1, 2]))
    """,
    ),
    "np_arguments_computed_with": (
        2,
        """
        def f(x, n, v, k):
            return x * n + (n + k) * 2 - v, x * (v * k - v), n * n, v + 1.5, torch.tensor(n - 1), torch.tensor(v)
        ---
        run(T(3), np.int64(0), np.float64(0.5), 3)
        run(T(3), np.int64(1), np.float64(1), 4)
        run(T(3), np.int64(2), np.float64(2.5), 5)
        run(T(3), np.int64(5), np.float64(-7), 7)
    """,
    ),
    "np_arrays_that_refuse_writes": """
        def f(a, how):
            b = a + 1, a.sum(), a.copy(), a.shape, a.astype(np.float32), np.concatenate([a, a])
            if how == 0: a += 1
            if how == 1: a[0] = 3
            if how == 2: a.sort()
            if how == 3: np.add(a, 1, out=a)
            if how == 4: a.T[0] = 4
            return b, a, a[0], a[1:], a.T, a.reshape(-1), a.ravel(), a[None]
        def flags(found): return [v.flags.writeable for v in found[1:]], [np.shares_memory(v, x) for v in found[1:]]
        x = np.arange(6.0).reshape(2, 3)
        x.setflags(write=False)
        ---
        flags(run(x, None))
        run(x, 0)
        run(x, 1)
        run(x, 2)
        run(x, 3)
        run(x, 4)
        x.setflags(write=True)
        run(x, 3)
    """,
    "np_written_beside_a_view_that_refuses_writes": (
        2,
        """
        def f(a, b):
            a += 1
            return b + 1, b[0], b
        x = np.arange(3.0)
        y = x.view()
        y.setflags(write=False)
        ---
        run(x, y)
        run(x, np.arange(3.0))
    """,
    ),
    "np_items_with_tensors": (
        3,
        """
        def f(x, y, z):
            for i in np.arange(3):
                x = x * i + 1; y = i * y; x = x / (i + 1)
                y += i
            for v in np.linspace(0, 1, 3):
                x = x * v; z = z * v; w = x > v; u = v <= z
            for v in np.arange(2, dtype=np.float32): x = v + x; z = z - v
            return x, y, z, w, u
        ---
        run(T(3), T(3, dtype=torch.int64), T(dtype=torch.float64))
        run(T(3), T(3, dtype=torch.int32), T(dtype=torch.float32))
        run(T(3), T(3, dtype=torch.int16), T(dtype=torch.int32))
    """,
    ),
    "np_basic": (
        2,
        """
        def f(x):
            a = x.numpy()
            b = np.clip((a - a.mean()) / (a.std() + 1e-6), -1, 1)
            return torch.from_numpy(np.round(b, 4)), np.sum(a, axis=0, keepdims=True).round(4), np.max(a), np.argmax(a)
        ---
        run(T(3, 4))
        run(T(2, 4))
    """,
    ),
    "np_arg": (
        2,
        """
        def f(a):
            b = np.pad(a, ((1, 1), (0, 0))).astype(np.float32)
            c = np.transpose(b, (1, 0))[:, ::2]
            d = np.concatenate([c, c], axis=1)
            e = np.stack([d, d], axis=-1).reshape(d.shape[0], -1)
            return torch.from_numpy(np.ascontiguousarray(e)) * 2
        ---
        run(np.arange(12).reshape(3, 4))
        run(np.arange(12.0).reshape(3, 4))
    """,
    ),
    "np_ints": (
        4,
        """
        def f(a):
            b = a // 3 + a % 5 - (a << 1) + (a >> 1) ^ (a & 7) | 1
            return b, ~a, -a, a ** 2, a / 2, np.bitwise_and(a, 3), a.sum(), a.prod(), a.cumsum(), a.max(), np.mod(a, -3), np.floor_divide(a, -2), np.gcd(a, 6), np.sign(a - 3), np.abs(-a), a.dtype.name, a.nbytes, a.itemsize
        ---
        run(np.arange(1, 7, dtype=np.int32))
        run(np.arange(1, 7, dtype=np.uint8))
        run(np.arange(1, 7, dtype=np.int64))
    """,
    ),
    "np_bool": (
        4,
        """
        def f(a):
            m = a > 2
            return m & (a < 5), m | ~m, m ^ m, np.logical_and(m, a), m.any(), m.all(), np.where(m, a, 0), m.sum(), np.count_nonzero(m), a[m], np.nonzero(m), np.select([a < 2, a > 4], [a, a * 2], -1), np.isin(a, [1, 2])
        ---
        run(np.arange(6.0))
        run(np.arange(6))
    """,
    ),
    "np_complex": (
        1,
        """
        def f(a):
            c = a + 1j * a[::-1]
            return np.abs(c), np.angle(c), c.real, c.imag, np.conj(c), c * c, np.exp(c), c.dtype.name, np.fft.fft(a)
        ---
        run(np.arange(4.0))
    """,
    ),
    "np_out": (
        1,
        """
        def f(a, o):
            np.add(a, 1, out=o)
            np.multiply(o, 2, out=o)
            b = np.empty_like(a)
            np.exp(a, out=b)
            np.sum(a, axis=0, out=o[0])
            return b, o
        ---
        o = np.zeros((2, 3))
        run(np.arange(6.0).reshape(2, 3), o)
        o
        run(np.arange(6.0).reshape(2, 3), o)
    """,
    ),
    "np_ufunc_methods": (
        2,
        """
        def f(a):
            return np.add.reduce(a), np.multiply.accumulate(a), np.add.outer(a, a), np.maximum.reduce(a), np.add.reduce(a, axis=0, keepdims=True), np.logical_or.reduce(a > 2), np.minimum.accumulate(a), np.subtract.outer(a, a)
        ---
        run(np.arange(4.0))
        run(np.arange(4))
    """,
    ),
    "np_ufunc_at": (
        2,
        """
        def f(a):
            b = np.zeros(4)
            np.add.at(b, [0, 1, 1], a[:3])
            return b * 2
        ---
        run(np.arange(4.0))
    """,
    ),
    "np_where_kw": (
        5,
        """
        def f(a):
            return np.sum(a, where=a > 1), np.mean(a, axis=(0, 1), where=a > 1), np.divide(1, a, out=np.zeros_like(a), where=a != 0), np.add(a, 1, where=a > 2, out=a.copy()), np.max(a, initial=0, where=a < 3)
        ---
        run(np.arange(6.0).reshape(2, 3))
    """,
    ),
    "np_axis_tuples": (
        2,
        """
        def f(a):
            return a.sum(axis=(0, 2)), np.mean(a, axis=(1, 2), keepdims=True), np.max(a, (0, 1)), np.std(a, axis=(0, -1), ddof=1), np.var(a, 1), np.prod(a, axis=0), np.ptp(a, axis=1), np.median(a, axis=0), np.percentile(a, 30, axis=1), np.quantile(a, [0.1, 0.9]), np.average(a, axis=0, weights=np.array([1, 2.0])), a.min(axis=None), np.any(a > 3, axis=(0, 1)), np.flip(a, (0, 1)), np.roll(a, (1, 2), (0, 1)), np.squeeze(a[:, :1], 1), np.expand_dims(a, (0, 1)).shape
        ---
        run(np.arange(24.0).reshape(2, 3, 4))
    """,
    ),
    "np_indexing": (
        6,
        """
        def f(a):
            b = a.copy()
            b[1:, ::2] = 7
            b[b > 9] = 0
            b[[0, 1], [1, 2]] += 5
            b[..., -1] *= 2
            c = b[np.newaxis, :, None]
            d = b[np.ix_([0, 1], [1, 2])]
            e = np.take(b, [0, 2], axis=1)
            g = np.take_along_axis(b, np.argsort(b, axis=1), axis=1)
            return b, c.shape, d, e, g, b[0, 1], b[-1].tolist(), b.flat[3], b.ravel(), b.T, b[:, [1]], b[np.array([True, False, True])]
        ---
        run(np.arange(12.0).reshape(3, 4))
        run(np.arange(12).reshape(3, 4))
    """,
    ),
    "np_linear": (
        1,
        """
        def f(a):
            b = a @ a.T
            return np.dot(a, a.T), np.matmul(a, a.T), np.einsum("ij,kj->ik", a, a), np.einsum("ij->j", a), np.outer(a[0], a[1]), np.inner(a[0], a[1]), np.linalg.norm(a), np.linalg.norm(a, axis=1), np.trace(b), np.tensordot(a, a, axes=([1], [1])), np.kron(a[0], a[1]), np.cross([1., 2, 3], [3., 2, 1]), np.round(np.linalg.det(b + np.eye(2)), 6), np.round(np.linalg.inv(b + np.eye(2)), 6), np.round(np.linalg.solve(b + np.eye(2), a), 6), np.vdot(a, a), np.tril(b), np.triu(b, 1), np.diag(b)
        ---
        run(np.arange(8.0).reshape(2, 4))
    """,
    ),
    "np_make": (
        2,
        """
        def f(x):
            n = x.shape[0]
            return torch.from_numpy(np.linspace(0, n - 1, n)) + x.double().round(decimals=2), np.arange(n), np.eye(n), np.full((2, n), 3.0), np.zeros(n, dtype=np.int32), np.meshgrid(np.arange(2), np.arange(3)), np.tile(np.arange(2), 2), np.repeat(np.arange(2), 2), np.logspace(0, 1, 3), np.indices((2, 2)), np.mgrid[0:2, 0:2], np.ones_like(np.arange(3.)), np.identity(2), np.tri(2), np.vander([1, 2, 3]), np.geomspace(1, 4, 3), np.array([[1, 2], [3, n]]), np.asarray([1.5, n]), np.empty((2, 0)).shape
        ---
        run(T(3))
        run(T(4))
    """,
    ),
    "np_sorting": (
        7,
        """
        def f(a):
            return np.sort(a), np.argsort(a), np.unique(a), np.unique(a, return_counts=True, return_inverse=True), np.searchsorted(np.sort(a), 2), np.digitize(a, [1, 3]), np.histogram(a, bins=3), np.bincount(a.astype(int)), np.partition(a, 2), np.lexsort((a, a)), np.diff(a), np.gradient(a), np.cumprod(a), np.interp(1.5, [1, 2], [3, 4]), np.convolve(a, [1, 2]), np.trapezoid(a) if hasattr(np, 'trapezoid') else 0, np.argwhere(a > 2), np.flatnonzero(a > 2), np.setdiff1d(a, [1]), np.intersect1d(a, [1, 2])
        ---
        run(np.array([3.0, 1, 2, 4, 1]))
    """,
    ),
    "np_strings": (
        1,
        """
        def f(x, a):
            y = x + 1
            return y * 2, a.dtype.kind, len(a), a[0], a.tolist()
        ---
        run(T(3), np.array(["a", "bc"]))
        run(T(3), np.array(["a", "bc"]))
    """,
    ),
    "np_structured": (
        2,
        """
        def f(x, a):
            y = x + torch.from_numpy(a["v"].copy())
            return y * 2, a["k"].sum(), a.dtype.names, a[0]["v"]
        ---
        run(T(3), np.array([(1, 2.0), (2, 3.0), (3, 4.0)], dtype=[("k", "i4"), ("v", "f4")]))
        run(T(3), np.array([(1, 2.0), (2, 3.0), (3, 5.0)], dtype=[("k", "i4"), ("v", "f4")]))
    """,
    ),
    "np_apply": (
        None,
        """
        def f(a):
            b = np.apply_along_axis(lambda v: v - v.mean(), 1, a)
            c = np.vectorize(lambda v: v * 2)(a)
            d = np.fromiter((i * 2.0 for i in range(3)), dtype=float)
            e = np.piecewise(a, [a < 2, a >= 2], [-1, 1])
            return b, c, d, e, np.apply_over_axes(np.sum, a, [0])
        ---
        run(np.arange(6.0).reshape(2, 3))
    """,
    ),
    "np_testing": (
        3,
        """
        def f(x):
            a = x.numpy() + 1
            np.testing.assert_allclose(a, a)
            np.testing.assert_array_equal(a, a)
            return torch.from_numpy(a) * 2, np.allclose(a, a), np.array_equal(a, a), np.isclose(a, a)
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "np_scalars": (
        4,
        """
        def f(x, s):
            y = x * float(s)
            return y + s.item(), np.float32(2.5) * 2, s + 1, s.dtype, isinstance(s, np.floating), isinstance(s, np.integer), np.isnan(s), round(float(s), 1), int(s), np.int64(3) / 2, np.float64(1) + x.shape[0]
        ---
        run(T(3), np.float32(1.5))
        run(T(3), np.float32(2.5))
        run(T(3), np.int64(2))
        run(T(3), np.float64(2))
    """,
    ),
    "np_dtypes": (
        1,
        """
        def f(x):
            a = x.numpy()
            b = a.astype("int64"); c = a.astype(np.float16); d = a.astype(bool); e = a.astype(np.dtype("f8"))
            return b, c, d, e, np.result_type(b, e), np.promote_types("i4", "f4"), np.can_cast("i4", "i8"), np.finfo(a.dtype).eps, np.iinfo(np.int32).max, np.issubdtype(a.dtype, np.floating), a.dtype == np.float32, a.dtype.type is np.float32, b.view(np.uint64)[0] >= 0, np.dtype("f4").itemsize
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "np_attrs": (
        4,
        """
        def f(a):
            return a + 1, a.shape, a.ndim, a.size, a.strides, a.flags["C_CONTIGUOUS"], a.T.flags.f_contiguous, a.base is None, len(a), a.itemsize, a.copy().tobytes() == a.tobytes(), repr(a), str(a), f"{a[0, 0]:.2f}"
        ---
        run(np.arange(4.0).reshape(2, 2))
    """,
    ),
    "np_inplace_arg": (
        4,
        """
        def f(a):
            a += 1
            a[0] = 5
            a.fill(2) if a.shape[0] > 3 else None
            a.sort()
            v = a[1:]
            v *= 2
            np.copyto(a[:1], 9)
            np.put(a, [0], 4)
            return a * 2
        ---
        a = np.arange(3.0)
        run(a)
        a
        b = np.arange(4.0)
        run(b)
        b
    """,
    ),
    "np_preprocess": (
        2,
        """
        def preprocess(img, mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.2)):
            img = img.astype(np.float32) / 255.0
            img = (img - np.array(mean, dtype=np.float32)) / np.array(std, dtype=np.float32)
            h, w = img.shape[:2]
            s = min(h, w)
            top, left = (h - s) // 2, (w - s) // 2
            img = img[top:top + s, left:left + s]
            if w > h: img = img[:, ::-1]
            return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))[None]
        m = nn.Conv2d(3, 2, 3)
        with torch.no_grad():
            for p in m.parameters(): p.fill_(0.1)
        p = None
        def f(img):
            return m(preprocess(img)).relu()
        ---
        run(np.arange(6 * 5 * 3, dtype=np.uint8).reshape(6, 5, 3))
        run(np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3))
    """,
    ),
    "np_iou": (
        1,
        """
        def f(a, b):
            lt = np.maximum(a[:, None, :2], b[None, :, :2])
            rb = np.minimum(a[:, None, 2:], b[None, :, 2:])
            wh = np.clip(rb - lt, 0, None)
            inter = wh[..., 0] * wh[..., 1]
            area = lambda c: (c[:, 2] - c[:, 0]) * (c[:, 3] - c[:, 1])
            iou = inter / (area(a)[:, None] + area(b)[None] - inter)
            keep = np.argmax(iou, axis=1)
            return torch.as_tensor(iou), torch.tensor(keep)
        ---
        run(np.array([[0, 0, 2, 2], [1, 1, 3, 3.0]]), np.array([[0, 0, 1, 1], [1, 1, 3, 3.0]]))
    """,
    ),
    "np_loop": (
        1,
        """
        def f(a):
            out = []
            for row in a:
                out.append(row / np.linalg.norm(row))
            s = sum(a)
            return np.stack(out), s, [r.sum() for r in a], list(enumerate(a[0])), dict(zip("ab", a))
        ---
        run(np.arange(1, 7.0).reshape(2, 3))
    """,
    ),
    "np_float_of": (
        6,
        """
        def f(a):
            m = float(a.max())
            if m > 3:
                a = a / m
            return a, m, int(a.argmin()), bool((a > 0).any())
        ---
        run(np.arange(3.0))
        run(np.arange(6.0))
    """,
    ),
    "np_random_gen": (
        1,
        """
        def f(x, n):
            np.random.seed(n)
            idx = np.random.permutation(3)
            noise = np.random.normal(0, 1, size=x.shape)
            u = np.random.uniform(-1, 1)
            return x[torch.from_numpy(idx)] + torch.from_numpy(noise), u
        ---
        run(T(3), 1)
        run(T(3), 2)
        np.random.rand()
    """,
    ),
    "np_masked_mean": (
        3,
        """
        def f(a):
            m = ~np.isnan(a)
            return np.nanmean(a), np.nansum(a), np.nan_to_num(a), np.isfinite(a), np.nanmax(a), np.mean(a[m]), np.where(np.isnan(a), 0, a)
        ---
        run(np.array([1.0, np.nan, 3.0]))
    """,
    ),
    "np_reversed_views": (
        2,
        """
        def f(img):
            flipped = img[:, ::-1]
            bgr = img[..., ::-1]
            chw = bgr.transpose(2, 0, 1)
            t = torch.from_numpy(np.ascontiguousarray(chw)) * 2
            return flipped, bgr, chw, t, np.flip(img, 1) + 1, np.flipud(img).copy(), np.fliplr(img).sum(), img[::-2, 3:0:-1], flipped[0], flipped[0, 1], bgr.astype(np.float32), chw.shape, np.stack([flipped, flipped]), flipped.T
        ---
        a = np.arange(24).reshape(2, 4, 3)
        r = run(a)
        a += 1
        r
        run(np.arange(30.0).reshape(2, 5, 3))
        r = None
    """,
    ),
    "np_reversed_written": (
        2,
        """
        def f(a):
            r = a[::-1]
            s = r + 1
            a[0] = 100
            u = r * 2
            r[1] = 7
            return r, s, u
        ---
        a = np.arange(4.0)
        run(a)
        a
        run(np.arange(5))
    """,
    ),
    "np_reversed_sum": (
        2,
        """
        def f(x):
            a = x.numpy()
            return torch.from_numpy(a[::-1].copy()) + x, a[::-1].max(), a[::-1].argmax(), [v for v in a[::-1]], a[::-1][0], a[::-1][::-1], a[None, ::-1], a[::-1, None], a[5::-1], a[0:3:-1]
        ---
        run(T(3))
        run(T(6))
    """,
    ),
    "np_reduce_methods": (
        3,
        """
        def f(a):
            return np.add.reduce(a), np.multiply.reduce(a, axis=0), np.maximum.reduce(a), np.minimum.reduce(a, axis=-1, keepdims=True), np.logical_or.reduce(a > 2), np.logical_and.reduce(a > 2, axis=0), np.add.accumulate(a), np.multiply.accumulate(a), np.add.reduce(a, None)
        ---
        run(np.arange(4))
        run(np.arange(6, dtype=np.int8).reshape(2, 3))
    """,
    ),
    "np_outer_methods": (
        2,
        """
        def f(a, b):
            return np.add.outer(a, b), np.subtract.outer(a, a), np.less.outer(a, b), np.multiply.outer(b, a[:1])
        ---
        run(np.arange(4), np.arange(3))
        run(np.arange(4.0), np.arange(6.0).reshape(2, 3))
    """,
    ),
    "np_reduce_left_to_numpy": (
        1,
        """
        def f(a):
            return np.add.reduce(a, initial=5), np.subtract.reduce(a), np.add.reduceat(a, [0, 2]), np.add.reduce([1, 2]), a * 2
        ---
        run(np.arange(4))
    """,
    ),
    "np_reshape_turned": (
        2,
        """
        def f(a):
            t = a.T
            r = t.reshape(-1)
            s = t.reshape(2, 2, 3)
            u = a[:, ::2].reshape(-1, 1)
            v = a[:, 1:3].reshape(3, 2, 1)
            v[0] = 50
            w = a.transpose(1, 0).reshape((4, 3))
            return r, s, u, v, w, np.reshape(t, 12)
        ---
        a = np.arange(12.0).reshape(3, 4)
        __r = run(a)
        a
        __r[0][0] = 99
        __r[4][0, 0] = 77
        a
        __r
        run(np.arange(12).reshape(3, 4))
    """,
    ),
    "np_running_extremes": (
        2,
        """
        def f(a):
            return np.maximum.accumulate(a), np.minimum.accumulate(a, axis=-1), np.maximum.accumulate(a, 0) + 1
        ---
        run(np.array([1, 3, 2, 5]))
        run(np.array([[1.0, np.nan, 0.5], [0.25, 2.0, -1.0]]))
    """,
    ),
    "np_divided_integers": (
        1,
        """
        def f(x, k):
            a = np.arange(-6, 6)
            u = np.arange(5, dtype=np.uint8)
            return torch.from_numpy(a % 4 + np.remainder(a, 3) - a // 2 + a ** 3 + np.fmod(a, 5)), u % 3, u // 2, a % -3, a // -2, np.power(a, 0), a % 2 == 0
        ---
        run(T(6), 1)
        run(T(6), 1)
    """,
    ),
    "np_inverses": (
        1,
        """
        def f(a):
            b = a @ a.T + np.eye(2)
            return np.round(np.linalg.inv(b), 6), np.round(np.linalg.solve(b, a), 6), np.round(np.linalg.solve(b, a[:, 0]), 6), np.round(np.linalg.cholesky(b), 6)
        ---
        run(np.arange(8.0).reshape(2, 4))
        run(np.arange(8.0).reshape(2, 4) + 1)
    """,
    ),
    "np_singular": (
        1,
        """
        def f(a):
            log.append("before")
            return np.linalg.inv(a)
        ---
        run(np.eye(2))
        run(np.ones((2, 2)))
        run(np.eye(2) * 2)
        log
    """,
    ),
    "np_singular_caught": (
        1,
        """
        def f(a):
            try:
                return np.linalg.inv(a)
            except np.linalg.LinAlgError:
                return np.linalg.pinv(a) * 0
        ---
        run(np.eye(2))
        run(np.ones((2, 2)))
        run(np.eye(2) * 2)
    """,
    ),
    "np_not_positive_definite": (
        1,
        """
        def f(a, x): return np.linalg.cholesky(a), x + 1
        ---
        run(np.eye(2), T(2))
        run(-np.eye(2), T(2))
    """,
    ),
    "np_solve_batched": (
        1,
        """
        def f(a, b): return np.linalg.solve(a, b), np.linalg.inv(a), np.linalg.inv(a.astype(np.int64))
        ---
        run(np.stack([np.eye(2), np.eye(2) * 2]), np.ones((2, 2, 1)))
    """,
    ),
    "np_ufuncs_of_bits": (
        2,
        """
        def f(a, i):
            shifts = i << 2, i >> i, 1 << i, np.right_shift(5, i)
            steps = np.heaviside(a, 0.5), np.heaviside(0.0, a), np.nextafter(a, 1.0), +a, np.fix(a)
            return shifts, steps, np.array(a, copy=True)
        ---
        run(np.array([0.3, -1.2, np.nan, 0.0, -0.0]), np.array([3, 70, -2, 1]))
        run(np.array([2.5, -0.5], np.float32), np.array([3, 9], np.uint8))
    """,
    ),
    "np_index_makers": (
        1,
        """
        def f(a):
            rows, columns = np.diag_indices(3)
            low = np.tril_indices(3, -1)
            return a[low], a[rows, columns], rows is columns, low, np.identity(3) @ a, np.identity(2, dtype=np.int32)
        ---
        run(np.arange(9.0).reshape(3, 3))
    """,
    ),
    "np_filled_in_place": (
        1,
        """
        def f(a, i):
            a.sort()
            a[::2].sort()
            i[:, 0].fill(7)
            i[1:].sort(axis=0)
            b = np.zeros(2, np.float32)
            b.fill(1.5)
            return a, i * 2, b
        ---
        a, i = np.array([0.3, -1.2, 9.0, 4.0]), np.arange(6, 0, -1).reshape(3, 2)
        run(a, i)
        a, i
    """,
    ),
    "np_results_into": (
        2,
        """
        def f(x, row):
            kept = np.clip(x, 0, 4, out=x)
            np.sqrt(x, out=x)
            np.add(x, 1, x)
            x.clip(0, 2.5, out=x)
            np.round(x, 2, out=x)
            np.sum(x, axis=0, out=row)
            np.cumsum(x, axis=0, out=x)
            x.max(axis=0, out=x[1])
            np.concatenate([row, row], out=np.empty(6))
            return kept is x, row * 2, np.clip(row, 0, 1, out=None)
        ---
        x, row = np.arange(6.).reshape(2, 3), np.zeros(3)
        run(x, row)
        x, row
        run(np.arange(6.).reshape(3, 2).T, row)
    """,
    ),
    "np_results_into_bad": (
        None,
        """
        def f(x):
            return np.sum(x, axis=0, out=np.zeros(2))
        ---
        run(np.arange(6.).reshape(2, 3))
    """,
    ),
    "np_numbers_that_vary": (
        3,
        """
        def f(s, a, n):
            shares = s * n, n - a, a / n, -n + s, np.maximum(s, n), np.where(s > 0, s, n), np.clip(s, -n, n), a >= n
            s[0, 1] = n
            return shares, s.mean() / n, s * (1 / n) + n
        ---
        make = lambda: (np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3), np.arange(1, 5))
        run(*make(), 2)
        run(*make(), 3)
        run(*make(), 4)
        run(*make(), 2.5)
        run(*make(), 3.5)
    """,
    ),
    "np_items_at_places_that_vary": (
        2,
        """
        def f(s, a, n):
            before = a[n], s[0, n - 1], s[n - 1], a[n:]
            a[n] = 9
            a[0] = n
            s[n - 1] = n * 0.5
            return before, [a[i] for i in range(2)], s * 2
        ---
        make = lambda: (np.arange(6.0, dtype=np.float32).reshape(2, 3), np.arange(4))
        run(*make(), 2)
        run(*make(), 1)
        run(*make(), 2)
    """,
    ),
    "numbers_that_vary": """
        def f(x, c):
            clipped = x * np.clip(c + 2, 0, 5) + x * np.round(c / 3, 1)
            return clipped, x * np.dot(c, 2) - np.sum([c, 2]), x * np.median([c, 2, 3]) + np.max([c, 3])
        ---
        run(T(3), 1)
        run(T(3), 2)
        run(T(3), 7)
        run(T(3), 0.5)
        run(T(3), 1.5)
        run(T(3), 8.5)
    """,
    "bounds_that_vary": """
        def f(x, c):
            return x[np.clip(c - 2, 0, 6) : np.clip(c + 2, 0, 6)] * 1
        ---
        run(T(6), 4)
        run(T(6), 5)
        run(T(6), 2)
        run(T(6), 0)
    """,
    "value_of_a_varying_number": """
        def f(x, c):
            return x * np.min_scalar_type(c).itemsize, np.broadcast_shapes((1,), (c,)), x * np.ndim(c)
        ---
        run(T(3), 2)
        run(T(3), 3)
        run(T(3), 300)
    """,
    "array_of_rows_of_varying_lengths": (
        2,
        """
        def f(x, y): return np.array([x.numpy(), y.numpy()])
        ---
        run(T(3), T(3))
        run(T(4), T(4))
        run(T(6), T(6))
        run(T(3), T(4))
        run(T(5), T(5).double())
    """,
    ),
}
