"""Results over fake tensors that are kept for the process: what a second mode gets of them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fxgraph.fake_results import PLAIN_RESULTS, metadata
from fxgraph.symbols import ShapeEnv
from fxgraph.torch_fx import fake_tensor_mode

X = torch.randn(3, 1, 5)
PROGRAMS = {
    "sum": lambda x: x.sum(1, keepdim=True),
    "pow": lambda x: x**2,
    "true division": lambda x: x.long() / 2,
    "matmul": lambda x: x @ x.mT,
    "view": lambda x: x[1:, :, ::2],
    "views": lambda x: x.split(2)[1],
    "expand": lambda x: x.expand(3, 4, 5),
    "channels": lambda x: x[None].contiguous(memory_format=torch.channels_last).relu(),
    "complex": lambda x: torch.view_as_complex(x[..., :4].clone().reshape(3, 2, 2)),
    "several": lambda x: x.max(0)[1],
    "copysign": lambda x: torch.copysign(x.mT, torch.ones(5, 3).mT[:, None].mT),
    "copysign of a number": lambda x: torch.copysign(x[:, 0].t(), -1.0),
    "floor division": lambda x: x[:, 0].t() // torch.ones(5, 3),
    "cut off": lambda x: torch.div(torch.ones(5, 3), x[:, 0].t(), rounding_mode="floor"),
    "logarithm of a sigmoid": lambda x: F.logsigmoid(x[:, 0].t()),
    "pow of a number": lambda x: 2.0 ** x[:, 0].t(),
    "poisson": lambda x: torch.poisson(x[:, 0].t().abs()),
    "leaky with random slopes": lambda x: F.rrelu(x[:, 0].t(), training=True),
    "elements of others": lambda x: torch.isin(x[:, 0].t(), x),
    "elements that are a number": lambda x: torch.isin(x[:, 0].t(), 2.0),
    "made": lambda x: torch.arange(6).reshape(2, 3),
}


def described(tensor):
    return metadata(tensor), tensor.requires_grad, tensor.is_inference()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_every_mode_gets_what_the_operators_give(name, requires_grad):
    real = X.clone().requires_grad_(requires_grad)
    expected = PROGRAMS[name](real)
    for _ in range(2):
        mode = fake_tensor_mode()
        fake = mode.from_tensor(real)
        with mode:
            result = PROGRAMS[name](fake)
        assert described(result) == described(expected)
        assert result.fake_mode is mode
        shares = result.untyped_storage()._cdata == fake.untyped_storage()._cdata
        assert shares == (expected.untyped_storage()._cdata == real.untyped_storage()._cdata)


def test_two_results_of_one_call_are_two_tensors():
    mode = fake_tensor_mode()
    x = mode.from_tensor(X)
    with mode:
        first, second = x * 3, x * 3
        second.add_(1)
    assert first is not second and first._version == 0
    assert first.untyped_storage()._cdata != second.untyped_storage()._cdata


def test_a_kept_view_is_written_through():
    for _ in range(2):
        mode = fake_tensor_mode()
        x = mode.from_tensor(X)
        with mode:
            view = x[1:].add_(1)
        assert x._version == view._version > 0


def test_gradients_flow_through_kept_results():
    for _ in range(2):
        mode = fake_tensor_mode()
        x = mode.from_tensor(X.clone().requires_grad_())
        with mode:
            (x.transpose(0, 2) * 2).sum().backward()
        assert x.grad.shape == x.shape


def test_inference_tensors_are_made_in_inference_mode_alone():
    for inference in (False, True, False):
        mode = fake_tensor_mode()
        x = mode.from_tensor(X)
        with torch.inference_mode(inference), mode:
            assert (x * 5).is_inference() is inference


def test_the_default_dtype_and_device_count():
    mode = fake_tensor_mode()
    found = []
    for dtype in (torch.float32, torch.float64):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with mode:
                found.append(torch.ones(7).dtype)
        finally:
            torch.set_default_dtype(before)
    assert found == [torch.float32, torch.float64]


def test_tensors_of_two_modes_are_refused_as_before():
    one, other = fake_tensor_mode(), fake_tensor_mode()
    x, y = one.from_tensor(X), other.from_tensor(X)
    with one:
        x + x
    with pytest.raises(AssertionError, match="[Mm]ixing"), one:
        x + y


def test_a_mode_that_gets_symbols_keeps_their_results_alone():
    mode = fake_tensor_mode()
    assert mode.results is PLAIN_RESULTS
    mode.shape_env, mode.cache_enabled = ShapeEnv(), False
    assert mode.results is not PLAIN_RESULTS and mode.results is mode.results


VIEWS = {
    "view": [lambda x: x.view(3, 5), lambda x: x.view(-1), lambda x: x.view(5, -1, 1, 3)],
    "view of no row-major tensor": [lambda x: x.mT.view(3, 5), lambda x: x[:, :, 1:].view(3, 4)],
    "empty view": [lambda x: x[:0].view(0, 5), lambda x: x.sum().view(1, 1)],
    "permute": [lambda x: x.permute(2, 0, 1), lambda x: x[1:].permute(-1, 1, 0)],
    "select": [lambda x: x[1], lambda x: x[:, 0], lambda x: x[-1, :, -2], lambda x: x[..., 4]],
    "slice": [lambda x: x[5:], lambda x: x[-9:2], lambda x: x[..., 1:-1:3], lambda x: x[2:1]],
    "slice of a slice": [lambda x: x[1:][:, :, 1::2][1:, :, :1], lambda x: x[..., -1:]],
    "layer norm": [
        lambda x: torch.nn.functional.layer_norm(x, (5,)),
        lambda x: torch.nn.functional.layer_norm(x[..., 1:], (4,)),
        lambda x: torch.native_layer_norm(x, (1, 5), None, None, 1e-5)[1],
    ],
    "product": [lambda x: x @ torch.ones(5, 2, dtype=x.dtype), lambda x: x[:0] @ x[0].mT],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_are_those_of_memory(name, dtype):
    for function in VIEWS[name]:
        x = X.to(dtype)
        try:
            expected = described(function(x))
        except RuntimeError as error:
            expected = type(error)
        for _ in range(2):
            mode = fake_tensor_mode()
            fake = mode.from_tensor(x)
            with mode:
                if isinstance(expected, type):
                    with pytest.raises(RuntimeError):
                        function(fake)
                else:
                    assert described(function(fake)) == expected


@pytest.mark.parametrize("key", [(3,), (0, 0, 5), (slice(None), -2)])
def test_indices_out_of_range_are_refused(key):
    mode = fake_tensor_mode()
    x = mode.from_tensor(X)
    with pytest.raises(IndexError), mode:
        x[key]


@pytest.mark.parametrize("made_inside", [True, False])
@pytest.mark.parametrize("viewed_inside", [True, False])
def test_views_of_inference_tensors(made_inside, viewed_inside):
    def views(x):
        return x[1:], x.mT, x.expand(3, 4, 5), x + 1

    def found(start):
        with torch.inference_mode(made_inside):
            x = start.clone()
        with torch.inference_mode(viewed_inside):
            return [described(t) for t in views(x)]

    expected = found(X)
    for _ in range(2):
        mode = fake_tensor_mode()
        with mode:
            fake = mode.from_tensor(X)
            views(fake)  # kept
            assert found(fake) == expected


def test_zeros_that_forward_mode_autograd_makes_stay_its_own():
    mode = fake_tensor_mode()
    for _ in range(2):
        with mode:
            made = torch._efficientzerotensor([3])
        assert made._is_zerotensor()
