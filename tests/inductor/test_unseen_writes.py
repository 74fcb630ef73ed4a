"""Writes to parameters that move no version of theirs: what is derived from them follows, whoever
holds their memory.
"""

from __future__ import annotations

import copy
import mmap

import numpy as np
import pytest
import torch
import torch.nn as nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode

import dynamo
from dynamo.api.compile import compile_fresh
from inductor.runtime.link import Derived
from tests.inductor.test_derived import CLOSE, notes, settled


@pytest.mark.parametrize(
    "write",
    [
        lambda w: w.mul_(1.5),
        lambda w: w.neg_(),
        lambda w: w[700].add_(1),
        lambda w: w[:, 5:].zero_(),
        lambda w: w.mul_(torch.rand(w.shape, generator=torch.Generator().manual_seed(2)) > 0.05),
    ],
    ids=["scaled", "negated", "one row", "columns", "pruned"],
)
def test_writes_that_move_no_version(write):
    """Of a weight that is not sampled whole."""
    module = settled(nn.Sequential(nn.Linear(64, 800), nn.BatchNorm1d(800)))
    compiled = dynamo.compile(module)
    x = torch.randn(4, 64)
    with torch.no_grad():
        compiled(x)
        before = module[0].weight._version
        write(module[0].weight.data)
        assert module[0].weight._version == before
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)


def linear_and_norm():
    module = settled(nn.Sequential(nn.Linear(64, 800), nn.BatchNorm1d(800)))
    return module, dynamo.compile(module), torch.randn(4, 64)


class Subclass(torch.Tensor):
    pass


@torch.enable_grad()
def forced_array(w):
    return w.numpy(force=True)


class Seeing(TorchFunctionMode):
    """Notes the tensors that functions of torch are called with."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen += args[:1]
        return func(*args, **(kwargs or {}))


def array_under_a_mode(w):
    with Seeing():
        return w.numpy()


ALIASES = {
    "data": lambda w: w.data,
    "array": lambda w: w.detach().numpy(),
    "array of the weight": lambda w: w.requires_grad_(False).numpy(),
    "array without gradients": lambda w: w.numpy(),
    "array under a mode": array_under_a_mode,
    "forced array": forced_array,
    "array of a subclass": lambda w: w.detach().as_subclass(Subclass).numpy(),
    "array of data": lambda w: np.asarray(w.data),
    "view of data": lambda w: w.data.t()[3:],
    "capsule": lambda w: torch.from_dlpack(w.detach()),
    "capsule of the weight": lambda w: torch.utils.dlpack.from_dlpack(
        torch.utils.dlpack.to_dlpack(w.requires_grad_(False))
    ),
    "capsule with gradients": lambda w: torch.utils.dlpack.from_dlpack(
        torch.utils.dlpack.to_dlpack(w)
    ),
    "array of a capsule": lambda w: np.from_dlpack(w.detach()),
    "storage": lambda w: torch.empty(0).set_(w.untyped_storage(), 0, w.shape, w.stride()),
}


@pytest.mark.parametrize("before", [False, True], ids=["made after a call", "made before"])
@pytest.mark.parametrize("kind", ALIASES)
def test_one_element_is_written_through_an_alias(kind, before):
    """One that is not sampled, in every call, by an alias without a version that stays alive."""
    module, compiled, x = linear_and_norm()
    with torch.no_grad():
        if not before:
            compiled(x)
        alias = ALIASES[kind](module[0].weight)
        compiled(x)
        for number in range(3):
            alias[33, 5] = number
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
        del alias
        compiled(x)
        module[0].weight.data[700, 33] += 5
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)


def by_another_process(w):
    """Its memory as another process maps it."""
    w.data = w.data.clone().share_memory_()
    descriptor, size = w.untyped_storage()._share_fd_cpu_()
    return np.frombuffer(mmap.mmap(descriptor, size), np.float32)[: w.numel()].reshape(w.shape)


def assigned(w, made, alias):
    w.data = made.view(w.shape)
    return alias.reshape(w.shape)


def of_numbers(w):
    array = np.arange(w.numel(), dtype=np.float32)
    return assigned(w, torch.from_numpy(array), array)


def of_bytes(w):
    memory = bytearray(4 * w.numel())
    return assigned(w, torch.frombuffer(memory, dtype=torch.float32), np.frombuffer(memory, "f4"))


def second_half(w, of=lambda part: part):
    flat = torch.randn(2, *w.shape)
    w.data = of(flat[1])
    return flat[1]


def moved_with_a_state_kept(w):
    """What was detached before counts the same writes, on other memory."""
    left_behind.extend(w.detach() for _ in range(3))
    return second_half(w, lambda part: part.data)


def moved_by_set(w):
    left_behind.append(w.detach())
    flat = torch.randn(2, *w.shape)
    w.requires_grad_(False).set_(flat[1])
    return flat[1]


def part_of_a_storage(w):
    flat = torch.randn(2, *w.shape)
    part = flat.untyped_storage()[w.nbytes :]
    w.data = torch.empty(0).set_(part, 0, w.shape, w.stride())
    return flat[1]


left_behind: list[torch.Tensor] = []
MEMORIES = {
    "half of a buffer": second_half,
    "data of half of a buffer": lambda w: second_half(w, lambda part: part.data),
    "moved with a state kept": moved_with_a_state_kept,
    "set": moved_by_set,
    "part of a storage": part_of_a_storage,
    "array": of_numbers,
    "bytes": of_bytes,
    "another process": by_another_process,
}


@pytest.mark.parametrize("before", [False, True], ids=["given after a call", "given before"])
@pytest.mark.parametrize("kind", MEMORIES)
def test_one_element_is_written_in_memory_of_others(kind, before):
    """To which the weight is moved."""
    module, compiled, x = linear_and_norm()
    with torch.no_grad():
        if not before:
            compiled(x)
        alias = MEMORIES[kind](module[0].weight)
        for number in range(3):
            compiled(x)
            alias[33, 5] = 10 * number
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
            module[0].weight[700, 33] += 5
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    left_behind.clear()


def test_one_element_is_written_before_the_alias_ends():
    module, compiled, x = linear_and_norm()
    with torch.no_grad():
        flat = torch.randn(2, 800, 64)
        module[0].weight.data = flat[1]
        compiled(x)
        flat[1, 33, 5] = 10
        del flat
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)


def detached_and_moved(w, x, module, compiled):
    others = [w.detach()]
    others[0].data = torch.randn(w.shape)
    return others


def moved_and_detached(w, x, module, compiled):
    """What was detached before stays behind, with what is detached of it."""
    others = [w.detach()]
    w.data = w.data.clone()
    others += [one.detach() for one in others]
    return others


def moved_in_and_detached(w, x, module, compiled):
    other = torch.empty(w.shape)
    others = [other.detach()]
    other.data = w
    return [other, *others, *(one.detach() for one in others)]


def moved_by_an_operator(w, x, module, compiled):
    other = w.detach().unflatten(0, (2, -1))
    torch.ops.aten.set_.source_Tensor(other, torch.randn(800, 64))
    return other


@torch.enable_grad()
def pending_graph(w, x, module, compiled):
    return compiled(x.clone().requires_grad_())


COUNTED = [
    detached_and_moved, moved_and_detached, moved_in_and_detached, moved_by_an_operator,
    pending_graph,
]  # fmt: skip


@pytest.mark.parametrize("before", [False, True], ids=["after a call", "before"])
@pytest.mark.parametrize("share", COUNTED)
def test_one_element_is_written_beside_who_shares_the_version_alone(share, before):
    """Others count the same writes, on other memory or on none."""
    module, compiled, x = linear_and_norm()
    with torch.no_grad():
        if not before:
            compiled(x)
        others = share(module[0].weight, x, module, compiled)
        compiled(x)
        array = module[0].weight.numpy()
        for number in range(3):
            array[33, 5] = 10 * number
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)
        del others, array
        for _ in range(2):
            compiled(x)
        alias = module[0].weight.data
        for number in range(3):
            alias[33, 5] = 10 * number
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)


def test_one_element_is_written_by_an_inference_tensor():
    """It has no version, and ends before the next call."""
    module, compiled, x = linear_and_norm()
    with torch.no_grad():
        for number in range(3):
            compiled(x)
            with torch.inference_mode():
                alias = torch.empty(0).set_(module[0].weight.detach())
                alias[33, 5] = 10 * number
                del alias
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)


def test_modes_see_the_tensor_whose_array_is_asked_for():
    linear_and_norm()[1](torch.randn(4, 64))
    mode, x = Seeing(), torch.zeros(4)

    def write(y):
        with mode:
            x.numpy()[:2] = 0.5
        return y + 1

    with mode:
        x.numpy()
    assert mode.seen[0] is x
    dynamo.compile(write, backend="eager")(torch.ones(2))
    assert mode.seen[-1] is x and x.tolist() == [0.5, 0.5, 0.0, 0.0]


def test_functions_refuse_as_before():
    linear_and_norm()[1](torch.randn(4, 64))
    w = torch.nn.Parameter(torch.randn(800, 64))
    for names in ({}, {"force": False}):
        with pytest.raises(RuntimeError, match="that requires grad"):
            w.numpy(**names)
    with pytest.raises(TypeError):
        w.detach().numpy(strict=True)
    with pytest.raises(BufferError):
        w.__dlpack__()


@pytest.mark.parametrize("kind", ["array", "mapped file"])
def test_memory_of_others_is_not_packed(kind, tmp_path):
    """An array of numpy, of which nothing tells who writes; a mapped file is nobody else's."""
    module, x = nn.Linear(512, 512), torch.randn(16, 512)
    if kind == "array":
        array = np.random.default_rng(0).standard_normal((512, 512), np.float32)
        module.weight.data = torch.from_numpy(array)
    else:
        torch.save(module.state_dict(), tmp_path / "state")
        module.load_state_dict(torch.load(tmp_path / "state", mmap=True), assign=True)
    compiled, context = compile_fresh(module)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), **CLOSE)
    packed = [note for note in notes(context) if note.startswith("derived")]
    assert bool(packed) == (kind == "mapped file")


def test_one_element_is_written_by_a_graph():
    def write(w):
        w.data[700, 33] += 5

    module, compiled, x = linear_and_norm()
    write = dynamo.compile(write)
    with torch.no_grad():
        for _ in range(3):
            write(module[0].weight)
            torch.testing.assert_close(compiled(x), module(x), **CLOSE)


def test_memory_of_symbolic_size_has_aliases():
    """As torch's own traces make it, with a storage that has no number of bytes."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    seen = []

    def read(x):
        y = x * 2
        seen.append((y.data.shape[1], y.untyped_storage()))
        return y + 1

    sizes = StatelessSymbolicContext([DimDynamic.DYNAMIC, DimDynamic.STATIC])
    fake = mode.from_tensor(torch.ones(9, 700), symbolic_context=sizes)
    with mode:
        assert torch.func.functionalize(read)(fake).shape == fake.shape
    assert seen[0][0] == 700


def test_aliases_that_write_nothing_make_nothing_again(monkeypatch):
    def counting(self, *sources):
        made.append(self)
        return real(self, *sources)

    made, real = [], Derived.__call__
    monkeypatch.setattr(Derived, "__call__", counting)
    module, compiled, x = linear_and_norm()
    with torch.no_grad():
        compiled(x)
        state, copied = module.state_dict(), copy.deepcopy(module)
        alias = module[0].weight.data
        for _ in range(3):
            compiled(x)
    assert len(made) == 1 and torch.equal(alias, copied[0].weight) and state
