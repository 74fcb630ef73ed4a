"""torch's functions in captured code: values read, indices, operators, queries."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
import torch
import torch.nn as nn

import dynamo
from tests.dynamo.differential import check
from tests.dynamo.torch_ops import Programs, check_program

program = Programs()


def matrix():
    return torch.arange(6.0).reshape(2, 3) + 0.5


@program(matrix)
def item(x):
    return x[0, 0].item() + 1, x * 2


@program(matrix)
def tolist(x):
    return x.tolist(), x * 2


@program(matrix, breaks="DATA_DEPENDENT_VALUE", graphs=5)
def python_numbers(x):
    return int(x[0, 0]), float(x[0, 1]), bool(x[0, 2]), complex(x[0, 0]), x * 2


@torch.compiler.nested_compile_region
def region(x, *, factor=1):
    return x.sin() * factor


@program(matrix)
def marked_region(x):
    return region(x) + region(x * 2, factor=3)


@program(matrix)
def iteration(x):
    return len(x), [r for r in x], [*x], list(enumerate(x)), tuple(x[0]), x + 1


@program(matrix)
def identity_in_containers(x):
    y = x + 1
    return (
        any(x is t for t in [y, x]),
        {id(x): 1}[id(x)],
        {x: 2}[x],
        hash(x) == hash(x),
        id(x) == id(x),
        x + 1,
        x in {x},
        x in {y: 1},
    )


@program(matrix)
def reversed_tensor(x):
    return list(reversed(x)), x + 1


@program(matrix)
def reversed_method(x):
    return x.__reversed__(), x[::2], x[:, -1]


@program(matrix, breaks="DATA_DEPENDENT_VALUE")
def contains(x):
    return 0.5 in x


@program(matrix, lambda: torch.tensor([True, False]), lambda: torch.tensor([1, 0]))
def indices(x, m, i):
    return (
        x[0],
        x[..., 0],
        x[None],
        x[:, None],
        x[1:, ::2],
        x[i],
        x[i, i],
        x[[0, 1]],
        x[[0, 1], [1, 2]],
        x[i, :2],
        x[...],
        x[()],
        x[:, [2, 0]],
        x[0, -1],
        x[torch.tensor(1)],
        x[-1:],
        x[slice(0, 1)],
        x[(0, slice(None))],
        x[True],
        x[None, ..., None],
        x[i.unsqueeze(1), i],
        x[range(2)],
    )


@program(matrix, lambda: torch.tensor([True, False]))
def idx_mask(x, m):
    return x[m]


@program(matrix, lambda: torch.tensor([True, False]))
def idx_mask2(x, m):
    return x[[True, False]]


@program(matrix)
def numpy_indices(x):
    return x[np.int64(1)], x[np.int32(0), np.int64(2)], x[np.array([1, 0])], x[: np.int64(1)]


@program(matrix, breaks="OP_ERROR")
def idx_err(x):
    return x[5]


@program(matrix, breaks="OP_ERROR")
def idx_err2(x):
    return x[0, 0, 0]


@program(matrix, breaks="OP_ERROR")
def idx_err3(x):
    return x["a"]


@program(matrix, breaks="OP_ERROR")
def idx_err4(x):
    return x[1.5]


@program(matrix, lambda: torch.tensor([True, False]), lambda: torch.tensor([1, 0]))
def stores(x, m, i):
    x[0] = 1
    x[..., 0] = 2.0
    x[i, i] = x[0, :2].clone()
    x[m] = 3
    x[x > 2] = 0
    x[None] = 5
    x[[0, 1], [1, 2]] = torch.tensor([7.0, 8.0])
    x[:, 1] += 1
    x[0, 0] -= x[1, 1]
    x[()] *= 2
    x[m, 1] = 9
    return x


@program(matrix, breaks="NOT_GRAPH_ARGUMENT")
def setidx2(x):
    y = x.clone()
    y[np.int64(0)] = np.float32(3.0)
    y[0, 1] = True
    y[1:] = [[1, 2, 3]] if False else 4
    return y


@program(matrix, breaks="OP_ERROR")
def setidx3(x):
    y = x.clone()
    y[0] = [1, 2, 3]
    return y


@program(matrix, breaks="OP_ERROR")
def setidx4(x):
    y = x.clone()
    y[0] = (1.0, 2, 3)
    return y


@program(matrix, breaks="OP_ERROR")
def setidx_err(x):
    y = x.clone()
    y[0] = torch.ones(5)
    return y


@program(matrix, breaks="ITEM_MUTATION")
def delidx(x):
    del x[0]
    return x


@program(matrix, lambda: torch.tensor(1))
def tensor_as_int(x, i):
    return x[i], torch.index_select(x, 0, i), x.narrow(0, int(i), 1)


@program(matrix, lambda: torch.tensor(1), breaks="DATA_DEPENDENT_VALUE")
def tensor_range(x, i):
    return [j for j in range(i)], x


@program(matrix, lambda: torch.tensor(1))
def tensor_slice(x, i):
    return x[:i], x


@program(matrix, lambda: torch.tensor(2))
def tensor_size(x, i):
    return torch.zeros(i), x


@program(matrix)
def formats_metadata(x):
    return f"{x.shape} {x.dtype}", str(x.dtype), x + 1


@program(matrix)
def formats_values(x):
    return f"{x}", x + 1


@program(matrix)
def repr_of_values(x):
    return repr(x), str(x), x + 1


@program(matrix)
def operators(x):
    return (
        x // 2,
        x % 2,
        2**x,
        x**2,
        2 - x,
        2 / x,
        3 // x,
        3 % x,
        -x,
        +x,
        abs(x),
        ~(x > 1),
        x > 1,
        1 < x,
        x == x,
        x != 1,
        (x > 1) & (x < 3),
        (x > 1) | True,
        (x > 1) ^ (x > 2),
        x @ x.T,
        pow(x, 2),
        math.floor(2.5),
        x.int() << 1,
        x.int() >> 1,
        1 << x.int(),
        operator.matmul(x, x.T),
        operator.neg(x),
        operator.itemgetter(0)(x),
        operator.truediv(x, 2),
        x.__add__(1),
        x.__radd__(1),
        x.__rsub__(1),
        x.__eq__(x),
        operator.iadd(x.clone(), 1),
        torch.Tensor.add(x, 1),
        torch.Tensor.__rsub__(x, 1),
        torch.Tensor.norm(x),
        torch.Tensor.split(x, 1),
    )


@program(matrix, breaks="NOT_CONSTANT")
def math_of_tensor(x):
    return math.sqrt(x[0, 0])


@program(matrix, breaks="NOT_CONSTANT", graphs=3)
def math_rounding(x):
    return math.floor(x[0, 0]), math.ceil(x[0, 0]), math.trunc(x[0, 0])


@program(matrix)
def minmax(x):
    return max(x[0], key=lambda t: 0), sum(x), sum([x, x]), sum(x[0]), x + 1


@program(matrix, breaks="DATA_DEPENDENT_JUMP", graphs=2)
def minmax2(x):
    return max(x[0]), x + 1


@program(matrix, breaks="DATA_DEPENDENT_JUMP", graphs=2)
def sort2(x):
    return sorted(x[0]), x + 1


@program(matrix)
def dtypes(x):
    return (
        x.to(torch.float64),
        x.double(),
        x.to("cpu"),
        x.to(device="cpu", dtype=torch.half),
        x.type(torch.int),
        x.type("torch.LongTensor"),
        x.type_as(x.int()),
        x.float() is x,
        x.to(x.dtype) is x,
        x.to(torch.float32, copy=True) is x,
        x.cpu() is x,
        x.bool(),
        x.contiguous() is x,
        x.T.contiguous(),
        x.half(),
        x.bfloat16(),
        x.long(),
        x.short(),
        x.char(),
        x.byte(),
        x.cfloat(),
    )


@program(matrix)
def dtype_and_device_queries(x):
    return (
        x.dtype.is_floating_point,
        x.dtype.is_complex,
        x.dtype.itemsize,
        x.dtype.is_signed,
        x.dtype.to_complex(),
        torch.float.to_real(),
        str(x.device),
        x.device.type,
        x.device.index,
        torch.device("cpu") == x.device,
        torch.device("cuda", 1).index,
        x.dtype == torch.float,
        x.dtype in (torch.half, torch.float),
        {torch.float: 1}[x.dtype],
        torch.finfo(torch.half).max,
        torch.finfo(x.dtype).dtype,
        torch.iinfo(torch.uint8).bits,
        torch.contiguous_format,
        torch.strided is x.layout,
        x + 1,
    )


@program(matrix)
def isinstance_of_tensor(x):
    return (
        isinstance(x, torch.Tensor),
        isinstance(x, torch.FloatTensor),
        isinstance(x, nn.Parameter),
        isinstance(x, (int, torch.Tensor)),
        type(x) is torch.Tensor,
        type(x),
        isinstance(x.shape, tuple),
        issubclass(type(x), torch.Tensor),
        x + 1,
    )


@program(matrix)
def isinstance_of_legacy_types(x):
    return isinstance(x, torch.LongTensor), isinstance(x.long(), torch.LongTensor), x + 1


@program(matrix)
def legacy_constructors_of_tensors(x):
    view, copy = torch.Tensor(x), torch.FloatTensor(x.clone())
    view.mul_(2)
    return view, copy, x, torch.Tensor(x.long()), torch.LongTensor(x.long())


def test_a_legacy_constructor_gives_a_view():
    def f(x):
        return torch.Tensor(x)

    def of_another_kind(x):
        return torch.DoubleTensor(x)

    for make in (lambda: torch.ones(2, 3).t(), lambda: nn.Parameter(torch.ones(3))):
        x = make()
        made, expected = dynamo.compile(f, backend="eager", fullgraph=True)(x), f(x)
        assert made.data_ptr() == x.data_ptr() and made.stride() == x.stride()
        assert type(made) is torch.Tensor and str(made.grad_fn)[:6] == str(expected.grad_fn)[:6]
    with pytest.raises(TypeError):
        dynamo.compile(of_another_kind, backend="eager")(torch.ones(2))


@pytest.mark.parametrize(("function", "args", "graphs", "code"), program)
def test_program(function, args, graphs, code):
    check_program(function, args, graphs, code)


def test_questions_about_sizes_are_answered_as_for_plain_ones():
    from torch.fx.experimental import symbolic_shapes as shapes

    def program(x):
        if shapes.guard_or_false(x.shape[0] == 4) or shapes.guard_or_true(x.shape[1] > 3):
            x = x + 1
        if shapes.statically_known_true(x.shape[0] * x.shape[1] > 12):
            x = x * 2
        return x - 1 if shapes.has_free_symbols(x) or shapes.guard_size_oblivious(False) else x * 3

    compiled = dynamo.compile(program, backend="eager", fullgraph=True)
    for rows, columns in ((4, 3), (2, 3), (5, 2), (2, 6), (7, 7)):
        x = torch.ones(rows, columns)
        assert torch.equal(compiled(x), program(x))


@pytest.mark.parametrize("condition", [3, None, torch.tensor(True)])
def test_questions_about_sizes_refuse_what_is_no_bool(condition):
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    def program(x):
        return x + 1 if guard_or_false(condition) else x - 1

    for run in (program, dynamo.compile(program, backend="eager")):
        with pytest.raises(AssertionError):
            run(torch.ones(2))


def test_a_method_of_tensor_called_with_another_object():
    """No method of the object's own takes its place."""
    check("""
        class Dual:
            def cos(self): return 5
        class Sub(torch.Tensor): pass
        def f(x, method, *args):
            try:
                return x * 2, method(*args)
            except TypeError as error:
                return x * 3, str(error)
        ---
        run(T(3), torch.Tensor.cos, Dual())
        run(T(3), Sub.cos, Dual())
        run(T(3), torch.Tensor.cos, {}.keys())
        run(T(3), torch.Tensor.cos, T(3))
    """)
