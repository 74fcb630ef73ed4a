"""Programs of the classes that users of torch.compile report as wrong or not captured."""

PROGRAMS = {
    "local_class_closure": (
        2,
        """
        def make(state):
            class H:
                def touch(self):
                    state.append(1); return len(state)
            return H
        L = []
        K = make(L)
        def f(x):
            h = K()
            n = h.touch()
            class J:
                def go(self): L.append(n); L[0] += 1
            J().go()
            return x + n
        ---
        run(T(3))
        run(T(3))
        L
    """,
    ),
    "growing_list_gen": (
        2,
        """
        def f(x):
            vals = [x.sum()]
            def g():
                for i in vals:
                    if len(vals) < 3: vals.append(i + 1)
                    yield i
            return torch.stack(list(g())).sum()
        ---
        run(T(3))
        run(T(4))
    """,
    ),
    "cache_replaced": (
        1,
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__(); self.cache = torch.zeros(2)
            def forward(self, x, p):
                self.cache[p] = x; return self.cache
        m = M()
        def f(x, p): return m(x, p)
        ---
        run(torch.tensor([2.]), torch.tensor([0]))
        m.cache = torch.zeros(2)
        run(torch.tensor([1.]), torch.tensor([1]))
        m.cache
    """,
    ),
    "identity_flow": (
        3,
        """
        class S:
            def __init__(self): self.n = 0
        a = S(); b = S()
        def f(x, p, q):
            p.n += 1
            if p is q: q.n += 10; return x + q.n
            return x - q.n
        ---
        run(T(3), a, b)
        run(T(3), a, a)
        run(T(3), b, a)
        (a.n, b.n)
    """,
    ),
    "nested_list": (
        1,
        """
        def f(x):
            d = [[1,2,3],[4,5,6]]
            for i in range(3):
                if i == 0: d[0][i] = x
                else: d[0][i] = d[0][i-1] + 1
            return d[0][-1], d
        ---
        run(T(3))
    """,
    ),
    "req_grad_dead": (
        1,
        """
        def f(x):
            r = x.clone().detach().requires_grad_(True)
            _ = r.ndim + 1
            s = torch.sqrt(torch.abs(r)).permute(1, 2, 0)
            return s, r
        ---
        r = run(T(2, 3, 2))
        r[0].sum().backward()
        r[1].grad
    """,
    ),
    "mutated_alias_grad": (
        1,
        """
        def f(y): y.mul_(2)
        ---
        x = torch.ones(4, requires_grad=True)
        c = x.clone()
        v = c.view(2, 2)
        run(v)
        c.sum().backward()
        x.grad
        v
    """,
    ),
    "nograd_leaf": (
        1,
        """
        def f(p, g):
            with torch.no_grad():
                p.add_(g, alpha=-0.1); p.grad = None
            return (p * 2).sum()
        ---
        p = T(3, grad=True)
        l = run(p, T(3))
        l.backward()
        run(p, T(3))
        p
    """,
    ),
    "two_models": (
        1,
        """
        torch.manual_seed(1)
        a = nn.Linear(3, 3); b = nn.Linear(3, 1)
        def f(x, t):
            with torch.no_grad(): h = a(x)
            h.requires_grad_()
            ok = h.requires_grad
            return nn.functional.mse_loss(b(h), t), h, ok
        ---
        r = run(T(2,3), T(2,1))
        r[0].backward()
        r[1].grad
        [p.grad for p in a.parameters()], [p.grad for p in b.parameters()]
    """,
    ),
    "inplace_perm_index_add": (
        1,
        """
        def f(x, a, i):
            y = x.permute(1, 0); y.index_add_(0, i, a); y[0] = 3; y.t()[1].zero_(); return y
        ---
        x = torch.ones(3, 5)
        run(x, T(3, 3), torch.tensor([0, 4, 2]))
        x
    """,
    ),
    "shared_out": (
        2,
        """
        def f(x):
            y = x + 1; return y, y, y.view(-1), x, x.detach(), x[0]
        ---
        r = run(T(2, 2))
        r[2].zero_()
        r
        x = T(2, 2, grad=True)
        r = run(x)
        r[3] is x
    """,
    ),
    "nt_sub": (
        2,
        """
        class Base(collections.namedtuple("Base", ["v", "w"])):
            def __new__(cls, v, w=2): return super().__new__(cls, v, w)
            @property
            def total(self): return self.v + self.w
        def f(x):
            b = Base(x); c = b._replace(w=5); return c.total, b._asdict(), c, Base._fields, Base._make([x, 1])
        ---
        run(T(2))
        run(T(3))
    """,
    ),
}
