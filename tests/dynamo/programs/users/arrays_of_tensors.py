"""numpy arrays and tensors together: made of each other, mixed in operations, sharing memory."""

PROGRAMS = {
    "np_tensor_mix": (
        2,
        """
        def f(x):
            a = x.detach().cpu().numpy()
            b = torch.tensor(a.copy()) + torch.as_tensor(a * 2)
            return b + np.float32(2), np.square(x.detach()), x.detach() + a, np.asarray(x.detach()), torch.from_numpy(a) is not None, np.mean(x.detach().numpy())
        ---
        run(T(3))
        run(T(3, grad=True))
    """,
    ),
    "np_ufuncs_of_tensors": (
        1,
        """
        import warnings
        def f(x, t):
            a = np.sqrt(t) * x + np.maximum(t, 1e-10)
            return a, np.square(x), np.add(x, np.ones(3)), np.greater(x, 0)
        def warned(x, t):
            with warnings.catch_warnings(record=True) as w:
                warnings.simplefilter("always")
                found = run(x, t)
            return found, [(str(i.message), i.category, i.lineno) for i in w]
        ---
        warned(T(3), torch.tensor(2.0))
        warned(T(3), torch.tensor(3.0))
    """,
    ),
    "np_ufuncs_of_history": """
        def f(x):
            y = x * 2
            try:
                return np.log(y)
            except RuntimeError as error:
                return str(error), y + 1
        ---
        run(T(3))
        run(T(3, grad=True))
    """,
    "np_shares_memory": (
        1,
        """
        def f(x):
            a = x.numpy()
            a += 1
            return x * 2, a
        ---
        t = T(3)
        r = run(t)
        t
        r[1][0] = 100
        t
        r = None
    """,
    ),
    "np_reversed_to_tensor": (
        1,
        """
        def f(a):
            r = a[::-1]
            try:
                t = torch.from_numpy(r)
            except ValueError as e:
                t = torch.as_tensor(r.copy())
            return t * 2
        ---
        run(np.arange(4.0))
    """,
    ),
    "tensors_of_arrays": (
        2,
        """
        def f(a, i):
            made = torch.tensor(a, dtype=torch.float32), torch.as_tensor(a, dtype=torch.float64), torch.tensor(a.T), torch.tensor(data=a[:, ::2], device='cpu')
            legacy = torch.FloatTensor(a), torch.Tensor(a), torch.DoubleTensor(a), torch.LongTensor(i), torch.IntTensor(a[0])
            listed = torch.tensor([a[0], a[1]]), torch.FloatTensor([a[0], a[1]]), torch.tensor(list(a), dtype=torch.float32), torch.tensor([i[0], i[1]]), torch.as_tensor([a[0, 0], a[0, 1]])
            single = torch.tensor(a[0, 0]), torch.tensor(i[0], dtype=torch.float32), torch.as_tensor(i[0]), torch.tensor(np.float32(2.5)), torch.tensor(np.int32(3), dtype=torch.int8), torch.asarray(a, dtype=torch.float32), torch.asarray(a[0, 0])
            return made, legacy, listed, single
        ---
        a, i = np.arange(6.0).reshape(2, 3), np.array([3, 4])
        kept = run(a, i)
        a += 1
        i *= 2
        kept
        run(a.astype(np.float32), i.astype(np.int32))
    """,
    ),
    "tensors_of_arrays_bool": (
        2,
        """
        def f(a): return torch.tensor(a, dtype=torch.bool), torch.tensor([a[0], a[1]], dtype=torch.int64), torch.BoolTensor(a), torch.tensor(a > 1), torch.tensor(a > 1, dtype=torch.int32)
        ---
        run(np.arange(6.0).reshape(2, 3))
    """,
    ),
    "tensors_of_arrays_device": (
        2,
        """
        def f(a):
            with torch.device('meta'): t = torch.tensor(a), torch.as_tensor(a), torch.asarray(a), torch.FloatTensor(a), torch.as_tensor(a, device='cpu')
            return [x.device.type for x in t], t[3], t[4]
        def outer(a):
            with torch.device('meta'): return run(a)
        ---
        run(np.arange(3.0))
        outer(np.arange(3.0))
    """,
    ),
    "np_float_of_symbol": (
        3,
        """
        def f(n, a): return np.float32(n) * a, np.float64(n) / 3, np.power(10000, a / np.float32(n)).round(2)
        ---
        run(3, np.arange(3.0))
        run(4, np.arange(3.0))
        run(5, np.arange(3.0))
        run(2.5, np.arange(3.0))
        run(3.5, np.arange(3.0))
    """,
    ),
    "tensors_of_lists_of_arrays": (
        3,
        """
        def f(x, k): return torch.tensor([x, x + 1]), torch.FloatTensor([x] * k)
        ---
        run(np.arange(3.0), 2)
        run(np.arange(4.0), 2)
        run(np.arange(5.0), 3)
    """,
    ),
    "tensors_of_scalars_in_nests": (
        2,
        """
        def f(a, b):
            mixed = torch.tensor([a[0], 1.0]), torch.tensor([a.max(), b[0]]), torch.tensor((a.mean(), a.std())), torch.tensor([2, b[1]])
            nested = torch.tensor([[a[0], a[1]], [a[1], a[0]]]), torch.tensor([list(a), list(b)]), torch.tensor([a[0], 1], dtype=torch.float64)
            return mixed, nested
        ---
        run(np.arange(3.0), np.arange(3))
        run(np.arange(3, dtype=np.float32), np.arange(3, dtype=np.int32))
    """,
    ),
    "np_arrays_of_arrays": (
        2,
        """
        def f(a, i):
            made = np.asarray(a, dtype=np.float32), np.array(a, dtype=np.float32), np.array(a, np.int64), np.asarray(i, 'float64'), np.array(a[0], dtype=np.float32)
            kept = np.asarray(a, dtype=np.float64)
            kept[0] = 7
            copied = np.array(a, dtype=np.float64)
            copied[1] = 9
            return made, kept is a, a, copied, np.float32(a[1]), np.float64(i[0]) / 3, np.int32(a[2]), np.asarray(a[0], np.float64)
        ---
        run(np.array([0.5, 1.5, -2.0]), np.arange(3))
        run(np.array([0.5, 1.5, -2.0, 4.0]), np.arange(3))
    """,
    ),
    "np_arrays_bool": (
        1,
        """
        def f(a): return np.asarray(a, dtype=bool), np.array(a > 1, dtype=np.float32), np.bool_(a[0]), np.asarray(a[::2], dtype=np.float32), np.asarray(a.T, dtype=np.float64) is a
        ---
        run(np.array([0.5, 0, -2.0]))
    """,
    ),
    "np_arrays_tensor": (
        1,
        """
        def f(t): return np.asarray(t, dtype=np.float64), np.array(t, dtype=np.float64), np.asarray(t)
        ---
        run(T(3))
    """,
    ),
    "grids": (
        3,
        """
        def f(x):
            h, w = x.shape
            open_grid = np.ogrid[0:3, 0:2]
            steps = np.mgrid[-1:1:3j]
            a = np.arange(12.0).reshape(3, 4)
            return np.mgrid[:h, 0:w], np.mgrid[0:2, 1:3] * 2, open_grid[0] + open_grid[1], steps, a[np.ix_([0, 2], [1, 3])]
        ---
        run(T(2, 3))
        run(T(4, 3))
        run(T(5, 6))
    """,
    ),
    "index_lists_beside_slices": (
        3,
        """
        def f(a, i):
            b, c, d = a[:, [1, 0]], a[[0, 1], 1:], a[..., [2]]
            return b, c, d, a[:, i], a[i, :, None], a[:, [0, 1], [1, 2]], a.T[:, [1, 0]], b.strides, c.strides
        ---
        run(np.arange(24.0).reshape(2, 3, 4), np.array([1, 0]))
        run(np.arange(24).reshape(2, 3, 4), np.array([1, 0, 1]))
        run(np.arange(24.0).reshape(2, 3, 4).transpose(2, 1, 0), np.array([1, 0]))
    """,
    ),
    "index_lists_beside_numbers": (
        None,
        """
        def f(a): return a[0, :, [1, 0]], a[:, 0, [1, 0]], a[[1, 0], ::-1]
        ---
        run(np.arange(8.0).reshape(2, 2, 2))
    """,
    ),
    "operators_of_tensors_and_arrays": (
        3,
        """
        def f(x, a):
            y = x + a, x - a, x * a, x / a, x ** a, x % a, x // a
            try: a + x
            except TypeError as error: return y, type(error)
        def g(x, a): return (x + a).dtype
        ---
        run(T(3), np.arange(1.0, 4.0))
        run(T(3).double(), np.arange(1, 4, dtype=np.int32))
        run(torch.arange(3), np.arange(1, 4))
        run(T(3, grad=True), np.arange(1.0, 4.0))
    """,
    ),
    "half_arrays": (
        2,
        """
        def f(x, a):
            h = x.numpy().astype(np.float16)
            return h, h.T, h[0], h[1, 1], h.reshape(-1), h.max(), h.argmax(0), h.astype(np.float32) * 2, a.astype("f4").mean(), a[1:], a.copy(), h.dtype, a.itemsize, torch.from_numpy(h) + 1, x + torch.from_numpy(a)[0]
        def g(a):
            b = a * 2 + 1
            a[0] = 0.1
            return b, a, a.sum(), a.mean(), a > 1, a.astype(np.float64).astype(np.float16)
        ---
        run(T(2, 3), np.arange(6, dtype=np.float16).reshape(2, 3))
        run(T(2, 3) * 1000, np.arange(6, dtype=np.float16).reshape(2, 3))
        run(T(3, 3) * 1e-3, np.full((3, 3), 0.1, dtype=np.float16))
        run(T(4, 3) * 1e6, np.full((4, 3), 0.1, dtype=np.float16))
    """,
    ),
    "half_arithmetic": (
        None,
        """
        def f(a):
            b = a * 2 + 1
            a[0] = 0.1
            c = a.copy(); c.fill(0.2)
            return b, a, a.sum(), a.mean(), a > 1, a.astype(np.float64).astype(np.float16), np.clip(a, 0, 1), np.sort(a), np.linspace(0, 1, 3, dtype=np.float16), np.where(a > 1, a, b), np.concatenate([a, b]), np.stack([a, a.astype(np.float32)])
        ---
        run(np.arange(6, dtype=np.float16) / 3)
        run(np.arange(6, dtype=np.float16) / 7)
    """,
    ),
    "ufuncs_of_numbers_that_vary": (
        2,
        """
        def f(x, n, v):
            scale = np.sqrt(x.shape[-1])
            return x / scale, x * np.log2(n), np.exp(v), np.abs(n), np.sqrt(n) + 1, np.negative(v) * x, np.square(n), type(scale)
        ---
        run(T(2, 3), 4, 0.5)
        run(T(2, 5), 9, 1.5)
        run(T(2, 6), 10, -2.5)
        run(T(2, 7), 16, 0.25)
    """,
    ),
    "item_at_a_place": (
        1,
        """
        def f(a, b):
            x = torch.from_numpy(a)
            at = a.item(1), b.item(3), b.item(-1), b.item(1, 0), b.item((0, 1)), b.T.item(1)
            return x * a.item(1) + b.item(1, -1), at, b[:, ::-1].item(0, 0)
        ---
        for k in (3.0, -50.0, 1.5): run(np.array([k, k + 1]), np.array([[k, 2], [3, k * 2]]))
    """,
    ),
    "item_at_a_place_of_other_types": (
        None,
        """
        def f(x, a):
            found = a.item(0), type(a.item(0)).__name__
            return x + a.item(1), found
        ---
        run(T(2), np.array([1, 2]))
        run(T(2), np.array([3, 7]))
        run(T(2), np.array([True, False]))
        run(T(2), np.array([1, 2], dtype=np.uint8))
        run(T(2), np.array([1, 2.5], dtype=np.float32))
        run(T(2), np.array([1, 2.5], dtype=np.float16))
        run(T(2), np.array([1, 2.5 + 1j]))
        run(T(2), np.array([1, 2.5])[::-1])
        run(T(2), np.arange(6.0)[::2])
        run(T(2), np.arange(6.0).reshape(3, 2))
    """,
    ),
    "item_at_a_place_outside": (
        None,
        """
        def f(x, a, place):
            try:
                return x + 1, a.item(*place)
            except (IndexError, ValueError, TypeError) as error:
                return x - 1, type(error).__name__, str(error)
        ---
        run(T(2), np.array([1, 2]), (2,))
        run(T(2), np.array([1, 2]), (-3,))
        run(T(2), np.array([1, 2]), (1,))
        run(T(2), np.array([1, 2]), (True,))
        run(T(2), np.array([1, 2]), (np.int64(1),))
        run(T(2), np.array([1, 2]), (0, 1))
        run(T(2), np.array([[1, 2]]), (2, 1))
        run(T(2), np.array([[1, 2]]), (-2, -1))
        run(T(2), np.array([[1, 2]]), (2,))
        run(T(2), np.array([[1, 2]]), ((),))
        run(T(2), np.array(3), (0,))
        run(T(2), np.array(3), ((),))
        run(T(2), np.array(3.5)[()], (0,))
        run(T(2), np.zeros((0, 2)), (0,))
        run(T(2), np.zeros(1), (0.0,))
        run(T(2), np.zeros((2, 3)), (5,))
        run(T(2), np.zeros((4, 3)), (5,))
        run(T(2), np.arange(20.0).reshape(5, 4), (5,))
        run(T(2), np.arange(18.0).reshape(6, 3), (5,))
    """,
    ),
}
