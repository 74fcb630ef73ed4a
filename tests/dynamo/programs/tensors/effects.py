"""Mutations, aliases, modules, autograd, random numbers and modes."""

PROGRAMS = {
    "unsafe_parts": (
        2,
        "",
        """
        def f(x):
            a, b = torch.unsafe_chunk(x, 2)
            a.add_(1)
            c, d = x.unsafe_split(2)
            d.mul_(3)
            e, g = torch.unsafe_split_with_sizes(x * 1, [1, 3])
            return a, b, c, d, e, g, x.sum()
        ---
        x = T(4)
        run(x)
        run(T(4, 2)[:, 1])[-1]
    """,
    ),
    "writes_that_change_nothing": """
        def f(x, how):
            if how == "all":
                x[:] = x
                return x.copy_(x)
            if how == "none":
                return x[0:0].fill_(3)
            x.data.copy_(x)
            x.index_fill_(0, torch.tensor([], dtype=torch.long), 1.)
            return x + 1
        ---
        a, b, c = T(3), T(3), T(3)
        run(a, "all")
        run(b, "none")
        run(c, "few")
        [x._version for x in (a, b, c)]
    """,
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
    "checks_in_training": """
        def f(x):
            torch._assert_async(x.sum() > -99)
            torch.linalg.cholesky(x.detach() + 1)  # its result is not used
            return torch.linalg.inv(x) * 2
        ---
        eye = torch.eye(3)
        x = eye.clone().requires_grad_()
        run(x).sum().backward()
        run(eye - 1)
        run((eye - 1).requires_grad_())
        run((eye * 0).requires_grad_())
        run((eye - 100).requires_grad_())
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
    "parts_behind_a_write": """
        def read(part, y):
            try:
                return part * 1, y
            except RuntimeError:
                return "refused", y
        def of_base(x):
            y = x * 2
            a, b = y.split(2, 1)
            y.mul_(3)
            return read(b, y)
        def of_part(x):
            y = x * 2
            a = y.unbind(0)[0]
            with torch.no_grad():
                a.add_(1)
            return read(a, y)
        def of_no_grad(x):
            y = x * 2
            with torch.no_grad():
                v = y[1:]
            y.mul_(3)
            return read(v, y)
        def unread(x):
            y = x * 2
            a, b = y.chunk(2, 1)
            c = a + b
            y.mul_(3)
            return c, y
        def returned(x):
            y = x * 2
            a, b = y.tensor_split(2, 1)
            y.mul_(3)
            return a
        def f(g, x): return g(x)
        def refused(x):
            try: return (run(returned, x) + 1).sum()
            except RuntimeError: return "refused"
        ---
        x = T(3, 4, grad=True)
        run(of_base, x)
        run(of_base, T(3, 4))
        run(of_part, x)
        run(of_part, T(3, 4))
        run(of_no_grad, x)
        run(of_no_grad, T(3, 4))
        run(unread, x)
        refused(x)
        refused(T(3, 4))
        with torch.no_grad(): result = run(returned, x)
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
    "foreach_pow_of_a_number": (
        1,
        """
        def f(x): return torch._foreach_pow(2.0, [x, x + 1])
        ---
        run(T(3))
    """,
    ),
    "contiguous_results_of_transposed_tensors": (
        2,
        """
        F = nn.functional
        def f(x):
            found = [F.logsigmoid(x) * 0, 2.0 ** x, torch.isin(x, 2.0)]
            found += [torch.poisson(x * 0)]
            images = x.expand(2, 4, *x.shape).to(memory_format=torch.channels_last)
            found += [F.logsigmoid(images) * 0]
            volumes = T(2, 3, 2, 2, 2).to(memory_format=torch.channels_last_3d)
            found += [volumes.roll(1, 0), torch.fft.fftshift(volumes)]
            return found, [one.stride() for one in found]
        ---
        run(T(3, 4).t())
        run(T(3, 4, grad=True).t())
    """,
    ),
}
