"""Functions of torch said in Python: captured like user code wherever the original is called."""

from __future__ import annotations

import contextlib
import itertools
import math

import torch
from torch.masked import _ops as _masked

from fxgraph import spaces


def check_with(error_type, cond, message):
    """torch._check_with for a bool: the original asks the machinery of symbolic sizes."""
    if isinstance(cond, torch.Tensor):
        raise TypeError(
            "cond must be a bool, but got a Tensor. For tensor conditions, use "
            "torch._check_tensor_all() to assert that all elements are true."
        )
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if expected(cond):
        return
    if message is None:
        text = (
            "Expected cond to be True, but got False. (Could this error message be improved? If "
            "so, please report an enhancement request to PyTorch.)"
        )
    elif not callable(message):
        raise TypeError("message must be a callable")
    else:
        text = str(message())
    raise error_type(text)


def expected(cond):
    """torch._check's condition; on data, capture takes the condition for granted
    (values/tensors/captured_scalars.py).
    """
    return cond


def is_true(condition):
    """guard_or_false and its kin."""
    assert isinstance(condition, bool)
    return condition


def is_symbolic(value):
    """has_free_symbols and its kin."""
    return False


def check_is_size(i, message=None, *, max=None):
    """torch._check_is_size: the original also tells the machinery of symbolic sizes."""
    torch._check(i >= 0, message)
    if max is not None:
        torch._check(i <= max, message)


def annotate(the_type, the_value):
    """torch.jit.annotate outside of a script."""
    return the_value


def run_region(function, *args, **kwargs):
    """A call of a function marked by torch.compiler.nested_compile_region, as outside of
    compilers.
    """
    return function(*args, **kwargs)


def run_operands(function, operands):
    """torch._higher_order_ops' strict_mode."""
    return function(*operands)


def foreach_map(op, *operands, **kwargs):
    """torch._higher_order_ops' foreach_map."""
    if not any(isinstance(operand, list | tuple) for operand in operands):
        return op(*operands)
    lists = [
        operand if isinstance(operand, list | tuple) else itertools.repeat(operand)
        for operand in operands
    ]
    return [op(*items) for items in zip(*lists)]


def run_with_hints(function, args, kwargs, hints):
    """torch._higher_order_ops' hints_wrapper."""
    return function(*args, **kwargs)


def run_while(condition, body, carried):
    """torch._higher_order_ops.while_loop, iteration by iteration."""
    while condition(*carried):
        carried = body(*carried)
    return tuple(carried)


def run_with_grad_mode(enabled, function, *args, **kwargs):
    """torch._higher_order_ops' wrap_with_set_grad_enabled."""
    with torch.set_grad_enabled(enabled):
        return function(*args, **kwargs)


def run_with_autocast(device_type, dtype, enabled, cache_enabled, function, *args, **kwargs):
    """torch._higher_order_ops' wrap_with_autocast."""
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return function(*args, **kwargs)


def call_custom_op(op, *args, **kwargs):
    """CustomOpDef.__call__."""
    return op._opoverload(*args, **kwargs)


def call_graph_module(module, *args, **kwargs):
    """The call of a GraphModule, which adds a note to exceptions."""
    return torch.nn.Module.__call__(module, *args, **kwargs)


def index_by_tensors(mode, func, types, args=(), kwargs=None):
    """The mode of flex_attention's functions: an index by tensors without dimensions, or by ints,
    is no view.
    """
    if func is torch.Tensor.__getitem__:
        indices = torch.utils._pytree.tree_leaves(args[1])
        if all(isinstance(index, (torch.Tensor, int)) for index in indices):
            device = args[0].device
            indices = [
                torch.tensor(index, dtype=torch.int64, device=device)
                if isinstance(index, int)
                else index
                for index in indices
            ]
            return torch.ops.aten.index(args[0], indices)
    return func(*args, **(kwargs or {}))


class IndexByTensors(torch.overrides.TorchFunctionMode):
    __torch_function__ = index_by_tensors


def call_optimized_module(module, *args, **kwargs):
    """The call of a module that torch.compile or torch.compiler.disable wrapped."""
    if type(module.__dict__["dynamo_ctx"]).__name__ == "DisableContext":
        return module.forward(*args, **kwargs)
    return module._modules["_orig_mod"](*args, **kwargs)


def copy_tensor(x):
    """copy.copy of a leaf of autograd: writes to the copy are none of the leaf's versions."""
    if isinstance(x, torch.nn.Parameter):
        return torch.nn.Parameter(x.data, x.requires_grad)
    made = x.data
    return made.requires_grad_() if x.requires_grad else made


def deep_tensor(x):
    """copy.deepcopy of a tensor that has its memory for itself."""
    made = x.detach().clone(memory_format=torch.preserve_format)
    return made.requires_grad_() if x.requires_grad else made


def deep_parameter(x):
    """copy.deepcopy of a parameter."""
    data = x.data.clone(memory_format=torch.preserve_format)
    return torch.nn.Parameter(data, x.requires_grad)


def new_buffer(data, *, persistent=True):
    """torch.nn.Buffer of a tensor that requires no gradient."""
    made = data.detach()
    made.persistent = persistent
    made._is_buffer = True
    return made


def _refusal(function, *args):
    try:
        function(*args)
    except Exception as error:
        return str(error)


_NO_TENSORS = _refusal(getattr(torch._C, "_group_tensors_by_device_and_dtype", None), [[]], False)


def group_tensors(tensorlistlist, with_indices=False):
    """torch._C._group_tensors_by_device_and_dtype."""
    if not tensorlistlist[0]:
        raise RuntimeError(_NO_TENSORS)
    grouped = {}
    for i, first in enumerate(tensorlistlist[0]):
        key = (first.device, first.dtype)
        if key not in grouped:
            grouped[key] = ([[] for _ in tensorlistlist], [])
        lists, indices = grouped[key]
        for part, tensors in zip(lists, tensorlistlist):
            if tensors:
                part.append(tensors[i])
        if with_indices:
            indices.append(i)
    return grouped


def new_legacy(tensor, *args):
    """tensor.new(sizes or data): the constructor that takes both."""
    if len(args) == 1 and isinstance(args[0], torch.Size):
        return tensor.new_empty(args[0])
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        return tensor.new_tensor(args[0])
    return tensor.new_empty(args if args else (0,))


def combine_input_and_mask(op, input, mask, *args):
    """torch.masked._ops._combine_input_and_mask: the original defines a class, which only masked
    tensors need, in each call.
    """
    if _masked.is_masked_tensor(input):
        return Combine.apply(input.get_data(), input.get_mask(), op, args)
    return _combined(op, input, mask, args)


def _combined(op, input, mask, args):
    if mask is None:
        return input
    canonical = _masked._input_mask(input, mask=mask)
    return _masked._where(canonical, input, _masked._reduction_identity(op.__name__, input, *args))


class Combine(torch.autograd.Function):
    """The data of a masked tensor, with the identity of a reduction where the mask is False."""

    @staticmethod
    def forward(ctx, input, mask, op, args):
        ctx.save_for_backward(mask)
        ctx.mark_non_differentiable(mask)
        return _combined(op, input, mask, args)

    @staticmethod
    def backward(ctx, gradient):
        (mask,) = ctx.saved_tensors
        data = gradient.get_data() if _masked.is_masked_tensor(gradient) else gradient
        return _masked.as_masked_tensor(data, mask), None, None, None


def legacy_tensor(dtype, *args):
    """torch.Tensor and its kin, which take sizes or data."""
    if len(args) == 1 and isinstance(args[0], torch.Size):
        return torch.empty(args[0], dtype=dtype, device="cpu")
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        return torch.tensor(args[0], dtype=dtype, device="cpu")
    sizes = [n if type(n) is int else int(n) for n in args]  # members of an enum, too
    return torch.empty(sizes if args else (0,), dtype=dtype, device="cpu")


# -- tensors of nested sequences that hold tensors ------------------------------------------------
def tensor_of(data, dtype, device):
    """torch.tensor(data), for a nest of sequences with 0-dimensional tensors and numbers."""
    shape = shape_of(data)
    items = flattened(data)
    if dtype is None:
        dtype = torch.result_type(0, 0) if not items else dtype_of(items[0])
        for item in items[1:]:
            dtype = torch.promote_types(dtype, dtype_of(item))
    parts = [
        item.detach().to(device=device, dtype=dtype)
        if isinstance(item, torch.Tensor)
        else torch.tensor(item, dtype=dtype, device=device)
        for item in items
    ]
    return torch.stack(parts).reshape(shape)


def shape_of(data):
    shape = []
    while isinstance(data, (list, tuple)):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return shape


def flattened(data):
    if not isinstance(data, (list, tuple)):
        return [data]
    found = []
    for item in data:
        found.extend(flattened(item))
    return found


def dtype_of(item):
    """The dtype that torch.tensor infers from one item."""
    if isinstance(item, torch.Tensor):
        return item.dtype
    if isinstance(item, bool):
        return torch.bool
    if isinstance(item, int):
        return torch.int64
    default = torch.get_default_dtype()
    return default.to_complex() if isinstance(item, complex) else default


def broadcast_shapes(*shapes):
    """torch.broadcast_shapes, which raises where shapes do not fit."""
    given = [(shape,) if isinstance(shape, int) else shape for shape in shapes if shape is not None]
    if not all(isinstance(shape, (tuple, list)) for shape in given):
        return torch._refs._broadcast_shapes(*shapes)
    common = [1] * max([len(shape) for shape in given], default=0)
    for shape in given:
        for place, size in enumerate(shape, len(common) - len(shape)):
            if size == 1:
                continue
            if size < 0 or (common[place] != 1 and common[place] != size):
                return torch._refs._broadcast_shapes(*shapes)
            common[place] = size
    return torch.Size(common)


def linspace(start, end, steps, dtype, device=None, requires_grad=False):
    """torch.linspace of floats, of a number of steps that varies."""
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    device = torch.get_default_device() if device is None else device
    made = spaces.linspace(start, end, steps, dtype, device)
    return made.requires_grad_() if requires_grad else made


def one_hot(tensor, num_classes):
    """F.one_hot with a number of classes that varies."""
    if num_classes < 1 or tensor.dtype is not torch.int64:  # more words, and -1, are torch's
        raise RuntimeError("Class values must be smaller than num_classes.")
    made = torch.zeros((*tensor.shape, num_classes), dtype=torch.int64, device=tensor.device)
    return made.scatter(-1, tensor.unsqueeze(-1), 1)


def combinations(input, r=2, with_replacement=False):
    """torch.combinations of a tensor whose size varies."""
    if r < 1:  # the words are torch's
        return torch.combinations(input[:0], r, with_replacement)
    places = torch.meshgrid([torch.arange(len(input), device=input.device)] * r, indexing="ij")
    mask = torch.ones_like(places[0], dtype=torch.bool)
    for one, after in itertools.pairwise(places):
        mask = mask & (one <= after if with_replacement else one < after)
    grids = torch.meshgrid([input] * r, indexing="ij")
    return torch.stack([grid.masked_select(mask) for grid in grids], 1)


# -- constraints of distributions -----------------------------------------------------------------
# torch asks whether the first check holds everywhere before it makes the next; these make both.
def check_symmetric(constraint, value):
    rows, columns = value.shape[-2:]
    if rows != columns and math.prod(value.shape[:-2]):
        return torch.full(value.shape[:-2], False, dtype=torch.bool, device=value.device)
    return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


def check_positive_definite(constraint, value):
    symmetric = check_symmetric(constraint, value)
    if value.shape[-2] != value.shape[-1]:
        return symmetric
    if value.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        if not symmetric.all():
            return symmetric
        return torch.linalg.cholesky_ex(value).info.eq(0)
    definite = torch.linalg.cholesky_ex(value).info.eq(0)
    return torch.where(symmetric.all(), definite, symmetric)


# -- flex_attention -------------------------------------------------------------------------------
def annotate_nodes(annotation):
    """torch.fx.traceback.annotate: notes for graphs of torch's."""
    return contextlib.nullcontext()


def flex_attention(query, key, value, score_mod, block_mask, scale, kernel_options):
    """Attention as torch's operator computes it without a kernel of its own, in the same order."""
    groups = query.size(1) // key.size(1)
    value = torch.repeat_interleave(value, groups, dim=1)
    key = torch.repeat_interleave(key, groups, dim=1)
    if query.size(0) != key.size(0) and not query.size(0) > 1 == key.size(0):
        message = f"Bq and Bkv must broadcast. Got Bq={query.size(0)} and Bkv={key.size(0)}"
        raise RuntimeError(message)
    key = key.expand((query.size(0), *key.size()[1:]))
    value = value.expand((query.size(0), *value.size()[1:]))
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(precision) @ key.to(precision).transpose(-2, -1)
    places = [torch.arange(0, size, device=scores.device) for size in scores.shape]
    scores = (scores * scale).to(precision)
    with IndexByTensors():
        allowed = _over_places(block_mask[-1], ())(*places)
        changed = _over_places(score_mod, (0,))(scores, *places)
    lowest = torch.full((), -math.inf, dtype=precision, device=scores.device)
    scores = torch.where(allowed, changed, lowest)
    nothing = torch.all(scores == -math.inf, dim=-1)
    logsumexp = torch.where(nothing, -math.inf, scores.logsumexp(dim=-1))
    largest = torch.max(scores, dim=-1)[0]
    weights = torch._safe_softmax(scores, dim=-1)
    out = weights.to(query.dtype) @ value.to(query.dtype)
    return _strided_like(out, query), logsumexp / math.log(2), largest / math.log(2)


def _over_places(function, first):
    """`function` of one score's place, for all of them at once."""
    for dims in _PLACES:
        function = torch.vmap(function, in_dims=(*first, *dims))
    return function


_PLACES = (
    (None, None, None, 0),
    (None, None, 0, None),
    (None, 0, None, None),
    (0, None, None, None),
)


def _strided_like(out, query):
    """In the order of the query's strides; items of the last dimension are side by side."""
    last = query.dim() - 1
    order = sorted(range(query.dim()), key=lambda i: query.stride(i))
    if order[0] != last and (order[0] == last or out.size(order[0]) != 1):
        order = [last, *(i for i in order if i != last)]
    strides = [0] * out.dim()
    step = 1
    for dim in order:
        strides[dim] = step
        step *= out.size(dim)
    return out.new_empty_strided(out.shape, strides).copy_(out)


# -- scalars that are tensors ---------------------------------------------------------------------
# torch reads their value; optimizers whose step is captured have them (their step counts are
# tensors), and mean the tensor.
def get_value(x):
    """torch.optim's access to a scalar: arithmetic with the result is that of Python's floats."""
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def addcdiv_(tensor, first, second, value):
    return tensor.add_((first * value).div_(second))


def addcmul_(tensor, first, second, value):
    return tensor.add_((first * value).mul_(second))


def add_(tensor, other, alpha):
    return tensor.add_(other * alpha)


def sub_(tensor, other, alpha):
    return tensor.sub_(other * alpha)


def batch_norm(
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    """The statistics of the batch, and then the running ones moved by a momentum that varies."""
    if not training or running_mean is None or running_var is None or not input.numel():
        return torch.nn.functional.batch_norm(
            input, running_mean, running_var, weight, bias, training, 0.0, eps
        )
    mean, var = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    result = torch.nn.functional.batch_norm(input, mean, var, weight, bias, True, 1.0, eps)
    with torch.no_grad():
        running_mean.mul_(1 - momentum).add_(mean * momentum)
        running_var.mul_(1 - momentum).add_(var * momentum)
    return result


def detect_causal_mask(mask, is_causal=None, size=None):
    """torch.nn's question whether a mask is causal, which compares the values of the mask."""
    if is_causal is not None or mask is None:
        return is_causal is True
    count = mask.size(-2) if size is None else size
    return mask.dim() == 2 and tuple(mask.shape) == (count, count) and is_causal_mask(mask)


def is_causal_mask(mask):
    """Whether a square mask of zeros and minus infinity lets each place see those before."""
    if not mask.is_floating_point():
        return False
    return torch.equal(mask, torch.full_like(mask, -math.inf).triu(1))


def scalars_of(scalars, count):
    """A scalar for each tensor."""
    if isinstance(scalars, (list, tuple)):
        return scalars
    return scalars.unbind() if scalars.dim() else [scalars] * count


def foreach_add_(tensors, others, alpha):
    for tensor, other in zip(tensors, others):
        tensor.add_(other * alpha)


def foreach_addcdiv_(tensors, first, second, scalars):
    scalars = scalars_of(scalars, len(tensors))
    for tensor, one, other, scalar in zip(tensors, first, second, scalars):
        tensor.addcdiv_(one * scalar, other)


def foreach_addcmul_(tensors, first, second, scalars):
    scalars = scalars_of(scalars, len(tensors))
    for tensor, one, other, scalar in zip(tensors, first, second, scalars):
        tensor.addcmul_(one * scalar, other)


def foreach_pow(base, exponents):
    """torch._foreach_pow with a number as base."""
    return tuple([torch.pow(base, exponent) for exponent in exponents])


def accumulate_gradients(found):
    """Accumulate the gradients of leaves as autograd does; `found`: (leaf, gradient, strides of the
    copy that is stored, or None: the gradient itself is).
    """
    with torch.no_grad():
        for leaf, gradient, strides in found:
            if leaf.grad is not None:
                leaf.grad.add_(gradient)
            elif strides is not None:
                leaf.grad = gradient.new_empty_strided(gradient.shape, strides).copy_(gradient)
            else:
                leaf.grad = gradient


def retain_gradients(found):
    """Store the gradients of intermediates that retain theirs; `found`: (tensor, gradient)."""
    with torch.no_grad():
        for tensor, gradient in found:
            if tensor.grad is not None:
                tensor.grad = tensor.grad + gradient
            else:
                tensor.grad = gradient.clone(memory_format=torch.contiguous_format)


def accumulate_histories(found):
    """accumulate_gradients with create_graph=True: the stored gradients can be differentiated."""
    for leaf, gradient, strides in found:
        if leaf.grad is not None:
            leaf.grad = leaf.grad + gradient
        else:
            leaf.grad = gradient.new_empty_strided(gradient.shape, strides).copy_(gradient)


def istft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    normalized=False,
    onesided=None,
    length=None,
    return_complex=False,
):
    """The original, a composite of operators, reads a number to refuse windows with gaps, which the
    graph checks here. It also has the unusual arguments, and all errors.
    """
    given = (input, n_fft, hop_length, win_length, window, center, normalized, onesided, length)
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    bins, start = n_fft // 2 + 1, n_fft // 2 if center else 0
    usual = not return_complex and input.is_complex() and input.dim() in (2, 3)
    usual = usual and 0 < hop <= width <= n_fft
    if usual and window is None:
        window = torch.ones(width, dtype=input.dtype.to_real(), device=input.device)
    usual = usual and window.dim() == 1 and window.size(0) == width
    usual = usual and window.dtype is input.dtype.to_real() and window.device == input.device
    wanted = onesided if onesided is not None else n_fft != input.size(-2)
    usual = usual and input.size(-2) == (bins if wanted else n_fft)
    total = n_fft + hop * (input.size(-1) - 1)
    end = start + length if length is not None else total - start
    if not (usual and start < end <= total):
        return torch.ops.aten.istft(*given, return_complex=return_complex)
    if width != n_fft:
        left = (n_fft - width) // 2
        window = torch.nn.functional.pad(window, (left, n_fft - width - left))
    spectra = (input if input.dim() == 3 else input.unsqueeze(0)).transpose(1, 2)[..., :bins]
    frames = torch.fft.irfft(spectra, n_fft, -1, "ortho" if normalized else "backward")
    waves = _overlapped(frames * window, total, n_fft, hop)[:, start:end]
    squares = window.square().expand(1, frames.size(1), n_fft)
    envelope = _overlapped(squares, total, n_fft, hop)[:, start:end]
    if envelope.abs().min() < 1e-11:
        raise _refused(torch.ops.aten.istft, given)
    waves = waves / envelope
    return waves if input.dim() == 3 else waves.squeeze(0)


def _overlapped(frames, total, size, step):
    """The sum of frames that begin every `step` elements."""
    return torch.ops.aten.unfold_backward(frames, [frames.size(0), total], 1, size, step)


def _refused(function, args):
    """The exception that the function raises."""
    try:
        function(*args)
    except RuntimeError as error:
        return error
