"""Settings of torch that captured code changes: in effect inside, left as eager leaves them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import dynamo
from tests.dynamo.values_support import CountingBackend

READERS = [
    torch._C._get_flash_sdp_enabled,
    torch._C._get_math_sdp_enabled,
    torch._C._get_mem_efficient_sdp_enabled,
    torch._C._get_cudnn_sdp_enabled,
    torch._C._get_sdp_priority_order,
]


def state():
    return [read() for read in READERS]


def in_one_kernel(x):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(x, x, x)


def in_order(x):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        y = F.scaled_dot_product_attention(x, x, x)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(y, x, x)


def nested(x):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(x, x, x)
        return y, torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()


def left_changed(x):
    torch.backends.cuda.enable_flash_sdp(False)
    return x + 1


def broken_inside(x):
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(x, x, x)
        dynamo.graph_break()
        flash = torch.backends.cuda.flash_sdp_enabled()
        return F.scaled_dot_product_attention(y, x, x), flash


def raises_inside(x):
    with sdpa_kernel(SDPBackend.MATH):
        y = x + 1
        if y.shape[0] > 0:
            raise ValueError("inside")
    return y


ONE_GRAPH = [in_one_kernel, in_order, nested, left_changed]


@pytest.fixture(autouse=True)
def _restored():
    before = state()
    yield
    torch._C._set_sdp_use_flash(before[0])


def outcome(function, flash):
    """The results, and the state that is left, from a state of its own."""
    torch._C._set_sdp_use_flash(flash)
    x = torch.arange(24.0).reshape(1, 1, 6, 4)
    try:
        found = function(x)
    except ValueError as error:
        found = torch.tensor(len(str(error)))
    left = state()
    torch._C._set_sdp_use_flash(True)
    return found, left


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [*ONE_GRAPH, broken_inside, raises_inside])
def test_as_eager(program, backend):
    captured = dynamo.compile(program, backend=backend, fullgraph=program in ONE_GRAPH)
    for flash in (True, True, False, True):
        expected, found = outcome(program, flash), outcome(captured, flash)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1] == expected[1]


def test_captured_once_for_each_entry_state():
    backend = CountingBackend()
    captured = dynamo.compile(nested, backend=backend, fullgraph=True)
    for flash in (True, True, False, True, False):
        outcome(captured, flash)
    assert backend.graphs == 2


def test_what_the_frame_sets_is_guarded():
    graphs = []

    def counting(gm, inputs):
        graphs.append(gm)
        return gm

    def f(x):
        torch.use_deterministic_algorithms(True)
        np.seterr(over="ignore")
        torch.set_default_device("cpu")
        return x * torch.ones(3)

    compiled = dynamo.compile(f, backend=counting)
    try:
        for expected in (1, 2, 2):
            assert compiled(torch.full((3,), 2.0)).tolist() == [2, 2, 2]
            assert torch.are_deterministic_algorithms_enabled()
            assert np.geterr()["over"] == "ignore"
            assert len(graphs) == expected
        torch.set_default_device("meta")
        assert compiled(torch.full((3,), 2.0, device="cpu")).tolist() == [2, 2, 2]
        assert torch.get_default_device() == torch.device("cpu")
        np.seterr(over="warn")
        compiled(torch.ones(3))
        assert np.geterr()["over"] == "ignore"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_device(None)
        np.seterr(over="warn")


def test_settings_of_a_package_are_guarded():
    import torch._functorch.config as settings

    def program(x):
        if settings.debug_assert:
            return x + 1
        return x * 2 if hasattr(settings, "no_such_setting") else x * 3

    compiled = dynamo.compile(program, backend="eager", fullgraph=True)
    x = torch.ones(3)
    for value in (False, True, False, True):
        with settings.patch(debug_assert=value):
            assert torch.equal(compiled(x), program(x))
    assert len(compiled.context.records) == 2
