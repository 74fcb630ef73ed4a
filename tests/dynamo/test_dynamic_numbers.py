"""Python's numbers over sizes, and int and float arguments that change with each call."""

from __future__ import annotations

import collections
import enum
import math
import operator
import random
import warnings

import pytest
import torch

import dynamo
from backends.eager import eager
from tests.dynamo.dynamic_support import Counting, check, same

# What Python does with n = x.size(0): one compile for all sizes after the first.
ARITHMETIC = {
    "add": lambda n: n + 1,
    "radd": lambda n: 1 + n,
    "sub": lambda n: n - 3,
    "rsub": lambda n: 10 - n,
    "mul": lambda n: n * 4,
    "square": lambda n: n * n - n,
    "power": lambda n: n**2,
    "floordiv": lambda n: n // 2,
    "negative_floordiv": lambda n: -n // 2,
    "rfloordiv": lambda n: 100 // n,
    "mod": lambda n: n % 3,
    "rmod": lambda n: 100 % n,
    "negative_mod": lambda n: -n % 4,
    "mod_negative": lambda n: n % -4,
    "divmod_by_hand": lambda n: (n // 3, n % 3),
    "div": lambda n: n / 4,
    "rdiv": lambda n: 1 / n,
    "neg": lambda n: -n,
    "pos": lambda n: +n,
    "invert": lambda n: ~n,
    "lshift": lambda n: n << 2,
    "rshift": lambda n: n >> 1,
    "abs": lambda n: abs(n - 100),
    "int": lambda n: int(n),
    "int_of_half": lambda n: int(n / 2),
    "int_of_scaled": lambda n: int(n * 0.75),
    "float": lambda n: float(n),
    "float_sum": lambda n: n * 0.1 + 0.2,
    "float_difference": lambda n: 0.1 - n * 0.3,
    "float_quotient": lambda n: n / 3 / 7,
    "float_mod": lambda n: (n * 0.7) % 0.3,
    "float_floordiv": lambda n: (n * 0.7) // 0.3,
    "float_negative": lambda n: -(n / 3),
    "float_abs": lambda n: abs(n / 3 - 5),
    "half_power": lambda n: n**0.5,
    "inverse_root": lambda n: n**-0.5,
    "decay": lambda n: 0.9**n,
    "bias_correction": lambda n: 1 - 0.999**n,
    "round_digits": lambda n: round(n / 3, 1),
    "sqrt": lambda n: math.sqrt(n),
    "exp": lambda n: math.exp(n / 8),
    "log": lambda n: math.log(n),
    "log10": lambda n: math.log10(n + 0.5),
    "log_of_base": lambda n: math.log(n, 2),
    "math_pow": lambda n: (
        math.pow(n, -0.8),
        math.pow(n, 0.5),
        math.pow(0.9, n),
        math.pow(n / 2, 1),
    ),
    "tan": lambda n: math.tan(n),
    "entropy": lambda n: -math.log(1 / n) / math.exp(-n),
    "scale": lambda n: 1 / math.sqrt(n),
    "floor": lambda n: math.floor(n / 2),
    "ceil": lambda n: math.ceil(n / 2),
    "trunc": lambda n: math.trunc(n / 2),
    "cos": lambda n: math.cos(n),
    "log2": lambda n: math.log2(n),
    "round_int": lambda n: round(n),
    "min": lambda n: min(n, n + 1),
    "max": lambda n: max(2 * n, n),
    "index": lambda n: operator.index(n),
    "ceil_div": lambda n: (n + 7) // 8,
    "padding": lambda n: (-n) % 8,
    "round_up": lambda n: (n + 7) // 8 * 8,
    "triangle": lambda n: n * (n + 1) // 2,
    "nested": lambda n: ((n + 1) * 2 - n) // 2 * 3,
    "tuple": lambda n: (n, n + 1, [n - 1]),
    "dict": lambda n: {"n": n, "half": n // 2},
    "sum_builtin": lambda n: sum([n, n, 1]),
    "comparison_true": lambda n: n > 0,
    "comparison_false": lambda n: n < 0,
    "equal_itself": lambda n: n == n,
    "not_none": lambda n: n is not None,
    "isinstance": lambda n: isinstance(n, int),
    "type": lambda n: type(n) is int,
    "divmod": lambda n: divmod(n, 3),
    "pow_builtin": lambda n: pow(n, 2),
    "sorted": lambda n: sorted([n, n - 1]),
    "size": lambda n: torch.Size([n, 2]),
    "swap": lambda n: (lambda a, b: (b, a))(n, n + 1),
    "augmented": lambda n: _augmented(n),
    "conditional_known": lambda n: n if n > 1 else -1,
    "chained": lambda n: 0 < n < 2**40,
}


def _augmented(n):
    total = 1
    total += n
    total *= 2
    total -= n
    total //= 2
    return total


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name):
    fn = ARITHMETIC[name]
    calls = [(torch.randn(n),) for n in (3, 5, 8, 13)]
    check(lambda x: (x + 1, fn(x.size(0))), calls, compiles=2)


# Written anew in each call.
TEXTS = {
    "text": lambda n: f"{n}",
    "str": lambda n: str(n),
    "repr": lambda n: repr(n) + "!",
    "format": lambda n: f"{n:04d}",
    "format_builtin": lambda n: format(n * 2, ">6,"),
    "percent": lambda n: "%d" % n,
    "percents": lambda n: "%s of %s, %r" % (n, "all", n / 2),
    "percent_forms": lambda n: "%5d|%-6i|%+.2f|%06.1f|% x|%%|%g" % (n, n, n / 3, n, n, 2 / n),
    "percent_literals": lambda n: "%-5s %03d %.1f %d" % ("all", 7, 2, n),
    "pieces": lambda n: f"a{n}{{}}{n + 1!r} {n / 3:.2f} %s",
    "sum": lambda n: "n = " + str(n) + f" and {n}",
    "join": lambda n: ", ".join(str(i) for i in (n, n + 1, 2)),
    "join_map": lambda n: "x".join(map(str, [n, 3])),
    "method": lambda n: "{1:>4} {0} {k:x}".format(n, 5, k=n) + "{}/{}".format(n, n),
    "size": lambda n: f"{torch.Size([n, 3])} {[n, None]} {(n, 'a')} {(n,)}",
    "truth": lambda n: "yes" if f"{n}" else "no",
    "kept": lambda n: {"name": f"layer{n}"},
    "twice": lambda n: (lambda text: [text, text])(f"<{n}>"),
}


# Only who goes through one asks for the number.
RANGES = {
    "range": lambda n: range(n),
    "from": lambda n: range(2, n + 1),
    "length": lambda n: len(range(n)),
    "length_from": lambda n: len(range(1, n)),
    "empty": lambda n: len(range(n, 2)),
    "item": lambda n: range(n)[2],
    "last": lambda n: range(1, n)[-1],
    "contains": lambda n: (2 in range(n), -1 in range(n), n in range(n)),
    "parts": lambda n: (range(n).start, range(n).stop, range(n).step),
    "truth": lambda n: "some" if range(n) else "none",
    "kept": lambda n: {"rows": range(n), "columns": range(0, 2 * n)},
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges(name):
    fn = RANGES[name]
    calls = [(torch.randn(n),) for n in (3, 5, 8, 13)]
    check(lambda x: (x + 1, fn(x.size(0))), calls, compiles=2)


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    fn = TEXTS[name]
    calls = [(torch.randn(n),) for n in (3, 5, 8, 13)]
    check(lambda x: (x + 1, fn(x.size(0))), calls, compiles=2)


def test_texts_of_shapes_and_floats():
    def fn(x, f):
        return x * f, f"{x.shape} {tuple(x.shape)} {x.size()} {f} {f:.3f} {x.dim()}"

    calls = [(torch.randn(n, 4), n / 7) for n in (3, 5, 8, 13)]
    check(fn, calls, compiles=2)


def test_texts_of_data():
    def fn(x):
        return x + 1, f"{x.max().item():.2f} of {x.nonzero().size(0)}"

    both = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with dynamo.config.patch(**both):
        check(fn, [(torch.tensor(x),) for x in ([0.0, 1.5], [2.0, 3.0], [0.0, 0.0])], compiles=1)


def test_percent_of_data():
    def fn(x):
        number, count, mean = x.sum().item(), int(x.sum()), x.mean()
        texts = "%.3f %8.2e %+d" % (number, number / 3, count), "%.2f" % mean, "%s %r" % (x, mean)
        return x * number, texts, "%s, %r of %d%%" % (number, number * 2, count)

    check(fn, [(torch.full((3,), v),) for v in (1.0, -1.0, 0.25, 0.0)], compiles=1)


def test_percent_of_a_gradient_warns():
    def fn(x):
        return x * 2, "%.1f" % x

    torch.set_warn_always(True)  # not once in a process
    try:
        with pytest.warns(UserWarning, match="requires_grad"):
            made = dynamo.compile(fn, backend="eager")(torch.tensor(2.0, requires_grad=True))
    finally:
        torch.set_warn_always(False)
    assert made[1] == "2.0"


def test_printed_texts(capsys):
    def fn(x):
        print("size", x.size(0), x.shape, f"{x.size(0) * 2:>4}", sep="|")
        return x + 1

    counting = Counting()
    compiled = dynamo.compile(fn, backend=counting, fullgraph=True)
    for n in (3, 5, 8, 13):
        compiled(torch.randn(n))
        ours = capsys.readouterr().out
        fn(torch.randn(n))
        assert ours == capsys.readouterr().out
    assert len(counting.graphs) == 2


@pytest.mark.parametrize(
    "text", ["{:q}", "{} {}", "{0} {}", "{0.x}", "%q", "%d %d", "{a}", "%5%", "%.2f%"]
)
def test_errors_of_texts(text):
    def fn(x):
        made = text % x.size(0) if "%" in text else text.format(x.size(0))
        return x + 1, made

    compiled = dynamo.compile(fn, backend="eager")
    for n in (3, 5, 8):
        with pytest.raises(Exception) as theirs:
            fn(torch.randn(n))
        with pytest.raises(theirs.type) as ours:
            compiled(torch.randn(n))
        assert str(ours.value) == str(theirs.value)


# Needs the number itself: a compile for each size, and a guard that says so.
SPECIALISING = {
    "length_of_text": lambda n: len(f"{n}" * 2),
    "text_as_key": lambda n: {"3": "a", "5": "b", "8": "c"}[f"{n}"],
    "text_compared": lambda n: f"{n}" == "5",
    "padded_text": lambda n: f"{str(n):>4}",
    "part_of_text": lambda n: f"{n}"[0],
    "width": lambda n: f"{7:{n}}",
    "range_gone_through": lambda n: list(range(n)),
    "range_with_steps": lambda n: range(0, n, 2),
    "range_compared": lambda n: range(n) == range(5),
    "range_outside": lambda n: sum(i for i in range(n)),
    "key": lambda n: {3: "a", 5: "b", 8: "c"}.get(n),
    "hash": lambda n: hash(n),
    "list_times": lambda n: [0] * n,
    "list_index": lambda n: list("abcdefghijkl")[n],
    "string_times": lambda n: "ab" * n,
    "hex": lambda n: hex(n),
    "complex": lambda n: complex(n),
    "round_before_the_point": lambda n: round(n / 3, -1),
}


@pytest.mark.parametrize("name", SPECIALISING)
def test_specialises(name):
    fn = SPECIALISING[name]
    calls = [(torch.randn(n),) for n in (3, 5, 8)]
    counting = Counting()
    compiled = dynamo.compile(lambda x: (x + 1, fn(x.size(0))), backend=counting, fullgraph=True)
    for (x,) in calls:
        y, answer = compiled(x)
        assert answer == fn(x.size(0))
        assert type(answer) is type(fn(x.size(0)))
        assert torch.equal(y, x + 1)
    assert len(counting.graphs) == 3
    asked = [guard for guard in compiled.context.records[1].guards if "x.size(0) == 5" in guard]
    assert len(asked) == 1
    assert "test_dynamic_numbers.py" in asked[0]


MILESTONES = {4, 9}
# Branches: a compile for each side.
BRANCHES = {
    "less": lambda n: 1 if n < 6 else 2,
    "equal": lambda n: 1 if n == 5 else 2,
    "even": lambda n: 1 if n % 2 == 0 else 2,
    "between": lambda n: 1 if 4 < n < 9 else 2,
    "either": lambda n: 1 if n < 4 or n > 9 else 2,
    "truth": lambda n: 1 if n - 5 else 2,
    "not": lambda n: 1 if not n > 6 else 2,
    "while": lambda n: _halvings(n),
    "max": lambda n: max(n, 6),
    "clamp": lambda n: min(max(n, 4), 9),
    "abs": lambda n: abs(n - 6),
    "key": lambda n: {5: 1, 12: 3}.get(n, 2),
    "key_of_another_type": lambda n: {"a": 1, 5.0: 1, None: 2, True: 3}.get(n),
    "member": lambda n: n in MILESTONES and n not in frozenset([9]),
    "counted": lambda n: n in collections.Counter([4, 12, 12]),
    # Conditions on floats.
    "sqrt": lambda n: 1 if math.sqrt(n) > 2.5 else 2,
    "exp": lambda n: 1 if math.exp(n / 4) < 7 else 2,
    "log": lambda n: 1 if math.log(n) <= 2 else 2,
    "logs": lambda n: 1 if math.log2(n) + math.log10(n) > 4 else 2,
    "trigonometric": lambda n: 1 if math.sin(n) + math.cos(n) * math.tanh(n) > math.atan(n) else 2,
    "half_power": lambda n: 1 if n**0.5 == 3.0 else 2,
    "decay": lambda n: 1 if 0.9**n > 0.5 else 2,
    "float_mod": lambda n: 1 if (n * 0.7) % -0.3 < -0.1 else 2,
    "float_floordiv": lambda n: 1 if (5 - n * 0.7) // 0.5 >= -2 else 2,
    "float_abs": lambda n: 1 if abs(n / 3 - 2) < 1 else 2,
    "rounded": lambda n: 1 if math.floor(n * 0.7) + math.ceil(n * 0.3) + int(n * 0.9) > 14 else 2,
    "buckets": lambda n: 1 if math.floor(math.log(n) * 3) == 6 else 2,
}


def _halvings(n):
    count = 0
    while n > 1:
        n //= 2
        count += 1
    return count


@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name):
    fn = BRANCHES[name]
    counting = Counting(eager)
    compiled = dynamo.compile(lambda x: (x * 2, fn(x.size(0))), backend=counting, fullgraph=True)
    for n in (3, 5, 8, 13, 4, 6, 12, 9, 30):
        x = torch.randn(n)
        y, answer = compiled(x)
        assert answer == fn(n), n
        assert torch.equal(y, x * 2)
    assert len(counting.graphs) <= 6


# -- arguments ------------------------------------------------------------------------------------
INTS = {
    "add": lambda x, k: x + k,
    "mul": lambda x, k: x * k,
    "sub": lambda x, k: k - x,
    "div": lambda x, k: x / (k + 10),
    "power_of_two": lambda x, k: x * 2 ** (1 if k > -100 else 2),
    "full": lambda x, k: torch.full((3,), k) + x,
    "compare": lambda x, k: x > k,
    "both": lambda x, k: (x + k, k + 1),
    "only_returned": lambda x, k: (x * 2, k),
    "scaled": lambda x, k: x * (k * 3 - 1),
    "list": lambda x, k: (x, [k, k * 2]),
    "clamp": lambda x, k: x.clamp(max=k),
    "where": lambda x, k: torch.where(x > 0, x, k),
}


@pytest.mark.parametrize("name", INTS)
def test_int_arguments(name):
    fn = INTS[name]
    x = torch.randn(3)
    check(lambda x, k: fn(x * 1, k), [(x, k) for k in (7, 8, 12, -3, 0, 1, 10**6)], compiles=2)


FLOATS = {
    "mul": lambda x, a: x * a,
    "add": lambda x, a: x + a,
    "rsub": lambda x, a: a - x,
    "div": lambda x, a: x / (a + 3),
    "alpha": lambda x, a: torch.add(x, x, alpha=a),
    "addcdiv": lambda x, a: torch.addcdiv(x, x, x.abs() + 1, value=a),
    "arithmetic": lambda x, a: x * (1 - a * 2),
    "square": lambda x, a: (x * a**2, a**3),
    "returned": lambda x, a: (x * 2, a, a * 3),
    "compare": lambda x, a: x > a,
    "clamp": lambda x, a: x.clamp(min=a),
    "full": lambda x, a: torch.full((3,), a),
    "step": lambda x, a: x.sub_(x, alpha=a),
    "lerp": lambda x, a: torch.lerp(x, x * 3, a),
    "integers": lambda x, a: (x * 10).long() * a,
    "doubles": lambda x, a: x.double() * a,
    "foreach": lambda x, a: torch._foreach_mul([x, x + 1], a),
}


@pytest.mark.parametrize("name", FLOATS)
def test_float_arguments(name):
    fn = FLOATS[name]
    x = torch.randn(3)
    calls = [(x, a) for a in (0.1, 0.2, 0.35, -1.5, 1e-3)]
    check(lambda x, a: fn(x * 1, a), calls, compiles=2)


def test_a_counter_on_an_object_does_not_recompile():
    class Counter:
        count = 0

    counter = Counter()
    counter.count = 5
    counting = Counting(eager)

    def fn(x):
        counter.count += 1
        return x * counter.count

    compiled = dynamo.compile(fn, backend=counting)
    x = torch.randn(3)
    for n in range(6, 16):
        assert torch.equal(compiled(x), x * n)
    assert counter.count == 15
    assert len(counting.graphs) == 2


def test_a_global_number_becomes_a_symbol():
    namespace = {"torch": torch, "rate": 0.5}
    exec("def fn(x):\n    return x * rate", namespace)
    counting = Counting(eager)
    compiled = dynamo.compile(namespace["fn"], backend=counting)
    x = torch.randn(3)
    for rate in (0.5, 0.25, 0.125, 2.0):
        namespace["rate"] = rate
        assert torch.equal(compiled(x), x * rate)
    assert len(counting.graphs) == 2


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -0.0])
def test_special_floats_are_as_in_eager(value):
    compiled = dynamo.compile(lambda x, a: (x * a, a), backend="eager")
    x = torch.ones(2)
    for a in (1.0, 2.0, value, 3.0):
        y, b = compiled(x, a)
        assert math.copysign(1, b) == math.copysign(1, a)
        torch.testing.assert_close(y, x * a, equal_nan=True)


def test_large_ints_are_as_in_eager():
    compiled = dynamo.compile(lambda x, k: (x + 1, k * k), backend="eager")
    for k in (3, 5, 2**40, 2**62, 2**70, -(2**63), 9):
        assert compiled(torch.ones(1), k)[1] == k * k


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_tensors_of_numbers_that_vary(backend):
    def f(x, k, s):
        exact = torch.tensor(s, dtype=torch.float64), torch.tensor(k, dtype=torch.float32)
        return torch.tensor(k), torch.tensor([k, len(x)]), torch.tensor(len(x) * 2**31), exact

    compiled = dynamo.compile(f, backend=backend, dynamic=True)
    for n, k, s in ((2, 3, 0.1), (3, 2**40, 1.5), (4, -(2**31) - 1, 1e30), (5, 0, 0.3)):
        expected, found = f(torch.ones(n), k, s), compiled(torch.ones(n), k, s)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_bools_stay_constants():
    counting = Counting(eager)
    compiled = dynamo.compile(lambda x, flag: x + 1 if flag else x - 1, backend=counting)
    x = torch.ones(1)
    assert [compiled(x, flag).item() for flag in (True, False, True)] == [2, 0, 2]
    assert len(counting.graphs) == 2


def test_division_by_a_size_that_is_zero_raises():
    compiled = dynamo.compile(lambda x, k: (x + 1, 10 // k), backend="eager")
    x = torch.ones(1)
    assert [compiled(x, k)[1] for k in (5, 2, 3)] == [2, 5, 3]
    with pytest.raises(ZeroDivisionError, match="integer division or modulo by zero"):
        compiled(x, 0)
    assert compiled(x, 4)[1] == 2


def test_conditions_on_float_arguments():
    """A branch on a function of a float is a guard, not a compile for each."""

    def fn(x, a):
        if math.sqrt(a) < 0.6 and math.log(a) * math.exp(a) > -9:
            return x * math.exp(a)
        return x * math.log(a)

    x = torch.randn(3)
    calls = [(x, a) for a in (0.1, 0.2, 0.35, 0.3, 0.15, 0.9, 0.6, 0.8)]
    counting = check(fn, calls, compiles=3)
    assert len(counting.graphs) == 3


class Level(enum.IntEnum):
    LOW = 3


class Named(int):
    def __add__(self, other):
        return "sum"


@pytest.mark.parametrize("other", [Level.LOW, Named(3)])
def test_subclasses_of_int_keep_their_operators(other):
    def fn(x, n):
        return x * 2, n % other, other + n, other % n, n < other

    compiled = dynamo.compile(fn, backend="eager")
    with warnings.catch_warnings(action="error"):  # of faults in capture
        for n in (5, 7, 2):
            same(compiled(torch.ones(1), n), fn(torch.ones(1), n))


def test_where_a_function_of_a_float_raises():
    compiled = dynamo.compile(lambda x, a: (x + 1, math.sqrt(a) + math.exp(a)), backend="eager")
    x = torch.ones(1)
    for a in (1.5, 2.5, 3.5):
        assert compiled(x, a)[1] == math.sqrt(a) + math.exp(a)
    with pytest.raises(ValueError, match="math domain error"):
        compiled(x, -1.5)
    with pytest.raises(OverflowError):
        compiled(x, 1e4)
    assert compiled(x, 700.5)[1] == math.sqrt(700.5) + math.exp(700.5)


# Of two floats that vary.
PAIRS = {
    "less": lambda a, b: 1 if a < b else 2,
    "less_or_equal": lambda a, b: 1 if a <= b else 2,
    "greater": lambda a, b: 1 if a > b else 2,
    "equal": lambda a, b: 1 if a == b else 2,
    "not_equal": lambda a, b: 1 if a != b else 2,
    "max": max,
    "min": min,
    "sorted": lambda a, b: sorted([a, b]),
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "divmod": divmod,
    "sum": lambda a, b: 1 if a + b < 1 else 2,
    "close": lambda a, b: abs(a - b) < 0.2,
    "between": lambda a, b: 0 < a < b < 1,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_floats(name, dynamic):
    fn = PAIRS[name]
    compiled = dynamo.compile(
        lambda x, a, b: (x + 1, fn(a, b)), backend="eager", dynamic=dynamic, fullgraph=True
    )
    pairs = [(0.1, 0.2), (0.2, 0.1), (0.5, 0.5), (1.0, 0.1), (2.5, 2.6), (1.5, -0.5), (0.99, 1.0)]
    for a, b in pairs:
        same((torch.ones(2) + 1, fn(a, b)), compiled(torch.ones(2), a, b))


def test_sizes_divided_by_floats():
    compiled = dynamo.compile(lambda x: (x + 1, x.size(0) / 3 // 0.1), backend="eager")
    for n in (2, 3, 4, 5):
        assert compiled(torch.ones(n))[1] == n / 3 // 0.1


def test_numbers_too_long_for_a_symbol():
    """Longer than a text may be, too: they are constants, and shorter ones become a symbol."""

    def f(x, n):
        return x * (n % 10), n + 1

    compiled = dynamo.compile(f, backend="eager")
    x = torch.ones(2)
    for n in (7**20_000, 7**20_001, 5, 6, 7, 2**70, 2**70 + 1, 8, 7**20_000):
        product, following = compiled(x, n)
        assert torch.equal(product, x * (n % 10)) and following == n + 1


def _text_of(statement):
    """The text of the TypeError of a statement over a number n and a constant m."""
    body = f"def f(x, n, m):\n    try:\n        {statement}\n    except TypeError as error:\n"
    scope = {}
    exec(f"{body}        return x + 1, str(error)\n    return x + 1, m\n", scope)
    return scope["f"]


@pytest.mark.parametrize("m", [None, "ab", (1,), 2j])
@pytest.mark.parametrize("statement", ["m += n", "m = m + n", "m = n - m", "m *= n", "n -= m"])
def test_wrong_operands_of_numbers_that_vary(statement, m):
    """The error names the operator that the program has."""
    f = _text_of(statement)
    compiled = dynamo.compile(f, backend="eager")
    for n in (2, 3, 4):
        same(f(torch.ones(2), n, m), compiled(torch.ones(2), n, m))


def test_numbers_come_before_the_first_tensor():
    def f(a, b, tensors):
        filled = torch.full((3,), a + 1) + (b + 1)
        return filled * tensors[0] + tensors[1]

    compiled = dynamo.compile(f, backend="eager")
    for a, b in ((2, 3), (3, 4), (4, 6)):
        tensors = [torch.arange(3.0), torch.ones(3)]
        same(compiled(a, b, tensors), f(a, b, tensors))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_floats_beyond_single_precision_are_refused_as_by_eager(backend):
    def f(x, a):
        return x.clamp(max=a)

    compiled, x = dynamo.compile(f, backend=backend), torch.ones(3)
    for number in (0.5, 1.5, 3e38, math.inf):
        assert torch.equal(compiled(x, number), f(x, number))
    for number in (1e300, -1e39):
        with pytest.raises(RuntimeError, match="without overflow"):
            compiled(x, number)
    assert torch.equal(compiled(x.double(), 1e300), x.double())


def test_a_dimension_out_of_range():
    """The argument is a symbol by then; fake tensors take any dimension of a softmax."""

    def outcome(function, dim):
        try:
            return function(torch.ones(2, 3, requires_grad=True), dim).tolist()
        except IndexError as error:
            return str(error)

    def softmax(x, dim):
        return x.softmax(dim)

    compiled = dynamo.compile(softmax, backend="aot_eager")
    for dim in (0, 1, -1, 2, -3, 0):
        assert outcome(compiled, dim) == outcome(softmax, dim)


# -- ints that no symbol can stand for, as those that torch.seed() gives ---------------------------
def seeded(x, seed):
    short = int(seed % (2**63 - 1))
    torch.manual_seed(short)
    return torch.dropout(x, 0.5, True) * 2, short


def asked(x, seed):
    if seed > 5 and isinstance(seed, int) and type(seed) is int:
        return x + 1, f"{seed}", hash(seed), [seed], {seed: 1}, -seed, seed & 1023, float(seed)
    return x - 1, seed == 3


def passed_on(x, seed):
    return x * 2, [seed] * 2, seed is seed


@pytest.mark.parametrize(("f", "most"), [(seeded, 6), (asked, 4), (passed_on, 4)])
def test_ints_beyond_64_bits_that_vary(f, most):
    backend = Counting()
    compiled = dynamo.compile(f, backend=backend)
    draw = random.Random(3)
    for turn in range(16):
        seed, x = draw.getrandbits(64 if turn % 4 else 20), torch.ones(8)
        same(compiled(x, seed), f(x, seed))
    assert len(backend.graphs) <= most


# -- new dimensions beside a number that varies ----------------------------------------------------
NEW_DIMENSIONS = {
    "before": lambda x, n: x[None, n],
    "behind": lambda x, n: x[n, None],
    "around": lambda x, n: x[None, n, None],
    "ellipsis": lambda x, n: x[None, ..., n],
    "between": lambda x, n: x[n, None, n],
    "slice": lambda x, n: x[:, None, n, 1:],
    "integer": lambda x, n: x[1, None, n],
}


@pytest.mark.parametrize("layout", [torch.clone, lambda x: x.transpose(0, 2)])
@pytest.mark.parametrize("name", NEW_DIMENSIONS)
def test_strides_of_new_dimensions(name, layout):
    x = layout(torch.randn(4, 4, 4))
    calls = [(x, n) for n in (1, 2, 0, 3)]
    check(NEW_DIMENSIONS[name], calls, 2, backend=eager)
