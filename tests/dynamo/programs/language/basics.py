"""Exceptions, numbers, strings, iteration and other parts of the language."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "exception_values": """
        class E(Exception):
            def __init__(self, code, *rest):
                super().__init__(*rest)
                self.code = code
        def g(x, n):
            y = x + n
            if n == 1: raise E(7, 'one', n)
            if n == 2: return y[n]
            if n == 3: return {}[n]
            if n == 4: return y.nothing
            if n == 5: return undefined_name
            if n == 6: assert n < 3, f'bad {n}'
            if n == 7: return torch.ones(2) + torch.ones(5)
            if n == 8: return 1 // 0
            if n == 9: return int('x')
            if n == 10: a, b = [1]
            if n == 11: return len(3)
            if n == 12: return g()
            if n == 13: raise KeyboardInterrupt if False else StopIteration(3)
            if n == 14: return next(iter([]))
            if n == 15: return 'a' + 1
            if n == 16: raise E
            if n == 17: raise 3
            if n == 18: return getattr(torch, 'no_such')
            if n == 19: return y.view(7)
            if n == 20: return [1, 2][5]
            if n == 21: return torch.cat([y, 'a'])
            if n == 22: return y.sum(dim=9)
            return y
        def f(x, n):
            log.append(n)
            y = g(x * 2, n)
            log.append('ok')
            return y
        ---
        """
    + "\n        ".join(f"run(T(2), {n})\n        run(T(2), {n})" for n in range(23))
    + """
    """,
    "exceptions_caught": """
        def g(x, n):
            if n == 1: raise ValueError('v', x)
            if n == 2: return [][n]
            if n == 3: return {}['k']
            if n == 4: return None.attr
            if n == 5: return x[9]
            if n == 6: return x + torch.ones(7)
            return x
        def f(x, n):
            out = []
            try:
                out.append(g(x, n))
            except (ValueError, IndexError) as e:
                out += [type(e), e.args, str(e)[:10]]
            except LookupError as e:
                out.append(repr(e))
                try: raise TypeError('again') from e
                except TypeError as t: out += [t.__cause__ is e, t.__context__ is e, t]
            except Exception as e:
                out += [type(e).__name__, isinstance(e, AttributeError)]
            else: out.append('else')
            finally: out.append(x * 2)
            return out
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 3)
        run(T(2), 4)
        run(T(2), 5)
        run(T(2), 6)
    """,
    "exception_context": """
        def f(x, n):
            y = x * 2
            try:
                raise ValueError(1)
            except ValueError as e:
                if n == 0: raise KeyError(2)
                if n == 1: raise KeyError(2) from None
                if n == 2: raise
                if n == 3: raise e
                log.append(e)
            try: e
            except NameError as err: log.append(str(err))
            return y
        ---
        run(T(2), 4)
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 3)
    """,
    "strings": """
        def f(x, s, n):
            y = x + len(s)
            return y, f'{s:>5}|{n:.2f}|{n!r}|{x.shape}|{x.dtype}', '%s-%d' % (s, 3), '{} {k}'.format(s, k=n), s.upper().split('A'), ','.join([s, s]), s[::-1], s * 2, s in 'xaby', str(x.shape), s.encode()
        ---
        run(T(2), 'ab', 1.5)
        run(T(3), 'ab', 1.5)
        run(T(2), 'b', 2.0)
    """,
    "numbers": """
        def f(x, a, b):
            y = x * a
            return (y, a + b, a - b, a * b, a / b, a // b, a % b, a ** b, -a, abs(b), divmod(a, b), a < b, a == b, a != b,
                    round(a / b, 2), min(a, b), max([a, b]), sum([a, b]), int(a), float(b), bool(a), math.sqrt(abs(a)),
                    math.floor(a / b), math.pi * b, hash(a) == hash(b), isinstance(a, int), a and b, a or b, not a, a is b, math.inf > a)
        ---
        run(T(2), 3, 2)
        run(T(2), 3.0, 2)
        run(T(2), True, 2)
        run(T(2), 3, 0.5)
        run(T(2), -7, 2)
        run(T(2), 3, 0)
        run(T(2), float('inf'), 2)
        run(T(2), 0, 2)
        run(T(2), -0.0, 2)
    """,
    "big_ints_and_bits": """
        def f(x, a): return x + (a & 7), a << 70, a >> 1, a | 8, a ^ 5, ~a, a.bit_length(), 2 ** 100 + a, pow(3, a, 7), f'{a:b}', int('12', 8)
        ---
        run(T(2), 5)
        run(T(2), 6)
        run(T(2, dtype=torch.int64), 3)
    """,
    "iteration_tools": """
        def f(x, n):
            a = [x * i for i in range(n)]
            return (list(zip(a, range(n), 'abc')), list(enumerate(a, 1)), list(reversed(a)), [*map(lambda v: v + 1, a)],
                    list(filter(None, range(n))), any(i > 1 for i in range(n)), all([]), list(itertools.chain(a, [1])),
                    functools.reduce(lambda p, q: p + q, a, x), dict(zip('ab', a)), list(itertools.product([1, 2], [3])),
                    sorted('bca', reverse=True), max(range(n), key=lambda v: -v, default=9), sum(a), {i % 2 for i in range(n)},
                    list(itertools.islice(itertools.count(), 2)), list(itertools.accumulate([1, 2, 3])), tuple(x), [i for i, in zip(range(n))])
        ---
        run(T(2), 3)
        run(T(2), 2)
        run(T(2), 0)
        run(T(2), 3)
    """,
    "walrus_ternary_chain": """
        def f(x, n):
            if (m := n * 2) > 3: x = x * m
            y = x * 2 if n else -x
            z = 0 < n < 3 <= m
            while (n := n - 1) > 0: y = y + n
            return y, z, m, n, [w := n, w + 1], (lambda *a, k=w, **q: (a, k, q))(1, z=2)
        ---
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 4)
        run(T(2), 0)
    """,
    "item_assignment_forms": """
        def f(x, i):
            x = x.clone()
            x[i] = 1.5
            x[..., 0] += 2
            x[x > 1] = 0
            y = x[:, None]
            y[0] = x[1]
            x[[0, 1], 0] = x.new_tensor([8., 9.])
            return x, y, x[i], x[-1, -1], x[torch.tensor([0, 1])], x[1:, ::2]
        ---
        run(T(3, 2), 0)
        run(T(3, 2), 1)
        run(T(3, 2), slice(0, 2))
        run(T(3, 2), (0, 1))
    """,
    "tensor_attributes": """
        def f(x):
            y = x.clone()
            y.tag = 'a'
            y.other = [x]
            return y, y.tag, hasattr(x, 'tag'), getattr(x, 'tag', 'none')
        ---
        run(T(2))
        x = T(2); x.tag = 5
        run(x)
        run(x)
    """,
    "tensor_data_set": """
        def f(x, y):
            x.data = y * 2
            x.grad = y
            return x + 1
        ---
        a = T(2, grad=True)
        run(a, T(2))
        run(a, T(2) + 1)
    """,
    "python_scalars_from_tensors": """
        def f(x):
            y = x * 2
            n = int(x.sum() * 10)
            l = x.tolist()
            if x[0] < 0: y = y + n
            for v in x: y = y + v
            return y, n, l, float(x[0]), bool(x[0]), len(x), x.shape[0] * 2, x.numel(), x.max().item() > 0
        ---
        run(T(2))
        run(T(2) + 3)
        run(T(4))
    """,
    "numpy_interop": """
        def f(x):
            y = x * 2
            a = y.numpy() + 1
            return torch.from_numpy(a) * 2, np.sum(a), np.float32(2) * 3
        ---
        run(T(2))
        run(T(3))
    """,
    "identity_and_types": """
        def f(x, y):
            z = x + 0
            return x is y, z is x, x is x, type(x) is torch.Tensor, isinstance(x, nn.Parameter), x.add(1) is x, x.add_(1) is x, None is None, id(x) == id(y), z
        ---
        a = T(2)
        run(a, a)
        run(a, T(2))
        run(nn.Parameter(T(2), requires_grad=False), a)
    """,
    "resize_and_metadata_mutation": """
        def f(x):
            y = x.clone()
            y.unsqueeze_(0)
            y.t_()
            x.squeeze_()
            return y, x, y.shape
        ---
        run(T(3))
        a = T(1, 3)
        run(a)
        a
        run(a)
    """,
    "inplace_on_leaf_view": """
        def f(x):
            v = x.detach()
            v += 1
            w = v.view(-1)
            w[0] = 9
            return v, x * 2
        ---
        run(T(2, 2))
        run(T(2, 2, grad=True))
    """,
    "class_defined_inside": """
        def f(x, n):
            class L:
                k = n
                def __call__(self, v): return v * self.k
            y = x + 1
            return L()(y), L.__name__
        ---
        run(T(2), 2)
        run(T(2), 3)
    """,
    "class_attribute_store": """
        class C:
            n = 0
            items = []
        def f(x):
            C.n += 1
            C.items.append(C.n)
            return x * C.n, len(C.items)
        ---
        run(T(2))
        run(T(2))
        C.n = 10
        run(T(2))
    """,
    "weird_locals": (
        0,
        """
        def f(x, **kw):
            d = {'x': x}
            exec('log.append(1)')
            y = x * 2
            l = sorted(locals())
            return y, l, eval('x + 1'), globals()['log'] is log
        ---
        run(T(2))
        run(T(2), a=1)
    """,
    ),
    "unused_arguments": """
        def f(x, unused, *rest, opt=None): return x * 2
        ---
        run(T(2), object())
        run(T(2), 5, 6, 7)
        run(T(2), T(3), opt=T(1))
        run(T(2))
        run(x=T(2), unused=1)
        run(T(2), 1, nope=2)
    """,
    "zip_strict_and_unpack_errors": """
        def f(x, l):
            y = x + 1
            a, *b = l
            try: c = list(zip(l, [1], strict=True))
            except ValueError as e: c = str(e)
            try: p, q = l
            except ValueError as e: p = str(e)
            return y, a, b, c, p
        ---
        run(T(2), [1, 2])
        run(T(2), [1])
        run(T(2), [])
        run(T(2), [1, 2, 3])
    """,
    "generators": """
        def gen(x):
            try:
                got = yield x
                while got is not None:
                    x = x + got
                    got = yield x
            finally: log.append('closed')
            return 'ret'
        def outer(x):
            r = yield from gen(x)
            log.append(r)
            yield r
        def f(x):
            g = gen(x)
            a = next(g); b = g.send(1); c = g.send(2)
            g.close()
            o = list(outer(x * 2))
            it = iter([1, 2, 3]); first = next(it)
            return a, b, c, o, first, list(it), next(it, 'end'), sum(v for v in [1, 2])
        ---
        run(T(2))
        run(T(2))
        run(T(3))
    """,
    "generator_returned": """
        def f(x):
            y = x * 2
            def g():
                for i in range(3): yield y + i
            it = g()
            next(it)
            return it, (v + 1 for v in [x])
        ---
        r = run(T(2))
        list(r[0]), list(r[1])
        r = run(T(2))
        list(r[0]), list(r[1])
    """,
    "iterators_outlive": """
        def f(x, l):
            it = iter(l); next(it)
            m = map(lambda v: v + x, l)
            z = zip(l, [1, 2])
            next(z)
            e = enumerate(l)
            return it, m, z, e, x + 1
        ---
        l = [1, 2, 3]
        [list(v) for v in run(T(2), l)[:4]]
        [list(v) for v in run(T(2), l)[:4]]
    """,
}
