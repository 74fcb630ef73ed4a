"""What programs refuse: at saving, at loading with weights, in calls; and what `show` prints."""

from __future__ import annotations

import re

import pytest
import torch

import dynamo
from dynamo.__main__ import main
from dynamo.errors import ProgramError
from tests.dynamo.saved_cases import Net, Tied, make


def saved(path, fn, *args, grad=False, **kwargs):
    with torch.set_grad_enabled(grad):
        dynamo.export(fn)(*args, **kwargs).save(path)
    return dynamo.load(path, backend="aot_eager")


# -- calls ----------------------------------------------------------------------------------------
def scaled(x, y, n, mode="mean"):
    return getattr(x * n + y[0], mode)(), x.shape[0]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("calls") / "scaled.fg"
    x, y = torch.randn(6, 4), [torch.randn(4)]
    dynamo.mark_dynamic(x, 0, min=4, max=32)
    return saved(path, scaled, x, y, 3)


Y = [torch.ones(4)]
REFUSED = {
    "a size above the range": (lambda: [torch.ones(33, 4), Y, 3],
        r"x.size\(0\) is 33; the most is 32"),
    "a size below the range": (lambda: [torch.ones(3, 4), Y, 3],
        r"x.size\(0\) is 3; the least is 4"),
    "another size": (lambda: [torch.ones(6, 5), Y, 3],
        r"input x .* size \(\*, 4\), not \(6, 5\)"),
    "another rank": (lambda: [torch.ones(6), Y, 3],
        r"input x .* size \(\*, 4\), not \(6\)"),
    "another dtype": (lambda: [torch.ones(6, 4).int(), Y, 3],
        r"input x .* torch.float32, not torch.int32"),
    "another stride": (lambda: [torch.ones(4, 6).t(), Y, 3],
        r"input x .* stride \(4, 1\), not \(1, 6\)"),
    "another device": (lambda: [torch.ones(6, 4, device="meta"), Y, 3],
        r"input x .* on cpu, not meta"),
    "another layout": (lambda: [torch.ones(6, 4).to_sparse(), Y, 3],
        r"input x .* plain tensor"),
    "no tensor": (lambda: [[1.0], Y, 3],
        r"input x is to be a tensor, not list"),
    "a longer list": (lambda: [torch.ones(6, 4), Y * 2, 3],
        r"y is to be a list of 1 items, not one of 2"),
    "a tuple for a list": (lambda: [torch.ones(6, 4), tuple(Y), 3],
        r"y is to be a list of 1 items, not tuple"),
    "an item's size": (lambda: [torch.ones(6, 4), [torch.ones(5)], 3],
        r"input y\[0\] .* size \(4\), not \(5\)"),
    "another number": (lambda: [torch.ones(6, 4), Y, 4],
        r"input n is to be 3, as it was saved, not 4"),
    "a float for an int": (lambda: [torch.ones(6, 4), Y, 3.0],
        r"input n is to be 3, as it was saved, not 3.0"),
    "an argument more": (lambda: [torch.ones(6, 4), Y, 3, "sum"],
        r"argument mode is given"),
    "too many": (lambda: [torch.ones(6, 4), Y, 3, "sum", 1],
        r"too many positional arguments"),
    "too few": (lambda: [torch.ones(6, 4), Y],
        r"missing a required argument: 'n'"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_calls_name_the_input(program, what):
    args, text = REFUSED[what]
    with pytest.raises(ProgramError, match=text):
        program(*args())


@pytest.mark.parametrize("size", [4, 7, 32])
def test_sizes_of_the_range_are_served(program, size):
    x = torch.randn(size, 4)
    assert program(x=x, y=Y, n=3)[0] == scaled(x, Y, 3)[0]
    assert program(x, Y, n=3)[1] == size


def test_equal_sizes_and_divisible_ones(tmp_path):
    def halves(x, y):
        return (x + y).view(2, -1)

    x, y = torch.randn(6), torch.randn(6)
    for t in (x, y):
        dynamo.maybe_mark_dynamic(t, 0)
    program = saved(tmp_path / "halves.fg", halves, x, y)
    assert torch.equal(program(torch.ones(8), torch.ones(8)), torch.full((2, 4), 2.0))
    with pytest.raises(ProgramError, match=r"y\.size\(0\) is 9 instead of 8"):
        program(torch.ones(8), torch.ones(9))
    with pytest.raises(ProgramError, match="its sizes are to keep"):
        program(torch.ones(7), torch.ones(7))


def test_the_same_object_twice(tmp_path):
    def plus(x, y):
        return x.add_(y), y * 2

    x = torch.ones(3)
    program = saved(tmp_path / "plus.fg", plus, x, x)
    given = torch.ones(3)
    first, second = program(given, given)
    assert first is given and given.tolist() == [2, 2, 2] and second.tolist() == [4, 4, 4]
    with pytest.raises(ProgramError, match="y is to be the same object as input x"):
        program(torch.ones(3), torch.ones(3))


def test_written_inputs_that_share_memory_are_refused(tmp_path):
    def plus(x, y):
        return x.add_(1), y * 2

    program = saved(tmp_path / "plus.fg", plus, torch.ones(3), torch.ones(3))
    memory = torch.ones(4)
    with pytest.raises(ProgramError, match="share memory"):
        program(memory[:3], memory[1:])
    assert memory.tolist() == [1, 1, 1, 1]


# -- gradients ------------------------------------------------------------------------------------
def test_gradients_are_never_silently_absent(tmp_path):
    fn, args, _ = make("net")
    program = saved(tmp_path / "a.fg", fn, *args)  # exported without grad mode: for inference
    assert not program(*args).requires_grad
    dynamo.export(fn)(*args).save(tmp_path / "b.fg", training=False)
    program = dynamo.load(tmp_path / "b.fg", backend="aot_eager")
    with pytest.raises(ProgramError, match="without its backward"):
        program(*args)
    dynamo.export(fn)(*args).save(tmp_path / "c.fg")
    program = dynamo.load(tmp_path / "c.fg", backend="aot_eager")
    assert program(*args).requires_grad
    with pytest.raises(ProgramError, match="input x requires grad"):
        program(args[0].clone().requires_grad_())


def test_a_second_derivative_is_an_error(tmp_path):
    def cube(x):
        return (x**3).sum()

    x = torch.ones(3, requires_grad=True)
    program = saved(tmp_path / "cube.fg", cube, x, grad=True)
    (gradient,) = torch.autograd.grad(program(x), x)
    assert gradient.tolist() == [3, 3, 3]
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(program(x), x, create_graph=True)


def test_training_with_an_optimizer(tmp_path):
    torch.manual_seed(0)
    model, data = Net(), torch.randn(4, 3, 8, 8)
    program = saved(tmp_path / "net.fg", model, data, grad=True)
    model.load_state_dict(program.state_dict())
    optimizers = [torch.optim.SGD(list(m.parameters()), lr=0.1) for m in (model, program)]
    for _ in range(3):
        for called, optimizer in zip((model, program), optimizers, strict=True):
            optimizer.zero_grad()
            called(data).square().sum().backward()
            optimizer.step()
    for name, tensor in program.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name])


# -- weights --------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "net.fg"
    fn, args, kwargs = make("net")
    dynamo.export(fn)(*args, **kwargs).save(path, weights=False)
    return path


def test_weights_are_bound_by_name(bare):
    model, args, _ = make("net")
    assert bare.stat().st_size < 40_000 and b"weights" not in bare.read_bytes()[:600]
    program = dynamo.load(bare, model.state_dict(), backend="aot_eager")
    torch.testing.assert_close(program(*args), model(*args))
    with torch.no_grad():
        model.head.bias.add_(1)  # the same memory
    torch.testing.assert_close(program(*args), model(*args))


def test_a_state_dict_suffices(tmp_path):
    """Buffers that it does not have are constants; parameters are in the model's order."""

    class Rotated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = torch.nn.Linear(4, 3), torch.nn.Linear(3, 4)
            self.register_buffer("angles", torch.arange(4.0), persistent=False)
            self.register_buffer("scale", torch.ones(()))

        def forward(self, x):
            return self.last(self.first(x) * self.angles.sin() * self.scale)

    model, x = Rotated(), torch.randn(2, 3)
    for weights in (None, model.state_dict()):
        dynamo.export(model)(x).save(tmp_path / "m.fg", weights=weights is None)
        program = dynamo.load(tmp_path / "m.fg", weights, backend="aot_eager")
        torch.testing.assert_close(program(x), model(x))
        assert list(program.state_dict()) == list(dict(model.named_parameters())) + ["scale"]
        names = [name for name, _ in program.named_parameters()]
        assert names == [name for name, _ in model.named_parameters()]


def changed(**entries):
    def change(state):
        for name, value in entries.items():
            name = name.replace("__", ".")
            if value is None:
                del state[name]
            else:
                state[name] = value
        return state

    return change


WEIGHTS = {
    "missing": (changed(head__bias=None), r"missing: head\.bias"),
    "unknown": (changed(other=torch.ones(1)), "unknown: other"),
    "shape": (changed(head__bias=torch.ones(6)),
              r"head\.bias has the shape \(6,\) instead of \(5,\)"),
    "dtype": (changed(head__bias=torch.ones(5).double()), r"head\.bias is torch\.float64 instead"),
    "device": (changed(head__bias=torch.ones(5, device="meta")), r"head\.bias is on meta instead"),
    "type": (changed(head__bias=[1.0]), r"head\.bias is a list, not a tensor"),
    "none": (lambda state: None, "saved without weights"),
    "module": (lambda state: Net(), r"weights is a Net, not a dict of .* as state_dict\(\) gives"),
    "number": (lambda state: 3, "weights is a int, not a dict"),
}  # fmt: skip


@pytest.mark.parametrize("what", WEIGHTS)
def test_weights_that_do_not_fit_are_refused(bare, what):
    change, text = WEIGHTS[what]
    with pytest.raises(ProgramError, match=text):
        dynamo.load(bare, change(dict(Net().state_dict())))


def test_weights_beside_those_of_the_file_are_refused(tmp_path):
    fn, args, _ = make("net")
    dynamo.export(fn)(*args).save(tmp_path / "net.fg")
    with pytest.raises(ProgramError, match="has its weights in the file"):
        dynamo.load(tmp_path / "net.fg", fn.state_dict())


def test_tied_weights_are_one_tensor(tmp_path):
    model = Tied()
    dynamo.export(model)(torch.tensor([1])).save(tmp_path / "tied.fg", weights=False)
    state = dict(model.state_dict())
    apart = {**state, "out.weight": state["out.weight"].clone()}
    dynamo.load(tmp_path / "tied.fg", apart, backend="aot_eager")  # of the same values
    with pytest.raises(ProgramError, match=r"out\.weight are one tensor, and differ"):
        dynamo.load(tmp_path / "tied.fg", {**state, "out.weight": state["out.weight"] + 1})
    del state["out.weight"]
    program = dynamo.load(tmp_path / "tied.fg", state, backend="aot_eager")
    weights = program.state_dict()
    assert weights["out.weight"].data_ptr() == weights["embedding.weight"].data_ptr()
    assert len(list(program.parameters())) == 1


# -- saving ---------------------------------------------------------------------------------------
def stores(self, x):
    self.last = x
    return x + 1


def prints(self, x):
    self.seen.append(1)
    return x + 1


def replaces(self, x):
    self.count = self.count + 1
    return x + self.count


def gives_an_object(self, x):
    return x + 1, {"module": self}


UNSAVED = {
    stores: r"Module cannot be saved: beside computing tensors it changes .*\(last\)",
    prints: "beside computing tensors it changes",
    replaces: "beside computing tensors it changes",
    gives_an_object: r"the result\[1\]\['module'\] is a Made",
}


@pytest.mark.parametrize("forward", UNSAVED, ids=lambda f: f.__name__)
def test_what_a_file_cannot_hold_is_refused(tmp_path, forward):
    def __init__(self):
        torch.nn.Module.__init__(self)
        self.register_buffer("count", torch.zeros(()))
        self.seen = []

    made = type("MadeModule", (torch.nn.Module,), {"__init__": __init__, "forward": forward})()
    with torch.no_grad(), pytest.raises((ProgramError, dynamo.errors.Unsupported)) as caught:
        dynamo.export(made)(torch.ones(3)).save(tmp_path / "x.fg")
    assert re.search(UNSAVED[forward], str(caught.value)), str(caught.value)
    assert not list(tmp_path.iterdir())


def test_training_is_refused_where_there_is_none(tmp_path):
    exported = dynamo.export(lambda x: x.sin())(torch.ones(3))
    with pytest.raises(ProgramError, match="nothing of it requires grad"):
        exported.save(tmp_path / "x.fg", training=True)


# -- show -----------------------------------------------------------------------------------------
def test_show(tmp_path, capsys):
    x = torch.randn(6, 4)
    dynamo.mark_dynamic(x, 0, min=4, max=32)
    saved(tmp_path / "scaled.fg", scaled, x, Y, 3)
    assert main(["show", str(tmp_path / "scaled.fg")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("scaled (inference), saved by framegraph ")
    for line in (
        "  x: float32[s0, 4] on cpu",
        "  y[0]: float32[4] on cpu",
        "  n: always 3",
        "  [0]: float32[] on cpu",
        "  [1]: a number",
        "  s0: x.size(0), 4 to 32",
        "operators of inference: 3",
        "  weights: 0 parameters and 0 buffers, 0 bytes, in the file",
    ):
        assert line in lines, "\n".join(lines)
    (tmp_path / "bad.fg").write_bytes(b"bad")
    assert main(["show", str(tmp_path / "bad.fg")]) == 1
    assert "too short" in capsys.readouterr().err


# -- operators of other libraries ------------------------------------------------------------------
@pytest.fixture(scope="module")
def foreign():
    """A library with an operator that returns a tensor of its own, and one that writes."""
    library = torch.library.Library("saved_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("fill(Tensor(a!) x) -> ()")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("twice", lambda x: torch.empty_like(x), "Meta")
    library.impl("fill", lambda x: None, "CompositeExplicitAutograd")
    yield torch.ops.saved_tests
    library._destroy()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_operators_of_other_libraries_are_called_where_they_are_named(foreign, tmp_path, backend):
    def program(x):
        return foreign.twice(x + 1) * 3

    x = torch.randn(4)
    dynamo.export(program)(x).save(tmp_path / "m.fg")
    loaded = dynamo.load(tmp_path / "m.fg", backend=backend, operators=["saved_tests"])
    torch.testing.assert_close(loaded(x), program(x))
    for operators in ((), ["another"], ["saved_tests.twice"]):
        with pytest.raises(ProgramError, match=r"may not call 'saved_tests.twice.default', unless"):
            dynamo.load(tmp_path / "m.fg", operators=operators)


def test_operators_of_other_libraries_that_write_are_refused(foreign, tmp_path):
    def program(x):
        foreign.fill(x)
        return x + 1

    with pytest.raises((ProgramError, dynamo.errors.Unsupported), match="fill"):
        dynamo.export(program)(torch.randn(4)).save(tmp_path / "m.fg")
