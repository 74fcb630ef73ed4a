"""Patterns, calls, unpacking, slices, strings, operators."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE, unbroken=True)
PROGRAMS = {
    "match_all": (
        8,
        """
        class P:
            __match_args__ = ('a', 'b')
            def __init__(self, a, b): self.a, self.b = a, b
        class Q(P): pass
        @dataclasses.dataclass
        class D:
            u: int
            v: object = None
        class C(enum.Enum):
            R = 1
            G = 2
        def g(s):
            match s:
                case None: return 'none'
                case True: return 'true'
                case 0 | 1: return 'small'
                case -1.5: return 'float'
                case 'abc' as t: return t
                case b'x': return 'bytes'
                case C.R: return 'red'
                case int(n) if n > 100: return n
                case int() | float() as n: return ('num', n)
                case str(): return 'str'
                case []: return 'empty'
                case [x]: return ('one', x)
                case [1, *rest]: return ('rest', rest)
                case (a, b, *_, c): return (a, b, c)
                case {'k': v, 'm': [p, q], **rest}: return (v, p, q, rest)
                case {'k': v}: return ('k', v)
                case {}: return 'map'
                case Q(a, b=bb): return ('Q', a, bb)
                case P(1, y): return ('P1', y)
                case P(a=aa): return ('P', aa)
                case D(u=1, v=None): return 'd1'
                case D(u, [x, y]): return ('D', u, x, y)
                case torch.Tensor(): return ('tensor', s + 1)
                case _: return 'other'
        def f(x, s): return g(s), x * 2
        ---
        run(T(2), None)
        run(T(2), True)
        run(T(2), 1)
        run(T(2), -1.5)
        run(T(2), 'abc')
        run(T(2), b'x')
        run(T(2), C.R)
        run(T(2), 200)
        run(T(2), 50)
        run(T(2), 'zzz')
        run(T(2), [])
        run(T(2), [5])
        run(T(2), [1, 2, 3])
        run(T(2), (5, 6, 7, 8))
        run(T(2), {'k': 1, 'm': [2, 3], 'z': 4})
        run(T(2), {'k': T(2)})
        run(T(2), {'z': 1})
        run(T(2), Q(1, 2))
        run(T(2), P(1, 2))
        run(T(2), P(3, 2))
        run(T(2), D(1))
        run(T(2), D(2, [3, T(1)]))
        run(T(2), T(3))
        run(T(2), C.G)
        run(T(2), {1, 2})
        """,
    ),
    "match_errors": (
        None,
        """
        class P:
            __match_args__ = ('a',)
            a = 1
        class Z: pass
        def g(s):
            match s:
                case P(1, 2): return 1
                case Z(1): return 2
            return 3
        def f(x, s): return x + 1, g(s)
        ---
        run(T(2), P())
        run(T(2), Z())
        run(T(2), 3)
        """,
    ),
    "match_custom_seq": (
        3,
        """
        import collections.abc
        class S(collections.abc.Sequence):
            def __init__(self, *a): self.a = a
            def __len__(self): return len(self.a)
            def __getitem__(self, i): return self.a[i]
        class M(collections.abc.Mapping):
            def __init__(self, d): self.d = d
            def __len__(self): return len(self.d)
            def __getitem__(self, i): return self.d[i]
            def __iter__(self): return iter(self.d)
        def f(x, s):
            match s:
                case [a, b, *c]: return a + x, b, c
                case {'q': q, **r}: return q * x, r
            match collections.deque([1, 2]):
                case [a, b]: return x + a
        ---
        run(T(2), S(1, 2, 3))
        run(T(2), M({'q': 2, 'r': 3}))
        run(T(2), 0)
        """,
    ),
    "walrus": (
        1,
        """
        def f(x):
            if (n := x.shape[0]) > 1: y = x * n
            out = [z for i in range(4) if (z := i * 2) > 2]
            while (n := n - 1) > -2: y = y + n
            return y, out, z, n
        ---
        run(T(2))
        """,
    ),
    "star_exprs": (
        1,
        """
        def g(*a, **k): return a, k
        def h(a, b, /, c, d=4, *e, f, g=7, **k): return a, b, c, d, e, f, g, k
        def f(x):
            a, *b, c = [x, 1, 2, 3]
            *d, = 'ab'
            (p, q), r = (1, 2), 3
            t = *b, *d
            s = {*b, 5}
            m = {**{'a': 1}, 'b': 2, **{'a': 3}}
            l = [*range(2), *t]
            return g(*b, x, *d, **m, z=1), h(1, 2, 3, f=x), h(1, *[2, 3, 4, 5], f=6, zz=1), t, s, m, l, a + c
        ---
        run(T(2))
        """,
    ),
    "call_errors": (
        8,
        """
        def h(a, b, /, c, d=4, *, f, g=7): return a
        def f(x, n):
            y = x + 1
            try:
                if n == 0: return h(1)
                if n == 1: return h(1, 2, 3, 4, 5, f=1)
                if n == 2: return h(1, b=2, c=3, f=1)
                if n == 3: return h(1, 2, 3, f=1, zz=2)
                if n == 4: return h(1, 2, 3)
                if n == 5: return h(1, 2, 3, c=4, f=1)
                if n == 6: return h(*3)
                if n == 7: return h(**{1: 2})
                if n == 8: return h(1, 2, 3, **{'f': 1}, **{'f': 2})
                if n == 9: return (lambda: 1)(2)
                if n == 10: return h(1, 2, 3, f=1, **3)
            except TypeError as e: return str(e), y
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 3)
        run(T(2), 4)
        run(T(2), 5)
        run(T(2), 6)
        run(T(2), 7)
        run(T(2), 8)
        run(T(2), 9)
        run(T(2), 10)
        """,
    ),
    "unpack_errors": (
        8,
        """
        def f(x, n):
            y = x + 1
            try:
                if n == 0: a, b = [1]
                if n == 1: a, b = 1, 2, 3
                if n == 2: a, b, *c = [1]
                if n == 3: a, b = 5
                if n == 4: a, b = {'x': 1}
                if n == 5: a, b = None
                if n == 6: a, b = 'abc'
                if n == 7: a, b = x
                if n == 8: [*x, *5]
                if n == 9: {**5}
                if n == 10: a, b = x.shape
            except (TypeError, ValueError) as e: return str(e), y
            return y, n
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 3)
        run(T(2), 4)
        run(T(2), 5)
        run(T(2), 6)
        run(T(2), 7)
        run(T(2), 8)
        run(T(2), 9)
        run(T(2), 10)
        """,
    ),
    "chained": (
        1,
        """
        def f(x):
            a = [1 < 2 < 3, 1 < 3 < 2, 1 == 1 != 2, 0 in [0] == True, 1 < x.shape[0] <= 2]
            n = []
            def m(v): n.append(v); return v
            b = m(1) < m(0) < m(5)
            return a, b, n, x + 1, not x.shape, x is not None is not False
        ---
        run(T(2))
        """,
    ),
    "slices": (
        1,
        """
        class S:
            def __getitem__(self, k): return k
            def __setitem__(self, k, v): log.append((k, v))
            def __delitem__(self, k): log.append(('del', k))
        def f(x):
            s = S()
            s[1:2] = 3
            s[::2, ...] = 4
            del s[1:]
            l = list(range(10))
            l[2:4] = 'abc'
            del l[::3]
            i, j = 1, None
            return s[1], s[:], s[1:2, ..., None], s[i:j:-1], l, l[::-1], l[-3:], x[:, 1:], x[..., None, ::2], x[None, -1], x[slice(0, 1)], x[[0, 1], 1:2], 'hello'[i:j], (1, 2, 3)[:-1], slice(1, 5, 2).indices(4), slice(1).stop
        ---
        run(T(2, 4))
        """,
    ),
    "slice_assign_tensor": (
        1,
        """
        def f(x):
            y = x * 2
            y[0, 1:] = 5
            y[..., 0] += 3
            y[:, -1] *= x[:, 0]
            y[1] = torch.zeros(4)
            y[y.shape[0] - 1, None] = 1
            return y
        ---
        run(T(2, 4))
        """,
    ),
    "formatting": (
        None,
        """
        class F:
            def __format__(self, s): return f'F<{s}>'
            def __str__(self): return 'strF'
            def __repr__(self): return 'reprF'
        def f(x):
            n, v, s, w = 42, 3.14159, 'str', 10
            d = {'a': 1}
            return [
                f'{n}', f'{n:>5}', f'{v:.2f}', f'{v!r}', f'{s!r:>{w}}', f'{n:#x} {n:b} {n:,}', f'{v:e}', f'{s!s} {s!a}', f'{x.shape}', f'{x.dtype}', f'{n=}', f'{d["a"]}', f'{{}}',
                '%d %s %r %5.1f %%' % (n, s, s, v), '%(a)s' % d, '%s' % x.shape[0], '%-5d|%05d' % (n, n), '%c' % 'x', '%s' % (None,),
                '{} {1} {0}'.replace('{} ', '').format(n, v), '{a:>4} {b!r}'.format(a=1, b='q'), '{0[a]} {1.real}'.format(d, 3), '{:{}}'.format(s, 6), format(v, '.1f'), str(x.dtype), repr(x.shape), str(x.device),
                f'{F()} {F():abc} {F()!r} {F()!s:>8}', '%s %r' % (F(), F()), str(F()), repr([F()]), f'{None} {True} {1+2j}', f'{[1, s]}', f'{(1,)}', f'{x.shape[0]:03d}', str(type(n)), f'{torch.float32}',
                b'a%db' % 3, b'%s' % b'q', b'abc'[1], b'abc'[1:], b'a' + b'b', bytes([1, 2]), b'ab'.hex(), bytearray(b'xy')[0], b'a,b'.split(b','), 'ab'.encode(), b'ab'.decode(),
            ], x + 1
        ---
        run(T(2))
        """,
    ),
    "format_errors": (
        None,
        """
        def f(x, n):
            y = x + 1
            try:
                if n == 0: '%d' % 'a'
                if n == 1: '%s %s' % (1,)
                if n == 2: '%s' % (1, 2)
                if n == 3: '{}'.format()
                if n == 4: f'{1:zz}'
                if n == 5: '{a}'.format(b=1)
                if n == 6: f'{object():>3}'
            except Exception as e: return type(e), str(e), y
        ---
        run(T(2), 0)
        run(T(2), 1)
        run(T(2), 2)
        run(T(2), 3)
        run(T(2), 4)
        run(T(2), 5)
        run(T(2), 6)
        """,
    ),
    "augassign": (
        2,
        """
        class V:
            def __init__(self, v): self.v = v
            def __iadd__(self, o): self.v = self.v + o; return self
            def __isub__(self, o): return NotImplemented
            def __sub__(self, o): return V(self.v - o)
            def __imatmul__(self, o): self.v = ('mat', o); return 'other'
        g = 1
        def f(x):
            global g
            n = 3
            n += 1; n -= 2; n *= 5; n /= 4; n //= 1; n **= 2; n %= 7
            b = 6
            b <<= 2; b >>= 1; b |= 1; b &= 13; b ^= 2
            l = m = [1]
            l += [2]
            l *= 2
            t = s = (1,)
            t += (2,)
            v = w = V(x)
            v += 1
            v -= 2
            w @= 3
            d = {'a': 1}
            d['a'] += 5
            d |= {'b': 2}
            g += 1
            st = {1}
            st |= {2}; st -= {1}; st ^= {5}
            y = x * 1
            z = y
            y += 1
            y @= torch.eye(2)
            z -= 1
            o = V([1])
            o.v += [2]
            o.v[0] += 10
            s2 = 'a'
            s2 += 'b'; s2 *= 2
            return n, b, l, m, t, s, v.v, w, d, g, st, y, z, o.v, s2
        ---
        run(T(2, 2))
        run(T(2, 2))
        """,
    ),
    "conditional_exprs": (
        1,
        """
        def f(x):
            a = None or x.shape or 3
            b = 0 and 1
            c = (x.dim() > 1 and 'two') or 'one'
            d = not []
            e = x if x.shape else None
            return a, b, c, d, e + 1, [] or {} or (), 1 and 2 and 3
        ---
        run(T(2))
        """,
    ),
    "loops_else": (
        1,
        """
        def f(x):
            out = []
            for i in range(3):
                if i == 5: break
            else: out.append('else')
            while True:
                x = x + 1
                if len(out) > 2: break
                out.append(i)
            else: out.append('never')
            for i, (a, *b) in enumerate([(1, 2, 3), 'xy']): out.append((i, a, b))
            for out[0] in (7, 8): pass
            return out, x
        ---
        run(T(2))
        """,
    ),
    "big_ints_floats": (
        1,
        """
        def f(x):
            return 10 ** 40, -7 // 2, -7 % 3, divmod(-7, 2), 2 ** -1, 7 / 2, 0.1 + 0.2, 1e308 * 10, round(2.5), round(2.675, 2), int(-3.7), abs(-3), 1j * 1j, complex(1, 2).conjugate(), float('nan') != float('nan'), hash(3.0) == hash(3), (5).bit_length(), 3 .__add__(4), x + 1
        ---
        run(T(2))
        """,
    ),
    "attribute_targets": (
        1,
        """
        class O: pass
        def f(x):
            o = O()
            o.a, o.b = x, 1
            for o.i in range(3): pass
            with contextlib.nullcontext(5) as o.c: pass
            [o.l, *o.m] = 1, 2, 3
            d = {}
            d['k'], d['j'] = 1, 2
            o.a += 1
            return vars(o), d
        ---
        run(T(2))
        """,
    ),
    "swap_tricks": (
        1,
        """
        def f(x):
            a = [1, 2, 3]
            i = 0
            i, a[i] = 1, 9
            a[0], a[1] = a[1], a[0]
            b, c = x, x + 1
            b, c = c, b
            return a, i, b, c
        ---
        run(T(2))
        """,
    ),
    "string_methods": (
        1,
        r"""
        def f(x):
            s = 'Hello World'
            return s.lower(), s.split(), s.replace('l', 'L', 1), ','.join(['a', 'b']), s.startswith(('He', 'x')), s.find('o'), s.partition(' '), s[::-1], 'o' in s, s * 2, s.center(15, '*'), s.translate({72: 'J'}), s.encode().hex(), '  a '.strip(), 'a\nb'.splitlines(), s.title(), s.isalpha(), 'x'.zfill(3), sorted(s)[0], max(s), ord('a'), chr(98), s.count('l'), x + len(s)
        ---
        run(T(2))
        """,
    ),
    "builtins_calls": (
        None,
        """
        def f(x):
            return all([1, x.shape]), any([]), list(map(lambda a, b: a + b, [1, 2], [3, 4])), list(filter(None, [0, 1])), list(reversed([1, 2])), sorted([3, 1], key=lambda v: -v), min(3, 1), max([x.shape[0], 1]), sum([[1], [2]], []), list(zip('ab', (1, 2), strict=True)), dict(a=1), callable(f), isinstance(x, (int, torch.Tensor)), getattr(x, 'zz', 5), hasattr(x, 'shape'), id(x) == id(x), type(x).__name__, repr('a'), bool(x.shape), hash('a') == hash('a'), pow(2, 3, 5), iter([1]).__length_hint__(), x + 1
        ---
        run(T(2))
        """,
    ),
}
