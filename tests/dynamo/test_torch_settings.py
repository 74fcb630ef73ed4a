"""torch's global settings changed between two calls of a compiled function, and inside of it."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

import dynamo
from tests.dynamo.torch_settings import CLASSES, setters

BACKENDS = ("aot_eager", "inductor")


def test_every_setter_is_classified():
    """A setter of a newer torch wants a reason, and a guard if its value reaches a result."""
    assert set(setters()) - CLASSES.keys() == set()


# -- programs --------------------------------------------------------------------------------------
def matrix():
    return torch.linspace(-1, 1, 16, dtype=torch.float32).reshape(4, 4)


def creates(x):
    return (
        torch.ones(2) * 1.5,
        torch.tensor([1.0, 2.0]),
        torch.arange(0, 1, 0.25),
        torch.full((2,), 2.5),
        torch.zeros(2, dtype=torch.int64) / 2,
        torch.eye(2),
        torch.scalar_tensor(2.0),
        torch.linspace(0, 1, 3),
        x.long() * 0.5,
        x.new_ones(2),
        torch.get_default_dtype(),
        torch.result_type(torch.ones(2, dtype=torch.int64), 1.0),
        x + 1,
    )


def only_creates(x):
    return torch.ones(2) * 1.5


def computes(x):
    image = x.reshape(1, 1, 4, 4)
    heads = x.reshape(1, 2, 2, 4)
    return (
        x @ x,
        F.linear(x, x),
        F.conv2d(image, torch.ones(1, 1, 3, 3, dtype=x.dtype)),
        F.scaled_dot_product_attention(heads, heads, heads),
        F.batch_norm(image, None, None, training=True),
        F.interpolate(image, scale_factor=2.0, mode="bilinear"),
        x.cumsum(0),
        x.index_put((torch.tensor([0, 0]),), x[:2], accumulate=True),
        (x * 1e-30) * 1e-9,
    )


def allocates(x):
    made = torch.empty(4, 4), torch.empty_like(x, dtype=torch.int16), x.new_empty(3, dtype=bool)
    return *made, torch.empty_strided((2, 2), (1, 2), dtype=torch.float64) + 1


def grows(x):
    return (x.requires_grad_() * 2).requires_grad, (x * 2)


def reads(x):
    return (
        x + 1,
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.is_warn_always_enabled(),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_device(),
        torch.backends.cudnn.enabled,
        torch.backends.mkldnn.enabled,
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.__future__.get_swap_module_params_on_conversion(),
    )


# -- changes ---------------------------------------------------------------------------------------
@contextlib.contextmanager
def _set(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


@contextlib.contextmanager
def _attribute(owner, name, value):
    before = getattr(owner, name)
    try:
        with contextlib.suppress(RuntimeError):  # what this build does not know
            setattr(owner, name, value)
        yield
    finally:
        with contextlib.suppress(RuntimeError):
            setattr(owner, name, before)


@contextlib.contextmanager
def _filled(value):
    with _set(torch.use_deterministic_algorithms, True, False):
        with _attribute(torch.utils.deterministic, "fill_uninitialized_memory", value):
            yield


def _denormal():
    return _set(torch.set_flush_denormal, True, False)


def _threads():
    return _set(torch.set_num_threads, 1, torch.get_num_threads())


class _Doubles(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.Tensor.add else result


backends = torch.backends
# name: (what changes it and undoes that, the programs whose results it may change)
CHANGES = {
    "default dtype": (
        lambda: _set(torch.set_default_dtype, torch.float64, torch.float32),
        [creates, only_creates],
    ),
    "default dtype half": (
        lambda: _set(torch.set_default_dtype, torch.bfloat16, torch.float32),
        [creates, only_creates],
    ),
    "default tensor type": (
        lambda: _set(torch.set_default_tensor_type, torch.DoubleTensor, torch.FloatTensor),
        [creates],
    ),
    "default device": (lambda: _set(torch.set_default_device, "meta", None), [only_creates]),
    "with device": (lambda: torch.device("meta"), [only_creates]),
    "deterministic": (
        lambda: _set(torch.use_deterministic_algorithms, True, False),
        [computes, reads],
    ),
    "deterministic debug mode": (
        lambda: _set(torch.set_deterministic_debug_mode, "warn", "default"),
        [computes, reads],
    ),
    "not filled": (lambda: _filled(False), [computes, reads]),
    "matmul precision": (
        lambda: _set(torch.set_float32_matmul_precision, "medium", "highest"),
        [computes, reads],
    ),
    "no grad": (lambda: torch.no_grad(), [grows, reads]),
    "set grad enabled": (lambda: torch.set_grad_enabled(False), [grows, reads]),
    "inference mode": (lambda: torch.inference_mode(), [grows, reads]),
    "autocast": (lambda: torch.autocast("cpu"), [computes, reads]),
    "autocast half": (lambda: torch.autocast("cpu", dtype=torch.float16), [computes, reads]),
    "autocast of a device that is not here": (
        lambda: torch.autocast("xpu", dtype=torch.float16),
        [computes, reads],
    ),
    "autocast dtype": (
        lambda: _set(lambda d: torch.set_autocast_dtype("cpu", d), torch.float16, torch.bfloat16),
        [reads],
    ),
    "autocast cache": (lambda: _set(torch.set_autocast_cache_enabled, False, True), [reads]),
    "anomaly": (lambda: torch.autograd.set_detect_anomaly(True), [computes, reads]),
    "warn always": (lambda: _set(torch.set_warn_always, True, False), [reads]),
    "flush denormal": (_denormal, [computes]),
    "threads": (_threads, [computes, reads]),
    "function mode": (lambda: _Doubles(), [lambda x: x.add(1)]),
    "no torch function": (lambda: torch._C.DisableTorchFunction(), [computes]),
    "attention": (
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        [computes, reads],
    ),
    "math attention": (lambda: _set(backends.cuda.enable_math_sdp, False, True), [reads]),
    "flash attention": (lambda: _set(backends.cuda.enable_flash_sdp, False, True), [computes]),
    "cudnn": (lambda: _attribute(backends.cudnn, "enabled", False), [computes, reads]),
    "cudnn benchmark": (lambda: _attribute(backends.cudnn, "benchmark", True), [computes]),
    "cudnn deterministic": (lambda: _attribute(backends.cudnn, "deterministic", True), [computes]),
    "cudnn tf32": (lambda: _attribute(backends.cudnn, "allow_tf32", False), [computes]),
    "mkldnn": (lambda: _attribute(backends.mkldnn, "enabled", False), [computes, reads]),
    "mkldnn deterministic": (
        lambda: _attribute(backends.mkldnn, "deterministic", True),
        [computes],
    ),
    "nnpack": (lambda: backends.nnpack.flags(False), [computes]),
    "fastpath": (lambda: _set(backends.mha.set_fastpath_enabled, False, True), [reads]),
    "swapped parameters": (
        lambda: _set(torch.__future__.set_swap_module_params_on_conversion, True, False),
        [reads],
    ),
    "view replay": (lambda: torch.autograd._force_original_view_tracking(True), [computes, grows]),
    "forward-mode autograd": (lambda: torch.autograd.forward_ad.dual_level(), [computes]),
}
CASES = [(name, program) for name, (_, programs) in CHANGES.items() for program in programs]


def outcome(function):
    try:
        result = function(matrix())
    except Exception as error:
        return type(error), str(error).partition("\n")[0]
    return [_plain(part) for part in (result if isinstance(result, tuple) else (result,))]


def _plain(part):
    if not isinstance(part, torch.Tensor):
        return part
    return part.dtype, part.device.type, part.requires_grad, part.is_inference(), part


def agree(one, other):
    if isinstance(one, torch.Tensor):
        if one.is_meta or one.shape != other.shape:
            return one.shape == other.shape
        loose = one.dtype in (torch.float16, torch.bfloat16)
        return torch.allclose(
            one, other, rtol=1e-2 if loose else 1e-5, atol=1e-2 if loose else 1e-6, equal_nan=True
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(agree, one, other))
    return one == other and type(one) is type(other)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "program"), CASES)
def test_changed_between_calls(name, program, backend):
    compiled = dynamo.compile(program, backend=backend)
    change = CHANGES[name][0]
    assert agree(outcome(program), outcome(compiled))
    for _ in range(2):
        with change():
            expected = outcome(program)
            assert agree(expected, outcome(compiled)), expected
            assert agree(expected, outcome(compiled)), expected
        assert agree(outcome(program), outcome(compiled))


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_is_filled_where_eager_fills_it(backend):
    compiled = dynamo.compile(allocates, backend=backend)
    unknown = outcome(compiled)  # nobody knows what is in it
    with _filled(True):
        filled = outcome(allocates)
        assert agree(filled, outcome(compiled))
    assert [part[:4] for part in unknown] == [part[:4] for part in filled]
    outcome(compiled)
    with _filled(True):
        assert agree(filled, outcome(compiled))


# -- settings that a frame changes itself ----------------------------------------------------------
def changes_dtype(x):
    before = torch.ones(2) * 1.5
    torch.set_default_dtype(torch.float64)
    try:
        inside = torch.ones(2) * 1.5 + x.sum()
    finally:
        torch.set_default_dtype(torch.float32)
    return before, inside, torch.ones(2) / 3


def leaves_dtype(x):
    made = torch.ones(2) * 1.5
    torch.set_default_dtype(torch.float64)
    return made, torch.ones(2) * 1.5 + x.sum()


def changes_device(x):
    with torch.device("meta"):
        inside = torch.ones(2)
    return inside, torch.ones(2) + x.sum()


def changes_deterministic(x):
    torch.use_deterministic_algorithms(True)
    try:
        filled = torch.empty(3) + x.sum()
    finally:
        torch.use_deterministic_algorithms(False)
    return filled, x + 1, torch.are_deterministic_algorithms_enabled()


def changes_precision(x):
    torch.set_float32_matmul_precision("medium")
    product = x @ x, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    return (*product, torch.get_float32_matmul_precision())


def changes_grad(x):
    torch.set_grad_enabled(False)
    inside = x.requires_grad_() * 2
    torch.set_grad_enabled(True)
    return inside, x * 2


def changes_attention(x):
    heads = x.reshape(1, 2, 2, 4)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        inside = F.scaled_dot_product_attention(heads, heads, heads)
    return inside, F.scaled_dot_product_attention(heads, heads, heads)


def changes_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = x @ x
    return inside, x @ x


def changes_device_twice(x):
    with torch.device("meta"):
        first = torch.ones(2), torch.tensor([1.0]), torch.zeros(2, device="cpu"), torch.arange(3.0)
        dynamo.graph_break()
        second = torch.ones(2), torch.tensor([1.0])
        with torch.device("cpu"):
            third = torch.ones(2)
    return *first, *second, third, torch.ones(2) + x.sum(), torch._C._len_torch_function_stack()


def leaves_device_by_exception(x):
    try:
        with torch.device("meta"):
            inside = torch.ones(2)
            raise ValueError
    except ValueError:
        return inside, torch.ones(2), torch.get_default_device()


def enters_device_by_hand(x):
    device = torch.device("meta")
    device.__enter__()
    first = torch.ones(2)
    dynamo.graph_break()
    second = torch.zeros(2)
    device.__exit__(None, None, None)
    return first, second, torch.ones(2)


def enters_device_by_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.device("meta"))
        first = torch.ones(2)
        dynamo.graph_break()
        return first, torch.zeros(2)


def enters_device_in_callee(x):
    def callee():
        with torch.device("meta"):
            dynamo.graph_break()
            return torch.ones(2)

    return callee(), torch.ones(2)


def sets_device(x):
    torch.set_default_device("meta")
    inside = torch.ones(2)
    torch.set_default_device(None)
    return inside, torch.ones(2), torch.get_default_device()


INSIDE = [changes_dtype, leaves_dtype, changes_device, changes_deterministic, changes_precision]
INSIDE += [changes_device_twice, leaves_device_by_exception, enters_device_by_hand, sets_device]
INSIDE += [enters_device_by_stack, enters_device_in_callee]
INSIDE += [changes_grad, changes_attention, changes_autocast]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", INSIDE)
def test_changed_inside(program, backend):
    compiled = dynamo.compile(program, backend=backend)
    try:
        for _ in range(3):
            expected = outcome(program)
            left = torch.get_default_dtype()
            torch.set_default_dtype(torch.float32)
            assert agree(expected, outcome(compiled)), expected
            assert torch.get_default_dtype() == left
            if left == torch.float32:
                continue
            expected = outcome(program)  # from what it leaves behind
            assert agree(expected, outcome(compiled))
            torch.set_default_dtype(torch.float32)
    finally:
        torch.set_default_dtype(torch.float32)
