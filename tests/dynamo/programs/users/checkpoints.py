"""Checkpoints around compiled functions with effects: the second run may end between them; and
checkpoints in compiled functions that change what is read: the second run reads the new.
"""

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

_CHANGED = """
        from torch.utils.checkpoint import checkpoint
        from types import SimpleNamespace
        blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        kept = SimpleNamespace(block=blocks[0], table={"block": blocks[0]})
        def backward(x, **options):
            blocks.train()
            blocks.zero_grad()
            x.requires_grad_()
            y = run(x, **options)
            if y.requires_grad:
                y.sum().backward()
            return y, x.grad, [p.grad for p in blocks.parameters()]
"""
_BACKWARDS = """
        ---
        backward(T(4, 3))
        backward(T(4, 3))
        backward(T(4, 3), use_reentrant=True)
        backward(T(4, 3), use_reentrant=True)
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
    "checkpoint_reads_a_variable_of_a_loop": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            for block in blocks:
                x = checkpoint(lambda h: block(h).tanh(), x, use_reentrant=use_reentrant)
            return x
        """
        + _BACKWARDS,
    ),
    "checkpoint_reads_an_attribute": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            kept.block = blocks[0]
            x = checkpoint(lambda h: kept.block(h).tanh(), x, use_reentrant=use_reentrant)
            kept.block = blocks[1]
            return x
        """
        + _BACKWARDS,
    ),
    "checkpoint_reads_an_item": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            kept.table["block"] = blocks[0]
            x = checkpoint(lambda h: kept.table["block"](h), x, use_reentrant=use_reentrant).sin()
            x = checkpoint(lambda h: kept.table["block"](h).exp(), x, use_reentrant=use_reentrant)
            kept.table["block"] = blocks[1]
            return x
        """
        + _BACKWARDS,
    ),
    "checkpoint_reads_a_flag": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            def either(h):
                return blocks[0](h).tanh() if blocks[0].training else blocks[1](h).tanh()
            x = checkpoint(either, x, use_reentrant=use_reentrant)
            blocks[0].eval()
            return x
        """
        + _BACKWARDS,
    ),
    "checkpoint_reads_a_tensor_that_is_written": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            t = x.detach() * 1
            x = checkpoint(lambda h: (h + t).tanh() * t.sin(), x, use_reentrant=use_reentrant)
            t.mul_(3)
            return x
        """
        + _BACKWARDS,
    ),
    "checkpoint_backward_in_the_frame": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            used = [blocks[0]]
            y = checkpoint(lambda h: used[0](h).tanh(), x, use_reentrant=use_reentrant)
            used[0] = blocks[1]
            y.sum().backward()
            return y.detach()
        """
        + _BACKWARDS,
    ),
}
