"""Numbers of data that do not fit the sizes of an operation: eager's exception in the user's line,
or eager's result, and tensors written before as eager leaves them.
"""

import traceback

import pytest
import torch
import torch.nn.functional as F

import dynamo
from tests.dynamo.capturing import same

EXPRESSIONS = {
    "x.view(n, -1)": (3, 0, -1, 5),
    "x.reshape(n, 4)": (3, 1, -1, -2),
    "x.split([n, 2])[0]": (4, 1, -1),
    "x.narrow(0, n, 2)": (4, -2, 7),
    "x[n]": (4, -1, -7, 7),
    "(x[n], x)[1]": (4, -7, 7),
    "x[:1].expand(n, 2)": (4, -1, -2),
    "torch.zeros(n) + 1": (4, 0, -1),
    "torch.ones(2, n) @ x": (6, 1, 5),
    "torch.ones(n, 2) + x": (6, 1, 5),
    "torch.cat([x, torch.ones(2, n)])": (2, 0, 5),
    "x.topk(n, 0)[0]": (2, 0, 7),
    "F.one_hot(torch.tensor([1, 2]), n)": (3, 1),
    "x.unflatten(0, (n, 2))": (3, -1, 7),
    "x[x[:, 0] > n].max()": (0, 9),
    "x[x[:, 0] > n] + x[:3]": (0, -9, 9),
    "x.as_strided((n,), (1,))": (3, 4, 70, -1),
}
FORMS = {
    "number": "    n = (t + 0).item()\n    x.mul_(2)\n    y = {}\n    x += 1\n    return y * 2\n",
    "tensor": "    n = t\n    return {} * 2\n",
    "side": "    if x.sum() < 9:\n        n = int(t + 0)\n        y = {}\n        y = x + 1\n"
    "    else:\n        y = x - 1\n    return y * 2\n",
    "break": "    n = t.item()\n    print(end='')\n    y = {}\n    return y * 2\n",
}
# Their own errors stay where a tensor with a history, which cannot be written back, was written.
OWN_ERRORS = ("x[n]", "(x[n], x)[1]", "x[x[:, 0] > n].max()")
AFTER_BREAKS = ("x.view(n, -1)", "x[n]", "x[x[:, 0] > n].max()", "x.as_strided((n,), (1,))")
CASES = [
    *((expression, form, False) for expression in EXPRESSIONS for form in ("number", "tensor")),
    *((expression, "break", False) for expression in AFTER_BREAKS),
    *(("x[n]", "side", trains) for trains in (False, True)),
    *((expression, "number", True) for expression in EXPRESSIONS),
]


def program(expression, form):
    scope = {"torch": torch, "F": F}
    code = "def f(x, t):\n" + FORMS[form].format(expression)
    exec(compile(code, "<program>", "exec"), scope)
    return scope["f"]


def outcome(function, number, trains):
    leaf = torch.linspace(-1, 1, 12).view(6, 2).requires_grad_(trains)
    x = leaf * 1 if trains else leaf.clone()
    try:
        found = function(x, torch.tensor(number))
        if found.requires_grad:
            found.sum().backward()
    except (RuntimeError, IndexError) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if "<p" in f.filename]
        found = (type(error), str(error), lines)
    else:
        found = found.detach()
    return found, x.detach(), leaf.grad


def compare(expression, form, backend, trains):
    function = program(expression, form)
    dynamo.reset()
    compiled = dynamo.compile(function, backend=backend)
    for number in EXPRESSIONS[expression]:
        expected, actual = (outcome(f, number, trains) for f in (function, compiled))
        if trains and expression in OWN_ERRORS and type(expected[0]) is tuple:
            expected, actual = expected[0][0], actual[0][0]
        assert same(expected, actual), (number, expected, actual)


@pytest.mark.parametrize(("expression", "form", "trains"), CASES)
def test_sizes_that_do_not_fit(expression, form, trains):
    options = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(**options):
        compare(expression, form, "eager", trains)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("expression", ["x.reshape(n, 4)", "x.as_strided((n,), (1,))"])
def test_sizes_that_do_not_fit_by_other_backends(expression, backend):
    with dynamo.config.patch(capture_scalar_outputs=True):
        for form in FORMS:
            compare(expression, form, backend, False)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x.select(0, 6) * 2, "index 6 out of range"),
        (lambda x: x.select(1, -3) * 2, "index -3 out of range"),
        (lambda x: F.avg_pool3d(x.view(1, 1, 3, 2, 2), 2, divisor_override=0), "divisor must be"),
    ],
)
def test_what_rules_of_torch_211_let_pass(function, text):
    """A kernel would read the memory beside the tensor, or divide by nothing."""
    with pytest.raises((IndexError, RuntimeError), match=text):
        dynamo.compile(function)(torch.ones(6, 2))
