# %% [markdown]
# # Tutorial 04: dynamic shapes
#
# Sequences have different lengths, the last batch is smaller, a step counter grows. Compiled code
# does not start anew for each: a size that varies becomes a symbol, and one compilation serves them
# all. This tutorial shows when that happens, how to see it, and how to steer it.
#
# Run this file from the root of the repository: `python tutorials/tutorial_04_dynamic_shapes.py`.

# %%
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent.parent))

import dynamo

torch.manual_seed(0)


# %% [markdown]
# ## The second size
#
# The first call compiles for the sizes that it meets, which gives the fastest code for programs
# that never see another. At the second size of a dimension the function is compiled once more, now
# for any size of it. From then on nothing is compiled. We count by a backend that hands each graph
# on to inductor.


# %%
class Counting:
    """A backend that counts the graphs it hands on."""

    def __init__(self, backend):
        self.backend = backend
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return self.backend(gm, example_inputs)


def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    return F.softmax(scores, dim=-1) @ v


counting = Counting(dynamo.lookup_backend("inductor"))
compiled = dynamo.compile(attention, backend=counting)
for length in [16, 24, 7, 100, 33, 64, 2]:
    q, k, v = (torch.randn(2, length, 8) for _ in range(3))
    torch.testing.assert_close(compiled(q, k, v), attention(q, k, v))
print(f"7 lengths, {len(counting.graphs)} compilations")
assert len(counting.graphs) == 2

# %% [markdown]
# In the graph the size is an input, an integer that comes before the tensors. Sizes that were equal
# share a symbol, as those of `q`, `k` and `v` do here; that is an assumption, which is guarded.

# %%
counting.graphs[1].graph.print_tabular()

# %% [markdown]
# `dynamo.explain` says which sizes vary and why; so does `DYNAMO_LOGS=recompiles` while a program
# runs. An explanation starts from nothing, so we ask for symbols at once.

# %%
report = dynamo.explain(dynamo.compile(attention, dynamic=True))(q, k, v)
print("\n".join(report.symbols))
assert any("q.size(1)" in text for text in report.symbols)

# %% [markdown]
# ## What the program asks, is guarded
#
# Python may look at a size as at any integer: in arithmetic, in a slice, in an `if`. A branch on a
# size adds exactly the condition that it needs, so that each side is compiled once.


# %%
def pool(x):
    half = x.size(0) // 2
    if half > 8:
        return x[:half].mean(0)
    return x.sum(0)


counting = Counting(dynamo.lookup_backend("eager"))
compiled = dynamo.compile(pool, backend=counting, dynamic=True)  # symbols from the first call on
for length in [5, 6, 11, 15, 20, 40, 99]:
    x = torch.randn(length, 3)
    torch.testing.assert_close(compiled(x), pool(x))
assert len(counting.graphs) == 2
report = dynamo.explain(compiled)(torch.randn(50, 3))
print("\n".join(guard for guard in report.out_guards if "size" in guard))

# %% [markdown]
# A symbol stands for the sizes 0 and 1, too. They are compiled for themselves where the code asks
# for them, as broadcasting and `squeeze` may, and 0 where strides depend on it.
#
# ## Numbers that vary
#
# An integer or a float that changes from call to call, such as a step counter or a learning rate,
# becomes an input of the graph too.


# %%
def decayed(x, step, rate):
    return x * (1 - rate) + step


counting = Counting(dynamo.lookup_backend("eager"))
compiled = dynamo.compile(decayed, backend=counting)
for step in range(2, 30):
    x = torch.randn(4)
    torch.testing.assert_close(compiled(x, step, 0.1 / step), decayed(x, step, 0.1 / step))
print(f"28 steps, {len(counting.graphs)} compilations")
assert len(counting.graphs) == 2

# %% [markdown]
# ## Saying it beforehand
#
# `dynamo.mark_dynamic` makes a dimension of a tensor a symbol at once, so that there is no first
# compilation for one size only. With a range, code that needs less has fewer guards. It is also a
# claim: code that works for a single size is an error, which names the line.

# %%
counting = Counting(dynamo.lookup_backend("eager"))
compiled = dynamo.compile(pool, backend=counting)
x = torch.randn(40, 3)
dynamo.mark_dynamic(x, 0, min=20, max=512)
compiled(x)
compiled(torch.randn(333, 3))
assert len(counting.graphs) == 1

x = torch.randn(6, 4)
dynamo.mark_dynamic(x, 0)
try:
    dynamo.compile(lambda x: x.view(2, 3, 4), backend="eager")(x)
except dynamo.errors.ConstraintViolation as error:
    print(error)
else:
    raise AssertionError("six rows, and no others, can be viewed so")

# %% [markdown]
# `dynamo.maybe_mark_dynamic` makes no such claim. `dynamo.mark_static(x, dim)` and
# `compile(dynamic=False)` keep sizes constant: each new one is compiled for itself, up to
# `dynamo.config.recompile_limit` of them.

# %%
counting = Counting(dynamo.lookup_backend("eager"))
compiled = dynamo.compile(lambda x: x.sin(), backend=counting, dynamic=False)
for length in (3, 4, 5):
    compiled(torch.randn(length))
assert len(counting.graphs) == 3

# %% [markdown]
# ## Training
#
# Forward and backward of a model are compiled once for all batch sizes, too.

# %%
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
counting = Counting(dynamo.lookup_backend("inductor"))
compiled = dynamo.compile(model, backend=counting)
for batch in (4, 7, 30, 12):
    x = torch.randn(batch, 8)
    parameters = list(model.parameters())
    expected = torch.autograd.grad(model(x).square().mean(), parameters)
    actual = torch.autograd.grad(compiled(x).square().mean(), parameters)
    torch.testing.assert_close(actual, expected)
print(f"4 batch sizes, {len(counting.graphs)} compilations")
assert len(counting.graphs) == 2
