"""Random programs of torch's and Python's corners: compiled, they do what eager does.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

import pytest
import torch

from tests.fuzz.corners import Program, Programs
from tests.fuzz.training import BACKENDS, disagreements, mismatch


def test_programs():
    wrong = disagreements(Programs(0), 8, "eager")
    assert not wrong, wrong


def test_aot_eager():
    wrong = disagreements(Programs(1), 4, "aot_eager")
    assert not wrong, wrong


@pytest.mark.slow
def test_inductor():
    wrong = disagreements(Programs(2), 4, "inductor")
    assert not wrong, wrong


TWO = "Two(T(3, 4), T(3, 4) + 1, 'x')"
# name -> statements of f, steps.
FOUND = {
    "memory of a wrapper": ("y = x.detach().numpy()", f"run({TWO})"),
    "a wrapper transposed in place": (
        "x.t_()\nlog.append(torch.initial_seed())\ny = x * 2",
        f"run({TWO})",
    ),
    "a parameter that is a wrapper": (
        "net.extra = nn.Parameter(x.detach()[0])\nif n > 1:\n    z = Two(x, x).sum(0)\ny = x * 1",
        f"run({TWO}, 3)\nlog.append(list(net._parameters))",
    ),
    "a parameter of a class that is asked": (
        "with listed:\n    net.late = nn.Parameter(x.detach())\ny = x * net.late",
        "run(T(3, 4).as_subclass(Noted))\nrun(T(3, 4))",
    ),
    "a wrapper around a subclass": (
        "y = Two(x * 1, x * 2, 'L').sin()",
        "run(T(3, 4).as_subclass(Negated))",
    ),
    "a jagged tensor around a subclass": (
        "y = torch.nested.as_nested_tensor([x, x], layout=torch.jagged).sin().unbind()[0]",
        "run(T(3, 4).as_subclass(Negated))",
    ),
    "a wrapper as another class": ("y = x.as_subclass(Sub)", f"run({TWO})"),
    "a wrapper times a subclass": ("y = x * sub", f"run({TWO})"),
    "a wrapper in inference mode": (
        "y = x * net.b\nx.mul_(2)",
        f"t = {TWO}\nwith torch.inference_mode(): result = run({TWO})\n"
        "with torch.inference_mode(): result = run(t)",
    ),
    "random states beside a wrapper": (
        "y = x * 1\nwith torch.random.fork_rng():\n    y = torch.normal(0.0, 1.0, (4,)) + y",
        f"run({TWO})\nrun({TWO})",
    ),
    "a seed beside a wrapper": (
        "torch.manual_seed(4)\ny = x + torch.rand(4)",
        f"run({TWO})\nrun({TWO}.requires_grad_())",
    ),
    "a leaf of a subclass": (
        "y = x.detach().clone().requires_grad_()\n(y * p0).sum().backward()\nlog.append(y.grad)",
        "run(T(3, 4).as_subclass(Sub))\nrun(T(3, 4).as_subclass(Noted))",
    ),
    "memory of a subclass": (
        "y = x * 1\nlog.append(y.detach().numpy())",
        "run(T(3, 4).as_subclass(Noted))",
    ),
    "numpy's work under a mode": (
        "with Listed():\n    y = x * len(np.unique(arr))\n    log.append(arr * 2 + arr.max())",
        "run(T(3, 4))\nrun(T(3, 4).as_subclass(Noted))",
    ),
    "an array of a subclass": (
        "y = x * np.asarray(x.detach()).sum()\nwith listed:\n    log.append(np.array(t0))",
        "run(T(3, 4).as_subclass(Noted))",
    ),
    "gradients of gradients in inference mode": (
        "y = x @ net.w\ng, = torch.autograd.grad(y.sum(), net.w, create_graph=True)",
        "with torch.inference_mode(): run(T(3, 4))",
    ),
    "a subclass behind a break without gradients": (
        "y = x @ net.w\nwith torch.no_grad():\n    log.append(np.allclose(arr, t0.numpy()))\n"
        "y = y.sum()",
        "out = run(T(3, 4).as_subclass(Negated))\ntotal(out).backward()",
    ),
    "the history of a subclass without gradients": (
        "with torch.enable_grad():\n    y = x * 2",
        "t = (a * 1).as_subclass(Negated)\nwith torch.no_grad(): out = run(t)\n"
        "total(out).backward()",
    ),
    "operators without a result beside a wrapper": (
        "y = x * net.b\ntorch._foreach_mul_([t0, torch.ones(4)], torch.tensor(2.0))\n"
        "torch._foreach_copy_([t0], [y.detach()[0]])",
        f"run({TWO})",
    ),
    "a forked generator beside a wrapper": (
        "y = x + 1\nwith torch.random.fork_rng():\n    kept.append(y)",
        f"run({TWO}.requires_grad_(), np.bool_(True))",
    ),
    "a backward from one of two wrappers": (
        "y = [x * net.b, (x @ net.w * 0).log(), x + 1]",
        f"out = run({TWO}.requires_grad_())\nout[0].sum().backward()\nnet.w.grad is None\n"
        f"out = run({TWO}.requires_grad_())\n(out[2].sum() + out[0].sum()).backward()\n"
        f"out = run({TWO}.requires_grad_())\ntotal(out).backward()",
    ),
    "other memory for a view of a wrapper": (
        "y = x * 1\nv = y.detach()[1:]\nv.set_(y.detach().clone())\ny = y.sum()",
        f"total(run({TWO}.requires_grad_())).backward()",
    ),
    "a leaf that is a wrapper": (
        "y, z = x @ net.w, x * net.b\ny = [y.detach().requires_grad_(), z]",
        f"out = run({TWO}.requires_grad_())\ntotal(out).backward()\nout[0].grad",
    ),
    "a sparse tensor in a wrapper": (
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    z = x.to_sparse().to_dense() * 2\ny = x * 1",
        f"total(run({TWO}.requires_grad_())).backward()\nrun({TWO})",
    ),
    "the default dtype beside a wrapper": (
        "two.mul_(2)\ntorch.set_default_dtype(torch.float64)\ny = torch.arange(4.0) + x",
        f"run(T(5, 4))\nrun({TWO})",
    ),
    "inference mode beside a wrapper": (
        "with torch.inference_mode():\n    y = x * 2\nlog.append(torch.is_inference(y))\n"
        "y = [y, x + 1]",
        f"run({TWO})",
    ),
    "a function of autograd under a mode": (
        "with BaseTorchFunctionMode():\n    y = Needed.apply(x, net.w)\ny = y.sum()",
        "loss = total(run(T(3, 4, grad=True)))\nloss.backward()\n"
        f"loss = total(run({TWO}.requires_grad_(), -1))\nloss.backward()",
    ),
    "copies under a mode": (
        "with listed:\n    y = copy.deepcopy(p0) * x + copy.deepcopy(t0)\n"
        "    y = copy.copy(p0) * y",
        "run(T(3, 4))",
    ),
    "a wrapper made under a mode": ("with listed:\n    y = Two(x * 2, x)", "run(T(3, 4))"),
    "a lazy module of a class that is asked": ("y = lazy(x)", "run(T(3, 4).as_subclass(Noted))"),
    "a checkpoint of a class that is asked": (
        "y = checkpoint(lambda t: t.sin() * 2, x, use_reentrant=False)",
        "with torch.no_grad(): run(T(3, 4).as_subclass(Noted))\nrun(T(3, 4).as_subclass(Noted))",
    ),
    "texts of globals in the reason to compile again": (
        "y = weakref.proxy(special).apply(x)",
        "run(T(2, 4))\nmade = threading.local()\nrun(T(3, 4))\n"
        "sub = T(4).as_subclass(Noted)\nrun(T(5, 4))\nrun(T(3, 4, grad=True))",
    ),
    "an attribute that a mode sees assigned": (
        "y = x * 2\nwith listed:\n    p0.grad = torch.ones(4)\n    y.requires_grad = True\n"
        "    y.data = x",
        "run(T(3, 4))\nlog.append(calls)",
    ),
    "an attribute that a class sees assigned": (
        "y = x * 2\ny.data = x.detach() * 3",
        "run(T(3, 4).as_subclass(Noted))\nrun(T(3, 4).as_subclass(Sub))",
    ),
    "an item of an array under a mode": (
        "y = x * 1\nwith listed:\n    t0.numpy()[:2] = 0.5\n    y[0] = 1",
        "run(T(3, 4))\nlog.append(calls)",
    ),
    "data of a view in inference mode": (
        "x.data = x.data.clone()\ny = x * 2",
        "t = a[:]\nwith torch.inference_mode(): result = run(t)\n"
        "with torch.inference_mode(): result = run(t)",
    ),
    "a gradient of a wrapper for a plain result": (
        "y = x @ net.w\nv = Two(y @ net.w, x).sum(0) + y\ny = [y, v.detach()]",
        "loss = total(run(T(3, 4, grad=True)))\nloss.backward(retain_graph=True)\nloss.backward()",
    ),
    "a gradient of a wrapper with another tag": (
        "y = x @ net.w\nv = torch._foreach_sub([y, y], [y * 0.5, p0])[1]\ny = [y, v]",
        f"total(run({TWO}, True)).backward()\nlog.append(net.w.grad)",
    ),
    "an argument detached behind its use": (
        "y = x * net.b\nx.detach_()\ny = [y, x]",
        "loss = total(run(a * 1))\nloss.backward()",
    ),
    "an argument detached after the call": (
        "y = x * net.b",
        "t = a * 1\nout = run(t)\nt.detach_()\ntotal(out).backward()",
    ),
    "an argument detached that no node saved": (
        "y = x + net.b\nx.detach_()",
        "total(run(a * 1)).backward()\nlog.append(a.grad)",
    ),
    "a flag that is a wrapper as an index": (
        "y = x[Two(torch.tensor(True), torch.tensor(True))]",
        f"run(T(3, 4))\nrun({TWO})",
    ),
    "a number that is a wrapper as an index": (
        "i = torch.tensor(1)\ny = [x[Two(i, i)], x[:, Two(i, i)]]",
        f"run(T(3, 4))\nrun({TWO})",
    ),
    "a number of numpy for a switch that stays": (
        "y = x * 1\nwith torch.set_grad_enabled(n > 1):\n    y = y * 2",
        "run(T(3, 4), np.int64(2))\nwith torch.no_grad(): run(T(3, 4), np.int64(1))",
    ),
    "whether an argument of a class is a leaf": (
        "log.append((x.is_leaf, x.requires_grad, x._version))\ny = x * 2",
        "run(T(3, 4).as_subclass(Noted) * net.b)\nrun((a * 1).as_subclass(Sub))\n"
        "run(a.detach().as_subclass(Noted).requires_grad_())",
    ),
    "grad mode switched on behind a wrapper's first operator": (
        "z = x * net.b\ntorch.set_grad_enabled(True)\ny = [x * net.b, z]",
        f"with torch.no_grad(): out = run({TWO})\ntorch.set_grad_enabled(True)\n"
        "out[0].sum().backward()\nlog.append(net.b.grad)",
    ),
    "a wrapper behind a break without gradients": (
        "y = x * net.b\nwith torch.no_grad():\n    dynamo.graph_break()\ny = y * 2",
        f"out = run({TWO})\nout.sum().backward()\nlog.append(net.b.grad)",
    ),
    "numpy's choice of a number": ("y = x * rng.choice(3) + rng.choice(3)", "run(T(3, 4))"),
}


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("name", FOUND)
def test_found(name, backend):
    body, steps = FOUND[name]
    program = Program("function", [], body.splitlines(), "y", steps.splitlines())
    told = mismatch(program, backend)
    assert told is None, told


def test_modes_left_behind():
    """A mode that a step enters and does not leave does not reach the next step or program."""
    program = Program(
        "function", [], ["listed.__enter__()", "Counted().__enter__()"], "x", ["run(t0)"]
    )
    assert mismatch(program, "eager") is None
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0
