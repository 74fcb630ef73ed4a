"""What C++ gives the caller of a device graph's replay: tensors over the captured memory, windows,
versions, and no reference more than eager's results hold."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch

from fxgraph.aot._autograd import Tensors
from inductor.runtime import _plan


def replay(groups=(), results=(), written=()):
    return _plan.Replay({"groups": list(groups), "results": list(results), "written": written})


def test_results_are_tensors_of_their_own_over_the_memory():
    kept = torch.arange(6.0)
    made = replay([(kept, False)], [("fresh", 0, None), ("fresh", 0, ((2,), (2,), 1, ""))])
    version = kept._version
    whole, window = made([])
    assert whole is not kept and whole.data_ptr() == kept.data_ptr()
    assert torch.equal(window, torch.tensor([1.0, 3.0])) and window._base is whole
    whole.zero_()
    assert kept._version == version and window._version == whole._version
    assert made.alive() == [0]
    del whole
    assert made.alive() == [0]  # the window has it, too
    del window
    assert made.alive() == []


def test_a_copied_group_is_handed_out_in_other_memory():
    kept = torch.empty_strided((3, 2), (1, 3)).normal_()
    made = replay([(kept, True)], [("fresh", 0, None)])
    (copy,) = made([])
    assert torch.equal(copy, kept) and copy.stride() == kept.stride()
    assert copy.data_ptr() != kept.data_ptr() and made.alive() == []


@pytest.mark.parametrize("detached", ["", "base", "view", "data"])
def test_windows_of_arguments(detached):
    made = replay(
        results=[("argument", 0, None), ("argument", 1, ((2,), (1,), 1, detached)), ("constant", 7)]
    )
    x, y = torch.zeros(2), torch.arange(4.0, requires_grad=True)
    for arguments in ((x, y), [x, y]):
        same, window, seven = made(arguments)
        assert same is x and seven == 7 and torch.equal(window, y[1:3])
        assert window.requires_grad is (detached == "")
        assert (window._base is None) is (detached in ("view", "data"))


def test_versions_of_what_is_written():
    bound, given = torch.zeros(2), torch.zeros(2)
    with torch.inference_mode():
        inference = torch.zeros(2)
    made = replay(written=[(bound, 0, 2), (None, 1, 1), (inference, 0, 3)])
    assert made([None, given]) == ()
    assert (bound._version, given._version) == (2, 1)


def test_references():
    kept, bound, constant = torch.zeros(4), torch.zeros(2), ["constant"]
    gone = [weakref.ref(kept), weakref.ref(bound)]
    given, count = torch.zeros(2), sys.getrefcount(constant)
    made = replay(
        [(kept, False)],
        [("fresh", 0, None), ("argument", 0, None), ("constant", constant)],
        [(bound, 0, 1)],
    )
    held = sys.getrefcount(given), sys.getrefcount(None)
    for _ in range(50):
        made([given])
    assert sys.getrefcount(given) == held[0] and abs(sys.getrefcount(None) - held[1]) < 40
    assert sys.getrefcount(constant) == count + 1
    del kept, bound, made
    gc.collect()
    assert [one() for one in gone] == [None, None]
    assert sys.getrefcount(constant) == count


def test_a_cycle_through_a_constant_is_collected():
    holder = type("Holder", (), {})()
    holder.replay = replay(results=[("constant", holder)])
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


def test_what_moved():
    x, y = torch.zeros(2), torch.zeros(2)
    where = {0: x.data_ptr(), 2: y.data_ptr()}
    assert _plan.moved((x, 5, y), where, {}) == []
    assert _plan.moved([y, 5, x], where, {}) == [0, 2]
    assert _plan.moved([y, 5, x], where, {2: None}) == [0]


def test_arguments_that_do_not_fit():
    window = ((2,), (1,), 0, "")
    with pytest.raises(TypeError, match="a tensor is expected, got int"):
        replay(results=[("argument", 0, window)])([5])
    with pytest.raises(IndexError, match="no argument 1"):
        replay(results=[("argument", 1, None)])([5])
    with pytest.raises(IndexError, match="no group 0"):
        replay(results=[("fresh", 0, None)])
    with pytest.raises(TypeError, match="one sequence"):
        replay()()
    with pytest.raises(TypeError, match="a tensor is expected"):
        _plan.moved([5], {0: 0}, {})
    with pytest.raises(IndexError, match="no argument 3"):
        _plan.moved([5], {3: 0}, {})


def test_tensors_are_a_sequence():
    x, y = torch.zeros(2), torch.ones(3, requires_grad=True)
    tensors = Tensors([x, None, y])
    assert len(tensors) == 3 and tensors[0] is x and tensors[-1] is y
    assert [one is two for one, two in zip(tensors, [x, None, y], strict=True)] == [True] * 3
    with pytest.raises(IndexError):
        tensors[3]
    with pytest.raises(TypeError, match="a tensor is expected, got int"):
        Tensors([5])
    gone = weakref.ref(x)
    del x
    assert gone() is not None
    tensors.clear()
    assert gone() is None and len(tensors) == 0 and list(Tensors()) == []


def test_bare_results():
    kept, bound = torch.arange(4.0), torch.zeros(2)
    rows = [
        ("fresh", 0, None),
        ("fresh", 0, ((2,), (2,), 0, "")),
        ("argument", 0, None),
        ("constant", None),
        ("constant", bound),
    ]
    x = torch.zeros(2)
    for given in ([x], (x,), Tensors([x])):
        found = replay([(kept, False)], rows)(given, True)
        assert type(found) is Tensors and found[2] is x and found[3] is None and found[4] is bound
        assert torch.equal(found[1], kept[::2]) and found[1]._base is found[0]
        assert type(replay([(kept, False)], rows)(given)) is tuple
    assert type(replay(results=[("constant", 7)])([], True)) is tuple


def test_tensors_as_arguments():
    x, y = torch.zeros(2), torch.zeros(2)
    assert _plan.moved(Tensors([x, None, y]), {0: x.data_ptr(), 2: x.data_ptr()}, {}) == [2]
    with pytest.raises(IndexError, match="no argument 3"):
        _plan.moved(Tensors([x]), {3: 0}, {})
    assert replay(written=[(None, 0, 2)])(Tensors([x])) == () and x._version == 2
    (same,) = replay(results=[("argument", 0, None)])(Tensors([x]))
    assert same is x
