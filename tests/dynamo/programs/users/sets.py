"""Loops over sets, whose order is that of the addresses of their members."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "tensors": (
        2,
        """
        def f(x, y):
            s = set()
            s.add(x); s.add(y); s.add(x)
            t = 0
            for v in s:
                t = t + v
            return t * 2, len(s)
        ---
        a, b = T(3), T(3)
        run(a, b)
        run(a, a)
    """,
    ),
    "intermediates": (
        1,
        """
        def f(x):
            a = x + 1; b = x * 2
            s = {a, b}
            out = sum(v.sum() for v in s)
            return out, len(s), a in s
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "tensors_in_order": (
        1,
        """
        def f(x, y):
            s = {x, y}
            return [v + 1 for v in s]
        ---
        a, b = T(3), T(3) + 5
        len(run(a, b))
    """,
    ),
    "parameters": (
        1,
        """
        m = nn.Linear(3, 3)
        def f(x):
            ps = set(m.parameters())
            rest = [p for p in m.parameters() if p in ps]
            return m(x), len(rest), m.weight in ps
        ---
        run(T(3))
        run(T(3))
    """,
    ),
    "frozen": (
        2,
        """
        def f(x, y):
            t = 0
            for v in frozenset([x, y]):
                t = t + v * 3
            return t * 2
        ---
        a, b = torch.ones(3), torch.ones(3) + 1
        run(a, b)
        run(b, a)
        run(a * 2, b * 3)
        run(a, a)
    """,
    ),
    "grows_in_the_loop": (
        None,
        """
        def f(x, y, z):
            s, t = {x, y}, x * 0
            for v in s:
                t = t + v * 3
                s.add(z)
            return t
        ---
        a, b, c = torch.ones(3), torch.ones(3) + 1, torch.ones(3) + 2
        run(a, b, c)
        run(a, b, a)
        run(a, b, b)
    """,
    ),
    "exchanged_in_the_loop": (
        None,
        """
        def f(x, y, z):
            s, t = {x, y}, []
            for v in s:
                t.append(v * 3)
                if len(t) == 1:
                    s.discard(v)
                    s.add(z)
            return len(t), z in s
        ---
        1 <= run(torch.ones(3), torch.ones(3) + 1, torch.ones(3) + 2)[0] <= 3
    """,
    ),
    "broken_in_the_loop": (
        2,
        """
        import gc
        def f(x, y):
            s, t = {x, y}, x * 0
            for v in s:
                t = t + v * 3
                gc.get_count()
            return t
        ---
        a, b = torch.ones(3), torch.ones(3) + 1
        run(a, b)
        run(b, a)
    """,
    ),
    "asked_before_the_loop": (
        None,
        """
        def f(x, y):
            it = iter({x, y})
            u = next(it)
            w = [v * 2 for v in it]
            return (u + w[0] / 2).sum(), len(w), next(it, None)
        ---
        a, b = torch.ones(3), torch.ones(3) + 1
        run(a, b)
        run(b, a)
    """,
    ),
    "iterator_from_outside": (
        None,
        """
        def f(x, it):
            t = x * 0
            for v in it:
                t = t + v
            return t
        ---
        s = {1, 2, 5}
        it = iter(s)
        run(T(3), it)
        run(T(3), iter(s))
        it = iter(s)
        _ = next(it)
        run(T(3), it)
        run(T(3), it)
    """,
    ),
}
