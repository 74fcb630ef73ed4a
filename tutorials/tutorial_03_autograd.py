# %% [markdown]
# # Tutorial 03: autograd under compile
#
# A compiled function is differentiated like any other: its backward is compiled too. This tutorial
# goes through what PyTorch's autograd offers, and shows that each of its tools works on compiled
# functions, and inside them.
#
# Run this file from the root of the repository: `python tutorials/tutorial_03_autograd.py`.

# %%
import sys
import warnings
from pathlib import Path

import torch
from torch.autograd import Function

sys.path.insert(0, str(Path(__file__).parent.parent))

import dynamo

torch.manual_seed(0)

# %% [markdown]
# ## backward
#
# Gradients arrive in the leaves, as without compilation. The profiler shows the compiled forward
# and backward under the name of the function.


# %%
@dynamo.compile
def product(a, b):
    return (a * b).exp()


A = torch.tensor(2.0, requires_grad=True)
B = torch.tensor(0.5, requires_grad=True)
product(A, B).backward()
print(A.grad, B.grad)  # b * exp(a * b), a * exp(a * b)
torch.testing.assert_close(A.grad, 0.5 * torch.tensor(1.0).exp())

with torch.autograd.profiler.profile() as profile:
    product(A, B).backward()
names = [event.key for event in profile.key_averages() if "framegraph" in event.key]
print(names)
assert "framegraph::product" in names

# %% [markdown]
# ## Functions with a backward of their own
#
# A `torch.autograd.Function` is captured with its backward, as long as that only computes tensors
# from what forward left in `ctx`. (One that does more, say prints, runs as it is.)


# %%
class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class GradCoeff(Function):
    """Hands its input on, and scales the gradient on its way back."""

    @staticmethod
    def forward(ctx, x, coeff):
        ctx.coeff = coeff
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.coeff * grad_output, None


@dynamo.compile(fullgraph=True)
def reversed_gradient(x):
    return GradCoeff.apply(Exp.apply(x), -0.1)


x = torch.tensor([0.0, 1.0], requires_grad=True)
y = reversed_gradient(x)
y.sum().backward()
print(y, x.grad)
torch.testing.assert_close(x.grad, -0.1 * y.detach())

# %% [markdown]
# ## Checking gradients
#
# `gradcheck` compares gradients with differences of values. In float64 they agree to many digits.


# %%
class Sigmoid(Function):
    @staticmethod
    def forward(ctx, x):
        output = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (output,) = ctx.saved_tensors
        return output * (1 - output) * grad_output


@dynamo.compile
def gate(x, w):
    return Sigmoid.apply(x * w)


inputs = [torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
print(torch.autograd.gradcheck(gate, inputs, eps=1e-6))

# %% [markdown]
# ## Gradients of intermediate values
#
# `torch.autograd.grad` works on what a compiled function returned, and inside one. A second
# derivative is taken with `create_graph=True`.


# %%
@dynamo.compile
def two_values(a, b):
    c = a * b
    return c, c.exp()


C, D = two_values(A, B)
print(torch.autograd.grad(D, (C, A)))


@dynamo.compile(fullgraph=True)
def gradient_inside(a, b):
    value = (a * b).exp()
    (gradient,) = torch.autograd.grad(value, a)
    return gradient * 2


print(gradient_inside(A, B))


@dynamo.compile
def cubed(x):
    return (x**3).sum()


v = torch.tensor([1.0, 2.0], requires_grad=True)
(first,) = torch.autograd.grad(cubed(v), v, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), v)
print(first, second)
torch.testing.assert_close(second, 6 * v.detach())

# %% [markdown]
# ## Jacobians and Hessians
#
# The functions of `torch.autograd.functional` and `torch.func` take compiled functions, or stand
# inside of them.

# %%
print(torch.autograd.functional.jacobian(dynamo.compile(torch.sin), v.detach()))
print(torch.autograd.functional.hessian(cubed, v.detach()))


@dynamo.compile(fullgraph=True)
def curvature(x):
    return torch.func.hessian(lambda x: (x**3).sum())(x).diagonal()


print(curvature(v.detach()))

# %% [markdown]
# ## Hooks
#
# A hook on a value that a compiled function returned sees its gradient, and may change it. A hook
# that is registered inside runs as well: the graph breaks there, since a hook is Python that runs
# in the backward.

# %%
seen = []
C, _ = two_values(A, B)
handle = C.register_hook(lambda gradient: seen.append(gradient) or gradient * 2)
A.grad = None
C.exp().backward()
handle.remove()
print("the gradient of C is", seen[0], "and that of A", A.grad)
torch.testing.assert_close(A.grad, 2 * seen[0] * B.detach())

# %% [markdown]
# ## backward inside
#
# `backward()` in a compiled function is captured: the gradients are in `.grad` when it returns, and
# an optimizer's step behind it belongs to the same graph. Tutorial 02 trains a network so.


# %%
@dynamo.compile(fullgraph=True)
def descend(w, x):
    loss = (w * x).square().sum()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
    return loss.detach()


w = torch.ones(3, requires_grad=True)
losses = [float(descend(w, torch.tensor([0.5, 1.0, 1.5]))) for _ in range(5)]
print(losses)
assert losses == sorted(losses, reverse=True)

# %% [markdown]
# ## Anomaly mode
#
# `detect_anomaly` tells which call in the forward led to nan, or to an exception, in the backward.
# A graph is one call: the message names it (`framegraph::rootBackward`, a CompiledBackward) and the
# line that ran it.


# %%
@dynamo.compile
def root(x):
    return (x.sqrt() * 0).sum()


zeros = torch.zeros(2, requires_grad=True)
try:
    with warnings.catch_warnings(), torch.autograd.detect_anomaly():
        warnings.simplefilter("ignore")
        root(zeros).backward()
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("no anomaly was found")

# %% [markdown]
# ## Without gradients
#
# `torch.no_grad()` turns the recording off, `model.eval()` changes what dropout and normalisation
# do; they have nothing to do with each other. Each combination is compiled when it is first met.

# %%
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5))
compiled = dynamo.compile(model)
for training in (True, False):
    model.train(training)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            result = compiled(torch.ones(2, 4))
        zeros_count = int((result == 0).sum())
        print(f"train={training} grad={grad}: requires_grad={result.requires_grad}", zeros_count)
        assert result.requires_grad is grad and (zeros_count > 0) is training
