"""Tensors in captured code: out=, changes of form, attributes, factories, random numbers."""

from __future__ import annotations

import enum
import math

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.dynamo.torch_ops import Programs, check_program

program = Programs()


def matrix():
    return torch.arange(6.0).reshape(2, 3) + 0.5


@program(matrix)
def strided_up_to_the_end(x):
    return (x * 2).as_strided((3,), (2,), 1)


@program(matrix)
def out_is_returned(x):
    o = torch.empty(2, 3)
    r = torch.add(x, 1, out=o)
    return r is o, o, r


@program(matrix)
def methods_by_name(x):
    y = x.__getattribute__("tan")() * x.__getattribute__("shape")[0] + x.sin.__call__()
    return y, x.__getattribute__.__call__("mT"), x.__mul__.__call__(3), torch.cos.__call__(x)


@program(matrix)
def no_attribute_of_the_name(x):
    try:
        return x.__getattribute__("tann")
    except AttributeError as error:
        return x + 1, str(error)


@program(matrix, breaks="TENSOR_METADATA", graphs=2)
def out_resize(x):
    o = torch.empty(0)
    r = torch.mul(x, 2, out=o)
    return o, r is o, o.shape


@program(matrix, lambda: torch.zeros(2, 3))
def out_input(x, o):
    r = torch.add(x, 1, out=o)
    return r is o, o + 1


@program(matrix, lambda: torch.zeros(0), breaks="TENSOR_METADATA")
def out_input_resize(x, o):
    r = torch.add(x, 1, out=o)
    return r is o, o + 1


@program(matrix)
def out_alias(x):
    torch.add(x, 1, out=x)
    return x * 2


@program(matrix)
def out_tuple(x):
    a = torch.empty(2)
    b = torch.empty(2, dtype=torch.long)
    r = torch.max(x, 1, out=(a, b))
    return r.values is a, r[1] is b, r, a + b, type(r).__name__


@program(matrix)
def out_view(x):
    o = torch.zeros(2, 6)
    torch.sin(x, out=o[:, ::2])
    return o


@program(matrix)
def out_dtype(x):
    o = torch.zeros(2, 3, dtype=torch.float64)
    torch.sin(x, out=o)
    return o


@program(matrix, breaks="OP_ERROR")
def out_wrongdtype(x):
    o = torch.zeros(2, 3, dtype=torch.int32)
    torch.sin(x, out=o)
    return o


@program(lambda: torch.randn(2, 3, requires_grad=True), breaks="OP_ERROR")
def out_grad(x):
    o = torch.zeros(2, 3)
    torch.sin(x, out=o)
    return o


@program(matrix)
def out_matmul(x):
    o = torch.zeros(2, 2)
    return torch.matmul(x, x.T, out=o), o


@program(matrix)
def out_none(x):
    return torch.add(x, x, out=None)


@program(matrix)
def out_arange(x):
    o = torch.zeros(4)
    torch.arange(4, out=o)
    return o


@program(matrix)
def out_cat(x):
    o = torch.zeros(4, 3)
    torch.cat([x, x], out=o)
    return o


@program(matrix, breaks="TENSOR_METADATA", graphs=2)
def out_linalg(x):
    q = torch.empty(0)
    r = torch.empty(0)
    a = torch.linalg.qr(x, out=(q, r))
    return a[0] is q, q.shape, r


@program(matrix)
def out_list(x):
    a = torch.empty(2)
    b = torch.empty(2, dtype=torch.long)
    r = torch.max(x, 1, out=[a, b])
    return r


@program(matrix, lambda: [torch.empty(2), torch.empty(2, dtype=torch.long)])
def out_list_in(x, o):
    r = torch.sort(x[:, 0], out=tuple(o))
    return r


@program(matrix)
def unsqueezed_in_place(x):
    y = x + 1
    z = y.unsqueeze_(0)
    return y, z is y, y.shape


@program(matrix)
def transposed_in_place(x):
    y = x + 1
    v = y[0]
    y.t_()
    y.mul_(2)
    return y, v


@program(matrix)
def view_transposed_in_place(x):
    y = x.view(3, 2)
    y.transpose_(0, 1)
    return y


@program(matrix, breaks="TENSOR_METADATA")
def input_transposed_in_place(x):
    x.t_()
    return x * 2


@program(matrix)
def resized(x):
    y = x + 1
    y.resize_(3, 2)
    return y


@program(matrix)
def empty_resized(x):
    y = torch.empty(0)
    y.resize_(3, 2).fill_(2.0)
    return y


@program(matrix)
def resized_as(x):
    y = torch.empty(0)
    y.resize_as_(x)
    y.zero_()
    return y


@program(matrix, breaks="TENSOR_METADATA", graphs=2)
def set_to_another(x):
    y = torch.empty(0)
    y.set_(x)
    return y + 1


@program(matrix)
def detached_in_place(x):
    y = x * 2
    y.detach_()
    return y + 1


@program(matrix)
def asks_for_gradient(x):
    y = torch.zeros(3).requires_grad_()
    return y, y.requires_grad


@program(matrix)
def made_with_gradient(x):
    y = torch.zeros(3, requires_grad=True)
    return y, y.requires_grad, y.is_leaf


@program(matrix)
def reqgrad_setter(x):
    y = torch.zeros(3)
    y.requires_grad = True
    return y, y.requires_grad


@program(matrix)
def data_setter(x):
    y = torch.zeros(3)
    y.data = x * 2
    return y + 1


@program(matrix, matrix)
def data_setter_in(x, y):
    x.data = y * 2
    return x + 1


@program(lambda: nn.Parameter(torch.ones(2, 3)), matrix, graphs=2)
def data_setter_param(p, y):
    p.data = y * 2
    return p + 1


@program(lambda: nn.Parameter(torch.ones(2, 3)), matrix, graphs=2)
def data_add(p, y):
    p.data.add_(y)
    return p * 2


@program(lambda: nn.Parameter(torch.ones(2, 3)), matrix, graphs=2)
def data_copy(p, y):
    p.data.copy_(y)
    p.data[0] = 3
    return p * 2


@program(lambda: nn.Parameter(torch.ones(2, 3)), matrix, graphs=2)
def grad_setter(p, y):
    p.grad = y * 2
    return p.grad + 1


@program(lambda: nn.Parameter(torch.ones(2, 3)), matrix, graphs=2)
def grad_none(p, y):
    p.grad = None
    return p.grad, y + 1


def pg():
    p = nn.Parameter(torch.ones(2, 3))
    p.grad = torch.full((2, 3), 2.0)
    return p


@program(pg, graphs=2)
def grad_read(p):
    return p.grad * 2, p.grad is None


@program(pg, graphs=2)
def grad_zero(p):
    p.grad.zero_()
    return p.grad + 1


@program(pg, graphs=2)
def grad_zero2(p):
    p.grad = None
    return p * 2


@program(pg, matrix, graphs=2)
def grad_swap(p, y):
    p.grad = p.grad * 2
    p.grad.add_(y)
    return p.grad


@program(lambda: torch.randn(2, 3, dtype=torch.complex64))
def attributes_of_complex(x):
    return x.T, x.mT, x.H, x.mH, x.real, x.imag, x.conj(), x.is_complex(), x.abs(), x.angle()


@program(lambda: torch.randn(2, 3, requires_grad=True))
def attributes_of_leaf(x):
    return (
        x.grad,
        x.grad_fn,
        x.is_leaf,
        x.requires_grad,
        (x * 2).is_leaf,
        (x * 2).requires_grad,
        x.data,
        x.detach(),
        x.retains_grad,
        x.output_nr,
    )


@program(lambda: torch.randn(2, 3, requires_grad=True), breaks="ATTRIBUTE_ACCESS")
def grad_fn(x):
    y = x * 2
    return y.grad_fn.name()[:3], y


@program(lambda: torch.randn(2, 3, requires_grad=True))
def whether_there_is_a_grad_fn(x):
    y = x * 2
    with torch.no_grad():
        z = y * 3
    if y.grad_fn is not None and z.grad_fn is None:
        y = y + 1
    return y.grad_fn is None, y.detach().grad_fn is None, x.grad_fn is not None, y, z


@program(matrix)
def metadata(x):
    return (
        x.shape,
        x.dtype,
        x.device,
        x.layout,
        x.ndim,
        x.itemsize,
        x.nbytes,
        x.is_cuda,
        x.is_sparse,
        x.is_quantized,
        x.size(),
        x.size(0),
        x.stride(),
        x.stride(1),
        x.storage_offset(),
        x.numel(),
        x.nelement(),
        x.dim(),
        x.ndimension(),
        x.element_size(),
        x.is_contiguous(),
        x.is_contiguous(memory_format=torch.channels_last) if x.dim() == 4 else 0,
        x.type(),
        x.get_device(),
        x.is_floating_point(),
        x.is_signed(),
        x.is_inference(),
        x.is_conj(),
        x.is_neg(),
        x.dense_dim() if hasattr(x, "dense_dim") else 0,
        x.dim_order(),
        x.is_same_size(x),
        x + 1,
    )


@program(matrix, breaks="ATTRIBUTE_ACCESS")
def version(x):
    a = x._version
    x.add_(1)
    b = x._version
    return b - a


@program(matrix, breaks="ATTRIBUTE_ACCESS")
def base(x):
    y = x[0]
    return y._base is x, y._is_view(), x._is_view()


@program(matrix, breaks="ATTRIBUTE_ACCESS")
def name_q(x):
    return x.name, x + 1


@program(matrix)
def questions(x):
    return (
        torch.is_tensor(x),
        torch.is_floating_point(x),
        torch.is_complex(x),
        torch.numel(x),
        torch.is_storage(x),
        torch.is_same_size(x, x),
        torch.is_conj(x),
        torch.is_inference(x),
        torch.result_type(x, 1),
        torch.promote_types(torch.int, torch.float),
        torch.can_cast(torch.int, torch.float),
        torch.get_default_dtype(),
        torch.finfo(x.dtype).eps,
        torch.iinfo(torch.int8).max,
        torch.finfo(x.dtype).min,
        torch.finfo().tiny,
        x * 1,
    )


@program(matrix)
def sizes(x):
    s = x.shape
    return (
        s.numel(),
        s[0],
        s[1:],
        s + (1,),
        tuple(s),
        list(s),
        s == (2, 3),
        len(s),
        2 in s,
        s.index(3),
        s.count(2),
        hash(s) == hash(tuple(s)),
        isinstance(s, torch.Size),
        torch.Size([1, 2]),
        torch.Size((x.size(0),)),
        type(s[:1]),
        s[::-1],
        2 * s,
        repr(s),
        f"{s}",
        x.new_zeros(s),
        sorted(s),
        max(s),
        sum(s),
        math.prod(s),
    )


class Sizes(enum.IntEnum):
    THREE = 3


@program(matrix, lambda: torch.Size((np.int64(3), 2)), breaks="UNCAPTURED_CALL")
def sizes_of_arrays(x, size):
    return x + size.numel()


@program(matrix, lambda: torch.Size((Sizes.THREE, 2)), breaks="UNCAPTURED_CALL")
def sizes_of_enums(x, size):
    return x + size.numel()


@program(matrix)
def unpack_size(x):
    a, b = x.shape
    *r, c = x.size()
    return x.view(b, a), x.reshape(-1, *x.shape[1:]), r, c


@program(matrix)
def factories(x):
    return (
        torch.arange(3),
        torch.arange(1.0, 2, 0.5),
        torch.full((2,), 3),
        torch.full((2,), True),
        torch.full((2,), 1.5, dtype=torch.int),
        torch.zeros_like(x),
        torch.ones_like(x, dtype=torch.long),
        torch.eye(3),
        torch.linspace(0, 1, 4),
        torch.logspace(0, 1, 3),
        torch.tril_indices(3, 3),
        torch.triu_indices(2, 3),
        torch.empty(2).fill_(1),
        x.new_zeros(2),
        x.new_full((2,), 7),
        x.new_tensor([1, 2]),
        x.new_ones(3, dtype=torch.int),
        x.new_empty(2).zero_(),
        torch.hann_window(4),
        torch.kaiser_window(5),
        torch.hamming_window(3),
        torch.blackman_window(4),
        torch.bartlett_window(3),
        torch.complex(x, x),
        torch.polar(x, x),
        torch.scalar_tensor(3.0),
        torch.range(0, 3),
        torch.vander(x[0]),
        torch.empty_like(x).copy_(x),
        torch.zeros(2, 3, out=None),
        torch.full_like(x, 3),
    )


@program(matrix)
def tensors(x):
    return (
        torch.tensor([1, 2]),
        torch.tensor([1.0, 2]),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.half),
        torch.tensor(3),
        torch.tensor(True),
        torch.tensor([]),
        torch.tensor(1j),
        torch.tensor((1, 2.0)),
        torch.tensor([True, 2]),
        torch.tensor(3.0, requires_grad=True),
        torch.tensor(range(3)),
        torch.as_tensor([1, 2]),
        torch.as_tensor(3),
        torch.asarray([1, 2]),
        torch.LongTensor([1, 2]),
        torch.FloatTensor([1, 2]),
        torch.Tensor([1, 2]),
        torch.Tensor(2, 3).zero_(),
        torch.tensor([x.shape[0], 2]),
    )


@program(matrix)
def tensor_of_tensors(x):
    return torch.tensor([x[0, 0], x[0, 1]])


@program(matrix)
def tensor_of_tensor(x):
    return torch.tensor(x), torch.tensor(x[0, 0])


@program(matrix)
def tensor_mix(x):
    return torch.tensor([[x[0, 0], 1.0], [2, x[0, 1]]])


@program(matrix)
def as_tensor(x):
    return torch.as_tensor(x) is x, torch.as_tensor(x, dtype=torch.float64), torch.asarray(x), x + 1


@program(matrix)
def tensor_list(x):
    l = [1, 2, 3]
    l.append(4)
    return torch.tensor(l), torch.tensor([l, l])


@program(matrix)
def random_numbers(x):
    return (
        torch.rand(3),
        torch.randn(2),
        torch.randint(0, 5, (3,)),
        torch.randperm(4),
        torch.rand_like(x),
        torch.randn_like(x),
        torch.normal(0.0, 1.0, (2,)),
        torch.normal(x, 1.0),
        torch.bernoulli(x / 10),
        torch.multinomial(x, 2),
        torch.randint_like(x, 5),
        x.clone().uniform_(),
        x.clone().normal_(),
        torch.poisson(x),
        x.clone().random_(5),
        x.clone().exponential_(),
        torch.empty(3).bernoulli_(0.5),
        F.dropout(x, 0.5),
        torch.dropout(x, 0.5, True),
        x.clone().geometric_(0.5),
        x.clone().cauchy_(),
        x.clone().log_normal_(),
    )


@program(matrix)
def seeded(x):
    torch.manual_seed(3)
    a = torch.rand(2)
    return a


@program(matrix)
def seeded2(x):
    y = x + 1
    torch.manual_seed(3)
    a = torch.rand(2)
    torch.manual_seed(3)
    return torch.rand(2) == a, y


@program(matrix)
def rngstate(x):
    s = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(s)
    b = torch.rand(2)
    return a == b


@program(matrix)
def forkrng(x):
    with torch.random.fork_rng():
        a = torch.rand(2)
    return a, torch.rand(2)


@program(matrix, lambda: torch.Generator().manual_seed(3), breaks="NOT_GRAPH_ARGUMENT")
def generator_from_outside(x, g):
    return torch.rand(3, generator=g), torch.randn(2, generator=g), x.clone().uniform_(generator=g)


@program(matrix, breaks="NOT_CALLABLE")
def new_generator(x):
    g = torch.Generator()
    g.manual_seed(2)
    return torch.rand(3, generator=g)


@program(matrix, breaks="UNCAPTURED_CALL")
def initial_seed(x):
    return torch.initial_seed() >= 0, torch.default_generator.initial_seed()


@pytest.mark.parametrize(("function", "args", "graphs", "code"), program)
def test_program(function, args, graphs, code):
    check_program(function, args, graphs, code)
