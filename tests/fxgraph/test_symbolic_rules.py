"""Our rules for symbolic sizes, against what the operators give for several sizes; no guards."""

from __future__ import annotations

import operator

import pytest
import sympy
import torch

from fxgraph import expressions
from fxgraph.fake_results import make_fake, metadata
from fxgraph.symbolic_rules import RULES
from fxgraph.symbolic_values import expr_of
from fxgraph.symbols import ShapeEnv
from fxgraph.torch_fx import fake_tensor_mode

aten = torch.ops.aten
SIZES = [(4, 6), (2, 3), (7, 2), (5, 5), (1, 3), (3, 1), (1, 1)]


class Symbols:
    """Fake tensors over two symbols, a and b; the same tensors for values of them."""

    def __init__(self):
        self.env = ShapeEnv()
        self.a = self.env.new_symbol(4, "a", 1)
        self.b = self.env.new_symbol(6, "b", 1)
        self.mode = fake_tensor_mode()
        self.mode.shape_env, self.mode.cache_enabled = self.env, False

    def fake(self, dtype, size, stride=None):
        size = tuple(size(self.a, self.b))
        stride = tuple(stride(self.a, self.b)) if stride else row_major(size)
        return make_fake(self.mode, dtype, size, stride, 0, torch.device("cpu"))

    def value(self, number, a, b):
        values = {expr_of(self.a): a, expr_of(self.b): b}
        return expressions.evaluate(expr_of(number), values)

    def meta(self, meta, a, b):
        dtype, size, stride, offset, device = meta
        numbers = [tuple(self.value(n, a, b) for n in part) for part in (size, stride)]
        return dtype, *numbers, self.value(offset, a, b), device


def row_major(size):
    strides = [1]
    for n in reversed(size[1:]):
        strides.insert(0, strides[0] * n)
    return strides[: len(size)]


def tensor(size, dtype=torch.float32, stride=None):
    return ("tensor", size, dtype, stride)


def made(spec, symbols, a=None, b=None):
    """What a spec is: with `a` and `b` a real argument, else a fake one."""
    if isinstance(spec, tuple) and spec and spec[0] == "tensor":
        _, size, dtype, stride = spec
        if a is None:
            return symbols.fake(dtype, size, stride)
        size = tuple(size(a, b))
        strides = tuple(stride(a, b)) if stride else row_major(size)
        return torch.empty_strided(size, strides, dtype=dtype).zero_()
    if callable(spec):
        return spec(symbols.a, symbols.b) if a is None else spec(a, b)
    return spec


X = tensor(lambda a, b: (a, b, 8))
TURNED = tensor(lambda a, b: (a, b, 8), stride=lambda a, b: (8, 8 * a, 1))
FLAT = tensor(lambda a, b: (a * b, 8))
WEIGHT, BIAS = tensor(lambda a, b: (8, 3)), tensor(lambda a, b: (3,))
PER_CHANNEL = tensor(lambda a, b: (8,))
ONES = tensor(lambda a, b: (a, 1, b))
ROWS, COLUMNS = tensor(lambda a, b: (a, 1, 8)), tensor(lambda a, b: (b, 8))
NUMBERS = tensor(lambda a, b: (a, b), torch.int64)
TRUTHS = tensor(lambda a, b: (a, b), torch.bool)
# operator, arguments, whether our rule knows
CASES = [
    *[(op, (X,), True) for op in RULES if op._schema.name in ("aten::relu", "aten::gelu")],
    (aten.exp.default, (TURNED,), False),
    (aten.exp.default, (ONES,), True),
    (aten.exp.default, (tensor(lambda a, b: (a, b), torch.int64),), False),
    (aten.exp.default, (tensor(lambda a, b: (a // 3, b)),), True),
    (aten.add.Tensor, (X, X), True),
    (aten.add.Tensor, (X, 2), True),
    (aten.add.Tensor, (X, 2.5), True),
    (aten.mul.Tensor, (X, tensor(lambda a, b: (a, b, 8), torch.float64)), True),
    (aten.mul.Tensor, (X, PER_CHANNEL), True),
    (aten.mul.Tensor, (PER_CHANNEL, X), True),
    (aten.add.Tensor, (X, ONES), False),
    (aten.add.Tensor, (ROWS, COLUMNS), True),
    (aten.sub.Tensor, (tensor(lambda a, b: (a, 1)), tensor(lambda a, b: (1, b))), True),
    (aten.div.Tensor, (NUMBERS, 2), True),
    (aten.div.Tensor, (NUMBERS, NUMBERS), True),
    (aten.mul.Tensor, (NUMBERS, 2.5), True),
    (aten.lt.Tensor, (NUMBERS, tensor(lambda a, b: (b,))), True),
    (aten.ge.Scalar, (X, 0), True),
    (aten.bitwise_and.Tensor, (TRUTHS, TRUTHS), True),
    (aten.bitwise_not.default, (TRUTHS,), True),
    (aten.logical_and.default, (TRUTHS, NUMBERS), True),
    (aten.maximum.default, (X, PER_CHANNEL), True),
    (aten.where.self, (TRUTHS, NUMBERS, tensor(lambda a, b: (b,))), True),
    (aten.where.self, (TRUTHS, NUMBERS, tensor(lambda a, b: ())), True),
    (aten.masked_fill.Scalar, (NUMBERS, TRUTHS, 3), True),
    (aten.masked_fill.Scalar, (tensor(lambda a, b: (b,)), TRUTHS, 3.0), True),
    (aten.clone.default, (NUMBERS,), True),
    (aten.clone.default, (TURNED,), False),
    (torch.ops.prims.convert_element_type.default, (NUMBERS, torch.float32), True),
    (torch.ops.prims.convert_element_type.default, (TURNED, torch.float64), False),
    (aten.tril.default, (TRUTHS,), True),
    (aten.triu.default, (X, 1), True),
    (aten.triu.default, (TURNED, 1), False),
    (aten.cumsum.default, (TRUTHS, 0), True),
    (aten.cumsum.default, (X, -1), True),
    (aten.cumsum.default, (X, 3), False),
    (aten._softmax.default, (X, -1, False), True),
    (aten._log_softmax.default, (X, 3, False), False),
    (aten.expand.default, (ROWS, lambda a, b: [a, 5, 8]), True),
    (aten.expand.default, (PER_CHANNEL, lambda a, b: [a, b, -1]), False),
    (aten.expand.default, (PER_CHANNEL, [4, 5, -1]), True),
    (aten.expand.default, (ROWS, lambda a, b: [a, b, 8]), False),
    (aten.expand.default, (X, lambda a, b: [a, b, 8]), True),
    (aten.expand.default, (X, lambda a, b: [a, a, 8]), False),
    (aten.sub.Tensor, (X, TURNED), False),
    (aten.div.Tensor, (FLAT, FLAT), True),
    (aten._sample_dirichlet.default, (X,), True),
    (aten._dirichlet_grad.default, (X, TURNED, X), True),
    (aten.binomial.default, (TURNED, X), True),
    (aten.binomial.default, (X, PER_CHANNEL), False),
    (aten.native_layer_norm.default, (X, [8], PER_CHANNEL, PER_CHANNEL, 1e-5), True),
    (aten.native_layer_norm.default, (X, lambda a, b: [b, 8], None, None, 1e-5), True),
    (aten.native_layer_norm.default, (TURNED, [8], None, None, 1e-5), False),
    (aten.mm.default, (FLAT, WEIGHT), True),
    (aten.addmm.default, (BIAS, FLAT, WEIGHT), True),
    (aten.addmm.default, (tensor(lambda a, b: (a * b, 3)), FLAT, WEIGHT), False),
    (aten.bmm.default, (X, tensor(lambda a, b: (a, 8, b))), True),
    (aten.view.default, (X, [-1, 8]), True),
    (aten.view.default, (X, lambda a, b: [a * b, 2, 4]), True),
    (aten.view.default, (X, lambda a, b: [b, a, -1]), True),
    (aten.view.default, (X, [-1]), True),
    (aten.view.default, (X, [-1, 16]), False),
    (aten.view.default, (TURNED, lambda a, b: [a, b, 2, 4]), False),
    (aten.view.default, (ONES, lambda a, b: [a, b]), True),
    (aten._unsafe_view.default, (FLAT, lambda a, b: [a, b, 8]), True),
    (aten.transpose.int, (X, 1, 2), True),
    (aten.transpose.int, (TURNED, 0, -1), True),
    (aten.permute.default, (X, [2, 0, -2]), True),
    (aten.unsqueeze.default, (X, 0), True),
    (aten.unsqueeze.default, (TURNED, -1), True),
    (aten.unsqueeze.default, (TURNED, 2), True),
]


@pytest.mark.parametrize("op, args, known", CASES, ids=lambda part: getattr(part, "__name__", None))
def test_rule(op, args, known):
    symbols = Symbols()
    fakes = [made(arg, symbols) for arg in args]
    asked = list(symbols.env.guards)
    metas = RULES[op](*fakes)
    assert (metas is not None) == known
    assert symbols.env.guards == asked
    if metas is None:
        return
    for a, b in SIZES:
        real = op(*[made(arg, symbols, a, b) for arg in args])
        real = [real] if isinstance(real, torch.Tensor) else list(real)
        assert [symbols.meta(meta, a, b) for meta in metas] == [metadata(t) for t in real]


def test_the_mode_runs_an_operator_once():
    symbols = Symbols()
    x = symbols.fake(torch.float32, lambda a, b: (a, b), lambda a, b: (1, a))
    with symbols.mode:
        first = torch.cumsum(x, 0)
        asked = len(symbols.env.guards)
        second = torch.cumsum(x, 0)
        view = x.unsqueeze(0)
    assert first is not second
    assert metadata(first)[1:] == metadata(second)[1:]
    assert len(symbols.env.guards) == asked
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_results_depend_on_the_default_dtype():
    symbols = Symbols()
    x = symbols.fake(torch.int64, lambda a, b: (a, b))
    with symbols.mode:
        first = x / 2
        torch.set_default_dtype(torch.float64)
        try:
            second = x / 2
        finally:
            torch.set_default_dtype(torch.float32)
    assert (first.dtype, second.dtype) == (torch.float32, torch.float64)


def test_writes_are_not_remembered():
    symbols = Symbols()
    x = symbols.fake(torch.float32, lambda a, b: (a, b))
    with symbols.mode:
        assert x.add_(1) is x
        assert x.add_(1) is x
    assert x._version == 2


@pytest.mark.parametrize("kind", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_relations_of_symbols_have_the_general_form(kind):
    """What is written down for a symbol and a number is what the algebra gives."""
    x, y, z = (sympy.Symbol(name, integer=True) for name in "xyz")
    sides = [x, y, x + 3, y - 2, sympy.Integer(4), sympy.Integer(-1)]
    for a in sides:
        for b in sides:
            short = expressions.relation(kind, a, b)
            general = expressions.relation(kind, a + 2 * z, b + 2 * z)
            assert short == general, (kind, a, b)
            for value in (-3, 0, 2, 4):
                values = {x: value, y: 1}
                truth = OPERATORS[kind](*[expressions.evaluate(side, values) for side in (a, b)])
                assert expressions.evaluate(short, values) is truth


def test_numbers_alone_have_no_rule():
    assert RULES[torch.ops.aten.add.Tensor](1, 2) is None


OPERATORS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
