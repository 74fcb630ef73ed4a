"""Random programs of what surrounds a model: compiled, they do what eager does.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("torch is built without distributed packages", allow_module_level=True)

from tests.fuzz.surroundings import Program, Programs
from tests.fuzz.training import disagreements, mismatch


def test_programs():
    wrong = disagreements(Programs(0), 6, "eager")
    assert not wrong, wrong


def test_aot_eager():
    wrong = disagreements(Programs(1), 4, "aot_eager")
    assert not wrong, wrong


@pytest.mark.slow
def test_inductor():
    wrong = disagreements(Programs(2), 4, "inductor")
    assert not wrong, wrong


JAGGED = "run(jagged(2, 1))\nrun(jagged(1, 2, 3))"
# name -> statements of f, steps.
FOUND = {
    "a lazy module behind a layer that the frame makes": (
        "y = nn.Linear(4, 4)(x)\ny = lazy(x) + y",
        "run(T(3, 4))\nrun(T(3, 4))",
    ),
    "a layer made behind a region of a device": (
        "with torch.device('meta'):\n    w = nn.Linear(4, 4)\ny = nn.Linear(4, 4)(x)",
        "run(T(3, 4))",
    ),
    "Python's random numbers beside collectives": (
        "y = spread(x).to_local() * random.random()",
        "run(T(3, 4))\nlog.append(random.random())",
    ),
    "a distributed tensor of a class": (
        "y = DTensor.from_local(x * 1, __mesh__, [Replicate()])\ndynamo.graph_break()\n"
        "y = y.to_local()",
        "run(T(3, 4).as_subclass(Sub))\nrun(T(3, 4))",
    ),
    "a distributed tensor of packed numbers": (
        "with torch.random.fork_rng():\n"
        "    y = spread(x, Shard(0)).redistribute(__mesh__, [Replicate()])",
        "run(packed_of(T(3, 4) + 1, True), np.int64(2))",
    ),
    "whether jagged tensors are equal": ("y = x * 1\nlog.append(torch.equal(x, y))", JAGGED),
    "numbers of a jagged tensor": ("y = x.tolist()", JAGGED),
    "the text of a ragged size": ("y = len(f'{x.shape}') > 3", JAGGED),
    "a wrapper of a tensor whose class answers": (
        "v = x @ net.w\ny = [Two(x, x * net.b).reshape(-1).a[:4], v]",
        "with torch.inference_mode(): result = run(packed_of(T(3, 4) + 1))",
    ),
    "a parameter that is a wrapper, made another dtype": (
        "y = x @ net.w",
        "net.w = nn.Parameter(Two(T(4, 4), T(4, 4) * 2))\n"
        "run(T(3, 4))\n_ = net.double() and None\nrun(T(3, 4).double())",
    ),
    "a new tensor of the type of a jagged one": (
        "z = x * 2\ntry:\n    y = z.new([1.0, 2, 3, 4]) + 1\n"
        "except RuntimeError:\n    y = torch.Tensor.new(x.values(), 2).shape",
        JAGGED,
    ),
    "a view of a jagged tensor, which inference mode refuses": (
        "y = x * 2\nw = rag.detach()\ny = y + w.values().sum()",
        "with torch.inference_mode(): run(T(3, 4))\nrun(T(3, 4))",
    ),
    "a backward from one of a jagged and a plain result": (
        "y = [x * net.b, (x * net.b).sin().values().sum(), x.values().cos()]",
        "j = jagged(2, 1, grad=True)\nout = run(j)\nout[1].backward()\nj.grad\n"
        "j = jagged(2, 1, grad=True)\nout = run(j)\nout[0].values().sum().backward()\nj.grad\n"
        "j = jagged(3, 1, grad=True)\n(run(j)[2].sum() + run(j)[1]).backward()",
    ),
    "an argument that is jagged, differentiated in the frame": (
        "y = x * 2\ny.values().sum().backward()",
        "j = jagged(2, 1, grad=True)\nrun(j)\nj.grad",
    ),
    "a wrapper in the side of a branch": (
        "y = x * 2\nif x.sum() > 0:\n    y = spread(x, Shard(0)).to_local()\nelse:\n    y = y * 3",
        "run(T(3, 4))\nrun(T(3, 4) - 5)",
    ),
    "a quantised tensor in a wrapper": (
        "y = x @ net.w\n"
        "z = torch.quantize_per_tensor(y.detach(), 0.1, 3, torch.quint8).dequantize() + y",
        "run(Two(T(3, 4), T(3, 4), 'x'))",
    ),
    "jagged tensors mapped": ("y = torch.func.vmap(lambda t: t @ net.w)(x)", JAGGED),
    "a lazy module of a jagged tensor": ("y = lazy(x)", JAGGED),
    "a generator in the side of a branch that breaks": (
        "def inner(x, n):\n    if n > 1: return x\n    with scope('in'):\n"
        "        dynamo.graph_break()\n        y = x * 2\n    return y\ny = inner(x, n) + 1",
        "run(T(3, 4), torch.tensor(2))\nrun(T(3, 4), torch.tensor(0))",
    ),
    "a switch of kernels around a break, in a backward that runs the graph again": (
        "y, z = x * net.b, x @ net.w\n"
        "with torch.backends.mkldnn.flags(enabled=False): y = y @ net.w",
        "net.w = nn.Parameter(Two(T(4, 4), T(4, 4) * 2))\n"
        "result = run(a, 0)\nlog.append(torch.autograd.grad(total(result), a, allow_unused=True))",
    ),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", FOUND)
def test_found(name, backend):
    body, steps = FOUND[name]
    program = Program("function", [], body.splitlines(), "y", steps.splitlines())
    told = mismatch(program, backend)
    assert told is None, told
