"""Mutations, aliases, modules, autograd, random numbers and modes: eager and compiled agree."""

from __future__ import annotations

import pytest

from tests.dynamo.differential import check

PROGRAMS = {
    "inplace_argument": """
        def f(x, y):
            x.add_(y)
            x[0] = 5
            y = y * x
            x.mul_(y)
            return x, y
        ---
        a, b = T(3), T(3)
        run(a, b)
        run(a, b)
        run(a, a)
        run(a[:1], b[:1])
    """,
    "views_of_arguments": """
        def f(x):
            v = x[1:]
            w = x.t() if x.dim() == 2 else x
            v += 1
            return v, w, x, x.view(-1), x.detach()
        ---
        a = T(3, 2)
        r = run(a)
        r[0].add_(10)
        run(a)
        run(T(4))
    """,
    "returned_twice": """
        def f(x):
            y = x + 1
            z = y[0]
            return y, y, [y, x], {'x': x, 'z': z}, z
        ---
        r = run(T(3))
        r = run(T(2, 2))
        r[0].add_(1)
    """,
    "aliases_between_outputs": """
        def f(x):
            y = x * 2
            a, b = y.chunk(2)
            a.add_(1)
            return a, b, y, y.view(2, -1), b[0]
        ---
        r = run(T(4))
        r[2].zero_()
        run(T(6))
    """,
    "list_mutations": """
        def f(x, l):
            l.append(x + 1)
            l.insert(0, x)
            l.extend([1, 2])
            l += [x * 2]
            del l[1]
            l[0] = l[-1]
            l.reverse()
            y = l.pop()
            l.sort(key=lambda v: 0)
            return y, l, len(l), l[:2], l.index(2), l * 2
        ---
        l = []
        run(T(2), l)
        run(T(2), l)
        run(T(2), [7])
        l2 = l; run(T(2), l)
    """,
    "list_slices": """
        def f(x, l):
            l[1:3] = [x, x + 1, 'n']
            l[::2] = [x * 3] * len(l[::2])
            del l[-1:]
            m = l
            m = m + [1]
            l.clear() if len(l) > 4 else None
            return m, l, m is l
        ---
        run(T(2), [1, 2, 3, 4])
        run(T(2), [1, 2, 3])
        run(T(2), [1])
        run(T(2), list(range(7)))
    """,
    "dict_mutations": """
        def f(x, d):
            d['n'] = x + 1
            d.setdefault('s', []).append(x)
            d.update(a=1, b=x)
            d.pop('old', None)
            d |= {'z': 1}
            k = list(d)
            del d['a']
            d['a'] = 2
            v = d.popitem()
            return k, v, d, 'b' in d, dict(d), {**d, 'y': 1}, d.keys() | {'q'}, list(d.items())[0]
        ---
        d = {'old': 1}
        run(T(2), d)
        run(T(2), d)
        run(T(2), {'s': [1]})
        run(T(2), collections.OrderedDict(b=1, a=2))
    """,
    "dict_changed_during_iteration": """
        def f(x, d):
            x = x * 2
            for k in d: d[k + 'x'] = x
            return x
        ---
        d = {'a': 1}
        run(T(2), d)
        run(T(2), {})
    """,
    "list_changed_during_iteration": """
        def f(x, l):
            for v in l:
                x = x + v
                if len(l) < 6: l.append(v + 1)
            return x, l
        ---
        run(T(2), [1])
        run(T(2), [1, 2])
        run(T(2), [])
    """,
    "sets_and_deques": """
        def f(x, s, d):
            s.add(3); s.discard(1); s |= {9}
            d.append(x + 1); d.appendleft(0); d.rotate(1)
            return len(s), 3 in s, s & {3}, d[0], list(d), s - {3}, sorted(s)
        ---
        s, d = {1}, collections.deque(maxlen=3)
        run(T(2), s, d)
        run(T(2), s, d)
        run(T(2), set(), collections.deque([1, 2]))
    """,
    "defaultdict_counter": """
        def f(x, d):
            d['a'].append(x + 1)
            c = collections.Counter('abca')
            c['z'] += 1
            return d, c, c.most_common(1)
        ---
        d = collections.defaultdict(list)
        run(T(2), d)
        run(T(2), d)
    """,
    "attribute_stores": """
        class A: pass
        class P:
            def __init__(self): self._v = 1
            @property
            def v(self): return self._v
            @v.setter
            def v(self, n):
                log.append(('set', n))
                self._v = n
            def __setattr__(self, k, v):
                log.append(k)
                object.__setattr__(self, k, v)
        a, p = A(), P()
        def f(x):
            a.n = getattr(a, 'n', 0) + 1
            a.x = x + a.n
            a.self = a
            p.v = p.v + 1
            p.w = a
            setattr(a, 'dyn' + str(a.n), p)
            if a.n > 2: del a.x
            return a, p.v, vars(p).get('w') is a
        ---
        run(T(2))
        run(T(2))
        run(T(2))
        run(T(2))
    """,
    "new_objects_graph": """
        class N:
            def __init__(self, v, nxt=None): self.v, self.nxt = v, nxt
        def f(x, n):
            head = None
            for i in range(n): head = N(x + i, head)
            tail = head
            while tail.nxt is not None: tail = tail.nxt
            tail.nxt = head
            l = [head]; l.append(l)
            return head, l
        ---
        run(T(2), 1)
        run(T(2), 3)
    """,
    "nested_functions_returned": """
        def f(x, k=2):
            n = k
            def inc(by=1, *, tag='t'):
                nonlocal n
                n += by
                return x * n, tag
            inc.note = 'a'
            y = inc()
            return inc, y, lambda: n
        ---
        r = run(T(2))
        r[0]()
        r[0](5)
        r[2]()
        r = run(T(2), 7)
        r[2]()
    """,
    "dataclass_fields": """
        @dataclasses.dataclass
        class D:
            a: object
            b: list = dataclasses.field(default_factory=list)
            def total(self): return self.a + sum(self.b)
        @dataclasses.dataclass(frozen=True)
        class F:
            a: int = 1
        def f(x, d):
            d.b.append(len(d.b))
            d.a = d.a * 2
            e = dataclasses.replace(d, a=x)
            try: F().a = 3
            except dataclasses.FrozenInstanceError as err: log.append(str(err))
            return e, d.total(), e.total(), F(2) == F(2), F()
        ---
        d = D(T(2))
        run(T(2), d)
        run(T(2), d)
        run(T(2), D(1.5, [1, 2]))
    """,
    "module_training": """
        m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5))
        with torch.no_grad(): [p.copy_(T(*p.shape)) for p in m.parameters()]
        def f(x): return m(x)
        ---
        run(T(5, 3))
        run(T(5, 3)).sum().backward()
        m.eval() and None
        run(T(5, 3))
        m[1].train() and None
        run(T(2, 3))
        m.zero_grad()
        m.requires_grad_(False) and None
        run(T(5, 3))
        m[0] = nn.Identity()
        run(T(5, 4))
    """,
    "module_parameter_changes": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(T(3))
                self.register_buffer('b', T(3))
                self.scale = 2
                self.sub = nn.Identity()
            def forward(self, x): return self.sub(x * self.w + self.b) * self.scale
        m = M()
        def f(x): return m(x)
        ---
        run(T(3))
        m.scale = 3
        run(T(3))
        m.w = nn.Parameter(T(3) * 10)
        run(T(3))
        m.b = T(3) * 7
        run(T(3))
        m.b.add_(1)
        m.w.data = T(3) * -1
        run(T(3))
        m.sub = nn.ReLU()
        run(T(3))
        m.w.requires_grad_(False) is None
        run(T(3))
        m.w = None
        run(T(3))
        del m.w
        run(T(3))
        m.w = 5
        run(T(3))
        m.b = None
        run(T(3))
        m.double() and None
        m.w, m.b = T(3), T(3)
        run(T(3))
        m.forward = lambda x: x * 100
        run(T(3))
        M.forward = lambda self, x: x
        del m.forward
        run(T(3))
    """,
    "module_hooks": """
        m = nn.Linear(3, 3)
        with torch.no_grad(): [p.copy_(T(*p.shape)) for p in m.parameters()]
        def pre(mod, args):
            log.append('pre')
            return (args[0] + 1,)
        def post(mod, args, out):
            log.append('post')
            return out * 2
        def kw(mod, args, kwargs, out): log.append(sorted(kwargs))
        def f(x): return m(x) + 1
        ---
        run(T(2, 3))
        h = m.register_forward_pre_hook(pre)
        run(T(2, 3))
        g = m.register_forward_hook(post)
        run(T(2, 3))
        h.remove()
        run(T(2, 3))
        k = m.register_forward_hook(kw, with_kwargs=True)
        run(T(2, 3))
        g.remove(); k.remove()
        run(T(2, 3))
        q = m.register_full_backward_hook(lambda mod, gi, go: log.append('back'))
        run(T(2, 3)).sum().backward()
        q.remove()
        G = nn.modules.module.register_module_forward_hook(lambda mod, a, o: log.append('global'))
        run(T(2, 3))
        G.remove()
        run(T(2, 3))
    """,
    "module_containers": """
        ml = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        md = nn.ModuleDict({'a': nn.Tanh()})
        pl = nn.ParameterList([nn.Parameter(T(3))])
        with torch.no_grad(): [p.copy_(T(*p.shape)) for p in ml.parameters()]
        def f(x):
            for i, m in enumerate(ml): x = m(x) + i
            for k, m in md.items(): x = m(x) + len(k)
            for p in pl: x = x * p
            return x, len(ml), ml[-1] is ml[1], 'a' in md, [n for n, _ in ml.named_parameters()], ml[0].weight.shape
        ---
        run(T(2, 3))
        ml.append(nn.Sigmoid()) and None
        run(T(2, 3))
        md['b'] = nn.ReLU()
        run(T(2, 3))
        pl.append(nn.Parameter(T(3) * 2)) and None
        run(T(2, 3))
        ml[0] = nn.Identity()
        run(T(2, 3))
        del md['a']
        run(T(2, 3))
    """,
    "module_as_state": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.n = 0
                self.cache = {}
                self.register_buffer('total', torch.zeros(3))
                self.hist = []
            def forward(self, x):
                self.n += 1
                self.cache[self.n] = x
                self.total += x
                self.hist.append(self.total.clone())
                self.last = x * 2
                if self.n == 3: self.total = self.total * 0
                return self.last + self.total
        m = M()
        def f(x): return m(x)
        ---
        run(T(3))
        run(T(3))
        run(T(3))
        run(T(3))
        m.n = 0
        run(T(3))
    """,
    "gradients": """
        w = T(3, grad=True)
        def f(x, k):
            y = x * w
            z = y.detach() + y * k
            with torch.no_grad(): u = y * 2
            return z.sin(), u, y
        ---
        x = T(3, grad=True)
        run(x, 2)[0].sum().backward()
        run(x, 2)[0].sum().backward()
        run(x, 3)[0].sum().backward()
        run(x.detach(), 3)[0].sum().backward()
        r = run(x, 3)
        torch.autograd.grad(r[0].sum() + r[2].sum(), [x, w])
        x.grad = None
        run(x, 2)[0].sum().backward()
    """,
    "backward_inside": """
        w = T(3, grad=True)
        def f(x):
            loss = (x * w).sum()
            loss.backward()
            g = w.grad * 2
            with torch.no_grad(): w.sub_(0.1 * w.grad)
            w.grad = None
            return loss.detach(), g
        ---
        run(T(3))
        run(T(3))
        run(T(3) + 1)
    """,
    "optimizer_step": """
        lin = nn.Linear(3, 1)
        with torch.no_grad(): [p.copy_(T(*p.shape)) for p in lin.parameters()]
        opt = torch.optim.SGD(lin.parameters(), lr=0.1, momentum=0.9)
        def f(x):
            opt.zero_grad()
            loss = lin(x).pow(2).sum()
            loss.backward()
            opt.step()
            return loss
        ---
        run(T(2, 3))
        run(T(2, 3))
        opt.param_groups[0]['lr'] = 0.5
        run(T(2, 3))
    """,
    "requires_grad_inside": """
        def f(x):
            y = (x * 2).requires_grad_()
            z = torch.zeros(3, requires_grad=True) + y
            g, = torch.autograd.grad(z.sum(), y)
            return y, g, z.requires_grad, x.requires_grad
        ---
        run(T(3))
        run(T(3))
    """,
    "random_numbers": """
        import random
        def f(x):
            a = torch.rand(3) + x
            b = torch.nn.functional.dropout(x, 0.5)
            c = torch.randn_like(x)
            return a, b, c, random.random(), torch.randint(0, 10, (2,)), torch.randperm(4)
        ---
        run(T(3))
        run(T(3))
        torch.manual_seed(3) and None
        run(T(3))
        run(T(4)[:3])
    """,
    "seed_inside": """
        def f(x):
            torch.manual_seed(5)
            return torch.rand(2) + x[:2]
        ---
        run(T(3))
        run(T(3))
    """,
    "grad_mode_left": """
        def f(x, on):
            y = x * 2
            torch.set_grad_enabled(on)
            z = x * 3
            return y.requires_grad, z.requires_grad, z
        ---
        run(T(3, grad=True), False)
        run(T(3, grad=True), False)
        run(T(3, grad=True), True)
    """,
    "default_dtype_left": """
        def f(x):
            torch.set_default_dtype(torch.float64)
            return torch.ones(2), x + 1
        ---
        run(T(3))
        run(T(3))
    """,
    "grad_mode_and_exception": """
        def f(x, n):
            with torch.no_grad():
                y = x * 2
                if n: raise ValueError(n)
            return y
        ---
        run(T(3, grad=True), 0)
        run(T(3, grad=True), 1)
        torch.is_grad_enabled()
        run(T(3, grad=True), 1)
    """,
    "decorated_modes": """
        @torch.no_grad()
        def g(x): return x * 2, torch.is_grad_enabled()
        @torch.enable_grad()
        def h(x): return g(x), x * 3
        def f(x): return g(x), h(x), x * 4
        ---
        run(T(3, grad=True))
        with torch.no_grad(): r = run(T(3, grad=True))
        run(T(3, grad=True))
    """,
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
        import numpy as np
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
    "weird_locals": """
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


# The whole frame runs eagerly.
EAGER = {"weird_locals"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(PROGRAMS[name], graphs=name not in EAGER)
