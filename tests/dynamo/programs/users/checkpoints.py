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
    "checkpoint_in_a_checkpoint_reads_a_variable": (
        None,
        _CHANGED
        + """
        def body(x, use_reentrant):
            for block in blocks:
                x = checkpoint(lambda h: block(h).sin(), x, use_reentrant=use_reentrant)
            return x
        def f(x, use_reentrant=False):
            again = lambda h: body(h, use_reentrant)
            return checkpoint(again, x.cos(), use_reentrant=use_reentrant)
        """
        + _BACKWARDS,
    ),
    "checkpoint_in_a_checkpoint_reads_an_attribute": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            kept.factor = 2
            inner = lambda h: (blocks[0](h) * kept.factor).tanh()
            outer = lambda h: checkpoint(inner, h.sin(), use_reentrant=use_reentrant).exp()
            x = checkpoint(outer, x, use_reentrant=use_reentrant)
            kept.factor = 3
            return x
        """
        + _BACKWARDS,
    ),
    "checkpoint_twice_in_a_function": (
        None,
        _CHANGED
        + """
        def inner(x, use_reentrant):
            return checkpoint(lambda h: kept.block(h).tanh(), x, use_reentrant=use_reentrant)
        def f(x, use_reentrant=False):
            kept.block = blocks[0]
            y = inner(x, use_reentrant)
            kept.block = blocks[1]
            z = inner(x, use_reentrant)
            kept.block = blocks[0]
            return y * z
        """
        + _BACKWARDS,
    ),
    "checkpoint_of_a_list_that_is_changed": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            given = [blocks[0], 2, x.detach()]
            call = lambda h, a: a[0](h).tanh() * a[1] * a[2].sin()
            y = checkpoint(call, x, given, use_reentrant=use_reentrant)
            given[1:] = 3, x.detach() * 2
            return y
        """
        + _BACKWARDS,
    ),
    "checkpoint_writes_to_a_list": (
        None,
        _CHANGED
        + """
        def call(h, seen):
            seen.append(2)
            return blocks[0](h).tanh() * len(seen)
        def f(x, use_reentrant=False):
            seen = [1]
            y = checkpoint(call, x, seen, use_reentrant=use_reentrant)
            return y * len(seen)
        """
        + _BACKWARDS,
    ),
    "checkpoint_reads_a_buffer_that_is_written_by_data": (
        None,
        _CHANGED
        + """
        table = torch.ones(3)
        def f(x, use_reentrant=False):
            call = lambda h: blocks[0](h * table).tanh() * table.detach()
            y = checkpoint(call, x, use_reentrant=use_reentrant)
            table.data.mul_(2)
            return y
        """
        + _BACKWARDS,
    ),
    "checkpoint_reads_a_weight_that_is_written_by_data": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            data = blocks[0].weight.data
            y = checkpoint(lambda h: blocks[0](h).tanh(), x, use_reentrant=use_reentrant)
            data.mul_(0.5)
            return y
        """
        + _BACKWARDS,
    ),
    "checkpoint_reads_a_variable_behind_a_break": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            for block in blocks:
                x = checkpoint(lambda h: block(h).tanh(), x, use_reentrant=use_reentrant)
                torch._dynamo.graph_break()
            return x
        """
        + _BACKWARDS,
    ),
    "checkpoint_reads_an_attribute_behind_a_break": (
        None,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            kept.block = blocks[0]
            x = checkpoint(lambda h: kept.block(h).tanh(), x, use_reentrant=use_reentrant)
            torch._dynamo.graph_break()
            kept.block = blocks[1]
            return x.sin()
        """
        + _BACKWARDS,
    ),
    "checkpoint_before_a_break": (
        3,
        _CHANGED
        + """
        def f(x, use_reentrant=False):
            kept.block = blocks[0]
            x = checkpoint(lambda h: kept.block(h).tanh(), x, use_reentrant=use_reentrant)
            torch._dynamo.graph_break()
            return x.sin()
        """
        + _BACKWARDS,
    ),
}
