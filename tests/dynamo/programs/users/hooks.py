"""Hooks of tensors that one operation made together, in the order of registration; hooks of modules and gradients."""

PROGRAMS = {
    "hooks_of_branches": (
        1,
        """
        def named(t, name):
            t.register_hook(lambda g: log.append(name))
            return t
        def branch(x, name): return named(named(x.clone(), "in" + name).sin().clone(), "out" + name)
        def f(x):
            p = branch(x, "1")
            return branch(p, "2") * branch(x, "3") + branch(branch(x, "4") * 2, "5") + p
        ---
        x = T(3, grad=True)
        run(x).sum().backward()
        x.grad, log
    """,
    ),
    "hooks_of_split": (
        2,
        """
        def f(x):
            a, b, c = (x * 2).split(1)
            a.register_hook(lambda g: log.append("a"))
            b.register_hook(lambda g: log.append("b"))
            c.register_hook(lambda g: log.append("c"))
            return (a * b * c).sum()
        ---
        x = T(3, grad=True)
        run(x).backward()
        x.grad, log
    """,
    ),
    "hooks_of_chunk_backwards": (
        2,
        """
        def f(x):
            a, b = torch.chunk(x.sin() * 2, 2)
            b.register_hook(lambda g: (log.append("b"), g * 2)[1])
            a.register_hook(lambda g: log.append(g.sum().item()))
            a.register_hook(lambda g: g * 3)
            return (a * 3).sum() + b.sin().sum()
        ---
        x = T(4, grad=True)
        run(x).backward()
        x.grad, log
        run(x).backward()
        x.grad, log
    """,
    ),
    "hooks_of_unbind": (
        2,
        """
        def f(x):
            rows = (x * 2).unbind()
            for i in (2, 0, 1):
                rows[i].register_hook(lambda g, i=i: log.append(i))
            return sum(r.sum() for r in rows)
        ---
        x = T(3, 2, grad=True)
        run(x).backward()
        log
    """,
    ),
    "hooks_of_one_of_several": (
        1,
        """
        def f(x):
            values, places = (x * 2).topk(2)
            a, b = torch.split(values * 3, 1)
            b.register_hook(lambda g: g * 10)
            return a.sum() + b.sum() * 2, places
        ---
        x = T(4, grad=True)
        run(x)[0].backward()
        x.grad
    """,
    ),
    "hooks_of_split_in_a_callee": (
        2,
        """
        def halves(t):
            left, right = t.chunk(2, -1)
            left.register_hook(lambda g: log.append("left"))
            right.register_hook(lambda g: log.append("right"))
            return left * right.sigmoid()
        def f(x):
            return halves(x * 2).sum()
        ---
        x = T(2, 4, grad=True)
        run(x).backward()
        x.grad, log
    """,
    ),
    "hook_of_a_lone_result": (
        1,
        """
        def f(x):
            values, places = (x * 2).topk(2)
            values.register_hook(lambda g: g * 10)
            return values.sum(), places
        ---
        x = T(4, grad=True)
        run(x)[0].backward()
        x.grad
    """,
    ),
    "hooks_of_one_of_several_that_leave": (
        4,
        """
        def f(x, both):
            values, places = (x * 2).topk(2)
            a, b = torch.split(values * 3, 1)
            b.register_hook(lambda g: log.append("b") or g * 10)
            if both: a.register_hook(lambda g: log.append("a") or g * 7)
            return (a.sum() + b.sum() * 2, places) if both else (a.sin().sum() + b.sum(), a * 1)
        ---
        x = T(4, grad=True)
        run(x, True)[0].backward()
        x.grad
        run(x, False)[0].backward()
        x.grad
        log
    """,
    ),
}
