"""Addresses of tensors: which parameters are one, which arguments share memory, what is aligned."""

PROGRAMS = {
    "tied_weights": (
        3,
        "",
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.names = nn.Embedding(5, 3)
                self.out = nn.Linear(3, 5, bias=False)
                self.out.weight = self.names.weight
            def forward(self, i):
                tied = self.out.weight.data_ptr() == self.names.weight.data_ptr()
                h = self.out(self.names(i))
                return h * 2 if tied else h
        m = Model()
        def f(i): return m(i).sum()
        ---
        run(torch.tensor([1, 2])).backward()
        m.out.weight = nn.Parameter(m.out.weight.detach().clone())
        run(torch.tensor([1, 2])).backward()
        m.out.weight.grad, m.names.weight.grad
        m.out.weight.data = m.names.weight.data
        run(torch.tensor([1, 2]))
    """,
    ),
    "arguments_that_share_memory": (
        3,
        "",
        """
        def f(x, y):
            views = x.view(-1).data_ptr() == x.data_ptr(), x[1:].data_ptr() - x.data_ptr()
            ahead = (y.data_ptr() - x.data_ptr()) // 4 if y.data_ptr() - x.data_ptr() in (0, 4) else None
            return (x + 1 if x.data_ptr() == y.data_ptr() else x - 1), views, ahead
        x = T(8)
        ---
        run(x[:4], x[:4])
        run(x[2:6], x[2:6])
        run(x[2:6], x[3:7])
        run(x[:4], x[1:5])
        run(T(4), T(4).clone())[:2]
        run(T(4) + 1, T(4) + 2)[:2]
    """,
    ),
    "aligned": (
        2,
        "",
        """
        def f(x): return x * 2 if x.data_ptr() % 4 == 0 else x.clone()
        ---
        run(T(4))
        run(T(4)[1:][:3])
        run(T(5))
    """,
    ),
    "unique_parameters": (
        1,
        "",
        """
        a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        b.weight = a.weight
        def f(x):
            seen = {p.data_ptr(): p for m in (a, b) for p in m.parameters()}
            return x + sum(p.sum() for p in seen.values()), len(seen)
        ---
        run(T(2))
        run(T(2))
    """,
    ),
    "moved_in_the_frame": (
        2,
        """
        def f(x, y):
            x.data = y
            same = x.data_ptr() == y.data_ptr()
            z = x * 2
            return z, same, z.data_ptr() == x.data_ptr()
        ---
        run(T(2), T(3))
        run(T(2), T(3))
    """,
    ),
    "views_wherever_their_base_starts": (
        1,
        "",
        """
        def f(x):
            ahead = x[1:].data_ptr() - x.data_ptr(), x.view(2, 2)[1].data_ptr() - x[1:].data_ptr()
            return x + 1, ahead, x.view(-1).data_ptr() == x.data_ptr()
        x = T(8)
        ---
        run(x[:4])
        run(x[2:6])
        run(x[4:])
        run(T(4))
    """,
    ),
    "views_at_a_place_of_the_memory": (
        None,
        """
        def f(x, y):
            v, w = x.as_strided((2,), (1,), 3), y[1:]
            return v + w[:2], v.data_ptr() - x.data_ptr(), w.data_ptr() - v.data_ptr() < 32
        x = T(8)
        ---
        run(x[:4], x[2:6])
        run(x[2:6], x[2:6])
        run(x[2:6], x[4:8])
        run(x[3:6], x[4:8])
    """,
    ),
    "of_intermediates": (
        2,
        """
        def f(x):
            y = x * 2
            return (y + 1).sin() if y.data_ptr() > 16 else y
        kept = []
        ---
        for n in (2, 2, 2): kept.append(run(T(n)))
        kept
    """,
    ),
    "empty": (
        2,
        "",
        """
        def f(x, y): return x.data_ptr() == y.data_ptr(), x.sum() + 1
        ---
        run(T(0), T(0))
        run(T(2), T(0))
    """,
    ),
}
