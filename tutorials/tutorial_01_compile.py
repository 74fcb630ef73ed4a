# %% [markdown]
# # Tutorial 01: compiling functions and models
#
# `dynamo.compile` makes PyTorch code faster with one line. It reads the Python bytecode of your
# function while it runs, collects the tensor operations into graphs, and turns each graph into
# fused machine code. What it cannot capture runs as ordinary Python, and `dynamo.explain` says
# where and why.
#
# Run this file from the root of the repository: `python tutorials/tutorial_01_compile.py`.

# %%
import statistics
import sys
import time
import traceback
from pathlib import Path

import scipy.fft
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

import dynamo
from tutorials.models import densenet121

torch.manual_seed(0)

# %% [markdown]
# ## A function
#
# Pass a function to `dynamo.compile` and call what comes back. Nothing is compiled before the first
# call.


# %%
def foo(x, y):
    a = torch.sin(x)
    b = torch.cos(y)
    return a + b


opt_foo1 = dynamo.compile(foo)
x, y = torch.randn(10, 10), torch.randn(10, 10)
print(opt_foo1(x, y)[0, :4])
torch.testing.assert_close(opt_foo1(x, y), foo(x, y))

# %% [markdown]
# ## A decorator


# %%
@dynamo.compile
def opt_foo2(x, y):
    a = torch.sin(x)
    b = torch.cos(y)
    return a + b


torch.testing.assert_close(opt_foo2(x, y), foo(x, y))

# %% [markdown]
# ## A module
#
# The compiled module stands in for the original: same parameters, same `state_dict` keys, same
# class.


# %%
class MyModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(100, 10)

    def forward(self, x):
        return torch.nn.functional.relu(self.lin(x))


mod = MyModule()
opt_mod = dynamo.compile(mod)
batch = torch.randn(10, 100)
torch.testing.assert_close(opt_mod(batch), mod(batch))
assert isinstance(opt_mod, MyModule)
assert list(opt_mod.state_dict()) == ["lin.weight", "lin.bias"]

# %% [markdown]
# ## A real model
#
# DenseNet-121 with random weights, for inference. The first call compiles; later calls reuse what
# was compiled. We check the values and compare the medians of a few calls. (Training is the subject
# of a tutorial of its own.)


# %%
def timed(fn, *args):
    """The result of fn(*args) and the seconds it took."""
    start = time.perf_counter()
    result = fn(*args)
    return result, time.perf_counter() - start


def generate_data(b):
    return torch.randn(b, 3, 128, 128)


N_ITERS = 3
model = densenet121().eval()
model_opt = dynamo.compile(model)
inp = generate_data(4)
with torch.no_grad():
    expected, eager_first = timed(model, inp)
    actual, compile_first = timed(model_opt, inp)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    print(f"first call: eager {eager_first:.3f} s, compiled {compile_first:.3f} s")
    eager_times, compile_times = [], []
    for _ in range(N_ITERS):
        inp = generate_data(4)
        expected, eager_time = timed(model, inp)
        actual, compile_time = timed(model_opt, inp)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
        eager_times.append(eager_time)
        compile_times.append(compile_time)
eager_median, compile_median = statistics.median(eager_times), statistics.median(compile_times)
print(
    f"median: eager {eager_median * 1000:.1f} ms, compiled {compile_median * 1000:.1f} ms, "
    f"speedup {eager_median / compile_median:.2f}x"
)

# %% [markdown]
# ## Control flow that depends on data
#
# A tracer would keep only the path that it saw. Here the graph holds both sides of the `if`, as a
# conditional of which one side is run. Where a side does more than compute tensors, the graph
# breaks: Python decides, and each side is captured when it is first taken (see below).


# %%
def f1(x, y):
    if x.sum() < 0:
        return -y
    return y


def test_fns(fn1, fn2, args):
    """Whether both functions return the same."""
    return torch.allclose(fn1(*args), fn2(*args))


inp1, inp2 = torch.randn(5, 5), torch.randn(5, 5)
compile_f1 = dynamo.compile(f1)
assert test_fns(f1, compile_f1, (inp1, inp2))
assert test_fns(f1, compile_f1, (-inp1, inp2))

# %% [markdown]
# ## Arguments of any type
#
# Here `y` is a Python int. It becomes a constant that is guarded; the second value compiles again,
# with a symbol in its place that serves all others.


# %%
def f2(x, y):
    return x + y


compile_f2 = dynamo.compile(f2)
assert test_fns(f2, compile_f2, (inp1, 3))
assert test_fns(f2, compile_f2, (inp1, 4))
assert test_fns(f2, compile_f2, (inp1, 5))

# %% [markdown]
# ## Calls that have nothing to do with PyTorch
#
# The call of SciPy runs as it is, between two graphs. Its result is never frozen.


# %%
def f3(x):
    x = x * 2
    x = scipy.fft.dct(x.numpy())
    x = torch.from_numpy(x)
    x = x * 2
    return x


compile_f3 = dynamo.compile(f3)
assert test_fns(f3, compile_f3, (inp1,))
assert test_fns(f3, compile_f3, (inp2,))

# %% [markdown]
# ## Looking at the graphs
#
# A backend is any function `(gm, example_inputs) -> callable`. This one prints the graph as a table
# and runs it op by op: DenseNet-121 is one graph. (A backend whose code names torch.fx,
# or whose `gm` is annotated as torch.fx.GraphModule, is given such a graph.)

# %%
graph_count = 0


def custom_backend(gm, example_inputs):
    global graph_count
    graph_count += 1
    print("custom backend called with graph:")
    gm.graph.print_tabular()
    return gm.forward


opt_model = dynamo.compile(model, backend=custom_backend)
with torch.no_grad():
    opt_model(generate_data(1))
assert graph_count == 1


# %% [markdown]
# The function `bar` has a branch that depends on data. Both sides of it compute nothing but
# tensors, so its graph holds them as a conditional, of which one side is run. (With
# `dynamo.config.capture_branches` set to "none", such branches break the graph.)


# %%
def bar(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


graph_count = 0
opt_bar = dynamo.compile(bar, backend=custom_backend)
inp1, inp2 = torch.randn(10), torch.randn(10)
assert test_fns(bar, opt_bar, (inp1, inp2))
assert test_fns(bar, opt_bar, (inp1, -inp2))
assert graph_count == 1

# %% [markdown]
# A side that prints is none that a graph can hold. `loud` becomes three graphs: what comes before
# the branch, and one for each side of it.


# %%
def loud(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        print("negative")
        b = b * -1
    return x * b


graph_count = 0
opt_loud = dynamo.compile(loud, backend=custom_backend)
assert test_fns(loud, opt_loud, (inp1, inp2))
assert test_fns(loud, opt_loud, (inp1, -inp2))
assert graph_count == 3

# %% [markdown]
# ## Where graphs break, and why
#
# `dynamo.explain` runs a function once and reports: graphs, operations, breaks with the line of
# your code and a hint, guards, compile times. What was compiled before stays as it is.

# %%
report = dynamo.explain(loud)(torch.randn(10), torch.ones(10))
print(report)
assert report.graph_count == 2
assert report.graph_break_count == 1
assert report.break_reasons[0].line == "if b.sum() < 0:"
print("guards:")
for guard in report.out_guards:
    print(" ", guard)

# %% [markdown]
# With `fullgraph=True` the whole function is one graph, or an error that says the same as the
# report.

# %%
opt_bar = dynamo.compile(bar, fullgraph=True)
assert test_fns(bar, opt_bar, (inp1, inp2))
assert test_fns(bar, opt_bar, (inp1, -inp2))

try:
    dynamo.compile(loud, fullgraph=True)(torch.randn(10), torch.randn(10))
except dynamo.errors.Unsupported:
    traceback.print_exc(limit=-1, file=sys.stdout)
else:
    raise AssertionError("loud cannot be one graph")

# %% [markdown]
# ## One whole graph to take away
#
# `dynamo.export` returns the single graph of a model, with its parameters as attributes, or raises
# an error that names the line where the graph would break.

# %%
mod.eval()
with torch.no_grad():
    exported = dynamo.export(mod)(batch)
    print(exported)
    torch.testing.assert_close(exported(batch), mod(batch))
    (out,) = exported.graph_module(batch)
    torch.testing.assert_close(out, mod(batch))
