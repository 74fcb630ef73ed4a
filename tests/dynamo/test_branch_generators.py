"""Generators in sides of branches on data, and in turns of loops: those of the side run in it,
those from outside are left as they are when the side is given up.
"""

from __future__ import annotations

import pytest

import dynamo
from tests.dynamo.differential import check

PROGRAM = """
def gen():
    yield 1
    yield 2
    yield 3
@contextlib.contextmanager
def entered():
    yield 3
ps = [torch.ones(3), torch.ones(3) * 2]
def f(x):
    fresh, begun = gen(), gen()
    next(begun)
    HEAD
        BODY
        x = x * 2
    else:
        x = x * 3
    return x, list(fresh), list(begun)
---
run(T(3))
run(T(5)[2:])
run(T(3))
run(T(5)[2:])
"""
HEADS = {
    "branch": "if x.sum() > 0:",
    "loop": "for i in range(int(x.sum().abs()) % 4):",
}
OWN = [
    "x = x + sum(p.sum() for p in ps)",
    "x = x + sum(gen())",
    "x = torch.cat([x, *(p[:1] for p in ps)])[:3]",
    "x = x + (3 if any(p.dim() > 1 for p in ps) else 2)",
    "for p in (p * 2 for p in ps): x = x + p",
    "with entered() as k: x = x + k",
]
OUTSIDE = [
    "fresh.close()",
    "x = x + next(fresh)",
    "x = x + fresh.send(None)",
    "x = x + sum(fresh)",
    "begun.close()",
    "x = x + next(begun)",
    "try: begun.throw(ValueError)\n        except ValueError: x = x + 1",
    "try: fresh.throw(ValueError)\n        except ValueError: x = x + 1",
    "x = x + next(begun) + next(begun)",
]


def checked(head, body, graphs, branches):
    text = PROGRAM.replace("HEAD", HEADS[head]).replace("BODY", body)
    with dynamo.config.patch(capture_branches=branches, capture_scalar_outputs=True):
        check(text, graphs=graphs, backends=("eager",))


@pytest.mark.parametrize("body", OWN)
def test_own(body):
    checked("branch", body, 1, "all")


@pytest.mark.parametrize("branches", ["all", "fullgraph"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("body", OUTSIDE)
def test_from_outside(head, body, branches):
    checked(head, body, None, branches)


def test_given_up_behind_a_resumption():
    """An item that is sent is not on the stack of a generator whose side is given up."""
    check("""
        def endless():
            while True: yield net
        class Counting(nn.Module):
            calls = 0
            def forward(self, x):
                self.calls += 1
                return x * 2
        net = Counting()
        def f(x):
            items = endless()
            x = next(items)(x)
            if x.sum() > 0:
                if next(items) == next(items):
                    x = x + 10
            return x
        ---
        run(T(4))
        run(T(5))
    """)
