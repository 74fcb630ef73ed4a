"""Checkpoints around compiled functions with effects: the second run may end between them."""

from tests.dynamo.programs import Family

_AROUND = """
        from torch.utils.checkpoint import checkpoint
        class Counter:
            n = 0
        counter = Counter()
        def around(x, **options):
            x.requires_grad_()
            y = checkpoint(run, x, use_reentrant=False, **options) * 2
            before = list(log), counter.n
            y.sum().backward()
            return y, x.grad, before, list(log), counter.n
"""
_STEPS = """
around(T(4, 3))
around(T(4, 3))
around(T(4, 3), early_stop=False)
run(T(4, 3, grad=True))
run(T(4, 3))
"""

FAMILY = Family(steps=_STEPS)

PROGRAMS = {
    "checkpoint_list_grows_between": (
        None,
        _AROUND
        + """
        def f(x):
            log.append("a")
            y = x.sin()
            log.append("b")
            z = y.cos()
            log.append("c")
            return z + 1
    """,
    ),
    "checkpoint_attribute_counts": (
        None,
        _AROUND
        + """
        def f(x):
            counter.n += 1
            y = x.sin()
            counter.n += 10
            return (y * y).cos()
    """,
    ),
    "checkpoint_module_counts": (
        None,
        _AROUND
        + """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(3, 3)
                self.calls = 0
            def forward(self, x):
                self.calls += 1
                return torch.dropout(self.linear(x).relu(), 0.5, True)
        m = Block()
        def f(x): return m(x).sin()
    """,
    ),
    "checkpoint_around_a_graph_break": (
        None,
        _AROUND
        + """
        def f(x):
            log.append("a")
            y = x.sin()
            print(y.sum().item())
            log.append("b")
            return y.cos() + y
    """,
    ),
    "checkpoint_caught_end": (
        None,
        _AROUND
        + """
        def f(x):
            y = x.sin()
            try:
                z = y.cos()
            except Exception:
                log.append("caught")
                raise
            finally:
                log.append("finally")
            return z
    """,
    ),
    "checkpoint_in_a_checkpoint": (
        None,
        _AROUND
        + """
        def f(x):
            log.append("a")
            y = x.sin()
            log.append("b")
            return y.cos()
        def twice(x):
            def inner(x): return checkpoint(run, x.sin(), use_reentrant=False) * 2
            x.requires_grad_()
            y = checkpoint(inner, x, use_reentrant=False)
            y.sum().backward()
            return y, x.grad, list(log)
        ---
        twice(T(4, 3))
        twice(T(4, 3))
    """,
    ),
}
