"""Python's functions of numbers that tensors hold: one graph, eager's results and exceptions."""

from __future__ import annotations

import functools
import math
import operator
import traceback

import pytest
import torch
from torch.utils._pytree import tree_map_only

import dynamo
from dynamo.interp import checks
from tests.dynamo.dynamic_support import same
from tests.dynamo.test_dynamic_data import notes_of

X = torch.linspace(-1, 1, 6)
note = checks.note_wrong_guess
INTS = (3, 1, 0, -2, 70)
LARGE = ("isqrt", "gcd", "lcm", "hypot", "bit", "pow(n, 2", "fmod", "inf")
FLOATS = (2.5, 0.0, -1.5, -0.0, 0.5, 1e300, math.inf, -math.inf, math.nan)
OF_INTS = """
math.isqrt(n); math.gcd(n, n + 2); math.lcm(n, 4); math.comb(n, 2); math.factorial(n)
math.hypot(n, 2); math.log(n, 3); math.ldexp(1.0, n); pow(n, 2, 5); n**n; n ** -n; round(n, -1)
n.bit_length(); n << n; n >> n; math.remainder(n, 3); math.isclose(n, 3); math.gamma(n)
n * math.inf; n < math.inf; n > -math.inf; n == math.inf; math.inf != n; -0.0 + n
math.pow(n, n); divmod(n, 4)[1] + math.gcd(n, 6)
"""
OF_FLOATS = """
math.hypot(n, 2); math.atan2(n, -0.0); math.fmod(n, 2); math.log1p(n); math.expm1(n); math.asin(n)
math.acosh(n); math.atanh(n); math.sinh(n); math.erf(n); math.lgamma(n); math.copysign(2, n)
math.ldexp(n, 3); math.degrees(n); math.isnan(n); n.is_integer(); n**n; n**0.5; (-2.5) ** n
round(n, -1); n + math.inf; n * -0.0; n < math.inf; min(n, math.inf); max(n, -0.0); n // math.inf
n <= math.inf; n > math.inf; n >= math.inf; n == math.inf; n != math.inf; math.inf > n
n < -math.inf; n <= -math.inf; n >= -math.inf; n == -math.inf; n != -math.inf; math.inf <= n
math.log(3, n); math.sin(n) + math.asin(math.tanh(n))
"""
# Of an int and a float, of which the data decide.
MIXED = """
max(0, n); max(n, 0); min(1, n); min(n, 1); max(0, min(1, n)); min(max(n, -1), 1); max(1, 2.5, n)
max([0, n]); min([n, 1, 2.0]); max((n, n + 1)); min(n, 0, 2); max(0, n, key=None)
1 - max(0, n); max(0, n) * 2 + 1; -max(0, n); -min(0, n); max(0, n) * -1; min(0, n) * -1 - 1
max(0, n) / 2; 3 / (1 + max(0, n)); 1 / max(0, n); max(0, n) ** 2; max(0, n) ** 0
max(0, n) * max(0, n - 1); max(0, n) - min(1, n); max(0, n) * 0.5; 2.5 - max(0, n)
max(0, n) > 0; max(0, n) == 0; 0 < min(1, n); max(0, n) <= min(1, n); max(0, n) != n; not max(0, n)
float(max(0, n)); int(min(1, max(0, n))); round(min(2, max(n, 0))); bool(max(0, n))
math.sqrt(max(0, n)); math.floor(min(1, n)); math.isnan(min(n, 1)); (2 if max(0, n) else 5)
math.isnan(n) or math.isinf(n); (3 if math.isnan(n) else 4)
"""


def _choices(text):
    return [one.strip() for line in text.strip().splitlines() for one in line.split(";")]


CASES = [
    *(
        (text, (*INTS, 1 << 62) if any(one in text for one in LARGE) else INTS)
        for text in _choices(OF_INTS)
    ),
    *((text, FLOATS) for text in _choices(OF_FLOATS)),
]
KERNELS = ["math.isqrt(n)", "n.bit_length()", "math.asin(n)"]
FORMS = {
    "value": "    k = {}\n    return x * k, k",
    "side": "    k = {} if n > 1 else 7\n    return x * k, k",
    "size": "    return x[: {}] * 2, x",
    "caught": "    try:\n        k = {}\n    except (ValueError, ArithmeticError):\n        k = 5\n"
    "    return x * k, k",
    "written": "    x.add_(1)\n    k = {}\n    x.mul_(2)\n    return x * k",
    "unread": "    k = {}\n    return x * 2",
    "shown": "    log.append(n)\n    k = {}\n    log.append(k)\n    return x * k, list(log)",
    "condition": "    return x * 2 if {} > 2 else x + 1",
}


def program(text, form):
    scope = {"math": math, "log": []}
    source = "def f(x, t):\n    n = (t + 0).item()\n" + FORMS[form].format(text)
    exec(compile(source, "<program>", "exec"), scope)
    return scope["f"]


def outcome(function, number, trains=False):
    """Results (numbers as text, of nan and -0.0), or the exception's type, text and lines; the
    input, and its gradient.
    """
    dtype = torch.int64 if type(number) is int else torch.float64
    leaf = X.double().requires_grad_(trains)
    x = leaf * 1
    try:
        found = function(x, torch.tensor(number, dtype=dtype))
        if trains:
            (found[0] if type(found) is tuple else found).sum().backward()
    except (ArithmeticError, ValueError, TypeError) as error:
        places = traceback.extract_tb(error.__traceback__)
        lines = [place.lineno for place in places if place.filename == "<program>"]
        found = (type(error), str(error), lines)
    found = tree_map_only((int, float, complex), repr, found)
    return tree_map_only(torch.Tensor, torch.Tensor.detach, found), x.detach(), leaf.grad


def compare(text, form, numbers, backend, trains=False, **options):
    function = program(text, form)
    compiled = dynamo.compile(function, backend=backend, **options)
    for number in numbers:
        function.__globals__["log"].clear()
        expected = outcome(function, number, trains)
        function.__globals__["log"].clear()
        same(expected, outcome(compiled, number, trains))
    return compiled


@pytest.mark.parametrize(("text", "numbers"), CASES, ids=[text for text, _ in CASES])
def test_functions(text, numbers):
    compiled = compare(text, "value", numbers, "eager", fullgraph=True)
    (record,) = compiled.context.records
    assert len(record.graphs) == 1 and not record.breaks


@pytest.mark.parametrize("text", _choices(MIXED))
def test_ints_and_floats(text):
    for form in ("value", "condition", "side"):
        numbers = [n for n in FLOATS if n != 1e300] if "**" in text else FLOATS  # that overflows
        compiled = compare(text, form, numbers, "eager")
        if form == "value":
            assert [len(record.graphs) for record in compiled.context.records] == [1]
            assert not compiled.context.records[0].breaks


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("trains", [False, True])
def test_ints_and_floats_beside_tensors(backend, trains):
    """Ints of tensors stay ints: the graph breaks there."""
    for text in ("max(0, n)", "3 - 2 * max(0, min(n, 2))"):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            scope: dict = {}
            exec(f"def f(x, n): n = n.item(); k = {text}; return x * k, k - x, x / 2 + k", scope)
            compiled = dynamo.compile(scope["f"], backend=backend)
            for number in FLOATS[:5]:
                x = torch.tensor([3.0, -1, 0, 40000]).to(dtype)
                x.requires_grad_(trains and dtype.is_floating_point)
                same(scope["f"](x, torch.tensor(number)), compiled(x, torch.tensor(number)))
            graphs = sum(len(record.graphs) for record in compiled.context.records)
            assert (graphs == 1) is dtype.is_floating_point


COMBINATIONS = [
    *((form, trains, "eager") for form in FORMS for trains in (False, True)),
    *((form, False, "inductor") for form in ("value", "side", "size", "written")),
    *((form, True, "inductor") for form in ("value", "condition")),
]


@pytest.mark.parametrize(("form", "trains", "backend"), COMBINATIONS)
def test_forms(form, trains, backend):
    """Exceptions come behind what the program did before, and are caught where it catches them."""
    texts = ["math.isqrt(n)", "n.bit_length()"] if form == "size" else KERNELS
    for text in texts:
        numbers = FLOATS if text in _choices(OF_FLOATS) else INTS
        with dynamo.config.patch(capture_scalar_outputs=True):
            compiled = compare(text, form, numbers, backend, trains)
        assert form != "value" or not notes_of(compiled)


def test_arithmetic_stays_in_symbols():
    """Operators called as functions are no calls of Python at run time."""

    def f(x, t):
        n = (t + 0).item()
        return x[: operator.sub(n, 1)] * functools.reduce(operator.mul, [n, 2, n])

    compiled = dynamo.compile(f, backend="eager", fullgraph=True)
    assert torch.equal(f(X, torch.tensor(3)), compiled(X, torch.tensor(3)))
    ((graph,),) = [record.graphs for record in compiled.context.records]
    assert "python_number" not in str(graph.graph_module.graph)


def many_ways(x, t):
    n = (t + 0).item()
    return (x * 2) * (math.comb(70, n) / 2**40)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_function_that_always_fails(fullgraph, monkeypatch):
    """Its results do not fit into 64 bits: after three calls the graph breaks in front of it."""
    wrong = []
    monkeypatch.setattr(checks, "note_wrong_guess", lambda seen: wrong.append(note(seen)))
    compiled = dynamo.compile(many_ways, backend="eager", fullgraph=fullgraph)
    with dynamo.config.patch(capture_scalar_outputs=True):
        for _ in range(6):
            same(many_ways(X, torch.tensor(35)), compiled(X, torch.tensor(35)))
    assert len(wrong) == (0 if fullgraph else 3)
    assert [len(record.graphs) for record in compiled.context.records][:1] == [1]
    assert (len(compiled.context.records) > 1) is not fullgraph
