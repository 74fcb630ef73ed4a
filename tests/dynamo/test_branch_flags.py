"""Flags that a branch on data sets: later branches on a flag are conditionals, too."""

from __future__ import annotations

import copy
import operator

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

import dynamo
from backends.aot_eager import aot_eager
from backends.eager import eager
from backends.inductor import inductor
from tests.dynamo.branch_support import ARGUMENTS, SEEN, Programs, check, same

program = Programs()


@program(1)
def skips(x, w):
    skip = False
    if x.sum() > 5:
        skip = True
    if not skip:
        x = x * w
    return x + 1


@program(1)
def keeps_an_argument_by_two_conditions(x, w):
    if x.sum() > 3 and x.max() < 5:
        x = x * w
    return x


@program(1)
def keeps_an_argument_by_a_chain(x, w):
    number = x.sum().item()
    if not 3 < number < 8:
        return w
    return x


@program(1)
def keeps_what_nests_of_branches_leave(x, w):
    y, z = x * w, x + w
    if x.sum() > 3 or x.max() > 2 or y.sum() > 3:
        y = z if x.max() < 4 else w
    elif x.sum() == 0:
        return z, w
    return y, w


@program(1)
def divides_by_what_a_side_knows(x, w):
    total = (x.sum().item() ** 2 + w.sum().item() ** 2) ** 0.5
    if total > 3:
        x = x * (3 / (total + 1e-6))
    elif 0.5 < total and 2 < x.max():
        x = x / total + 1 / (2 * total)
    return x + 1


@program(1)
def leaves_one_of_two(x, w):
    y, z = x * w, x + w
    chosen = y + z
    if x.sum() > 3:
        chosen = y if x.max() < 4 else z
    return chosen, y * 2, z


@program(1)
def conditional_expression(x, w):
    skip = True if x.sum() > 5 else False
    y = x * w if skip else x - w
    return y * 2, x


@program(1)
def in_a_loop(x, w):
    for k in range(3):
        skip = False
        if x.sum() > k * 3:
            skip = True
        if not skip:
            x = x * w + k
    return x + 1


@program(1)
def both_sides(x, w):
    if x.sum() > 5:
        y, wide, name = x * 2, True, "same"
    else:
        y, wide, name = x * w, False, "same"
    if wide:
        y = y + 1
    return y if not wide else y * w, name


@program(1)
def passed_on(x, w):
    def scaled(t, twice=False):
        return t * 2 if twice else t * w

    twice = False
    if x.sum() > 5:
        twice = True
    return scaled(x, twice=twice) + scaled(w, twice=not twice)


@program(1)
def together_with_another(x, w):
    large = negative = False
    if x.sum() > 5:
        large = True
    if (w * x).min() < 0:
        negative = True
    y = x * 1
    if large and negative:
        y = y + 1
    if large or negative:
        y = y * 3
    return y + w


@program(1)
def numbers_as_flags(x, w):
    found = 0
    if x.sum() > 5:
        found = 2
    if found:
        x = x * w
    return x + found


@program(1)
def always_true(x, w):
    found = 1
    if x.sum() > 5:
        found = 2
    if found:
        x = x * w
    return x * found


@program(1)
def returned(x, w):
    large = False
    if x.sum() > 5:
        large = True
    return x * 2, large, not large, [large]


@program(1)
def multiplied_by_ints(x, w):
    """As many buckets as there are, and one more for padding."""
    count, places = 4, x.nan_to_num().argmax(-1)
    if x.sum() > 5:
        count = count + 1
        places = torch.where(places > 1, places, torch.tensor(count - 1))
    numbers = torch.arange(3, dtype=torch.int32) * count - (count + 1)
    small = torch.arange(3, dtype=torch.uint8) * 60 + count
    return places * count, numbers, small, numbers / count, count - places, x * w + count


@program(None)
def too_large_for_the_tensor(x, w):
    count = 4
    if x.sum() > 5:
        count = 400
    return torch.arange(3, dtype=torch.uint8) + count, x * w


@program(None)
def int_or_float(x, w):
    count = 4
    if x.sum() > 5:
        count = 4.5
    return torch.arange(3) * count, x * w


@program(None)
def compared(x, w):
    large = False
    if x.sum() > 5:
        large = True
    if large is True:
        x = x + 1
    if large == 1:
        x = x * 2
    return x, str(large), int(large) + 1


@program(None)
def subtracted(x, w):
    large = False
    if x.sum() > 5:
        large = True
    try:
        return x - large
    except RuntimeError as error:
        return x + 1, str(error).split(",")[0]


@program(None)
def multiplied(x, w):
    large = False
    if x.sum() > 5:
        large = True
    return x * large + w, large + 1


@program(None)
def with_an_effect(x, w):
    large = False
    if x.sum() > 5:
        large = True
    y = x * w
    if large:
        SEEN.append("large")
    return y + 1


@program(None)
def three_values(x, w):
    found = 0
    if x.sum() > 5:
        found = 1
    if w.sum() * x.sum() > 5:
        found += 1
    return x * found if found > 1 else x + 1


@program(None)
def predicate_written(x, w):
    large = x > 1
    first = large[0]
    flag = False
    if first:
        flag = True
    large.zero_()
    y = x * 1
    if flag:
        y = y + 1
    return y, large


@program(None)
def ends_a_loop(x, w):
    done = False
    steps = 0
    while not done:
        x = x + 1
        steps += 1
        if x.sum() > 15:
            done = True
        if steps > 6:
            break
    return x, steps


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("function", program, ids=lambda function: function.__name__)
def test_program(function, kind):
    check(function, kind, eager, program[function])


@pytest.mark.parametrize("function", [skips, in_a_loop, both_sides], ids=lambda f: f.__name__)
def test_compiled(function):
    check(function, "grads", inductor, 1)


@pytest.mark.parametrize("backend", [eager, aot_eager, inductor], ids=lambda b: b.__name__)
def test_hooks_of_all_modules_see_no_bodies(backend):
    seen = []
    compiled = dynamo.compile(skips, backend=backend)
    x = torch.ones(3, 4)
    wanted = skips(x, x)
    handle = register_module_forward_hook(lambda module, given, result: seen.append(module))
    try:
        same(compiled(x, x), wanted)
    finally:
        handle.remove()
    assert not seen


def test_layers_are_dropped_as_in_eager():
    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                to_drop = False
                if self.training and torch.rand([]) < 0.5:
                    to_drop = True
                if not to_drop:
                    x = torch.nn.functional.dropout(layer(x), 0.3, self.training)
            return x

    model, x = Encoder(), torch.randn(3, 4, requires_grad=True)
    compiled = dynamo.compile(model, backend="aot_eager", fullgraph=True)
    for seed in range(8):
        seen = []
        for call in (model, compiled):
            model.zero_grad()
            torch.manual_seed(seed)
            y = call(x)
            y.sum().backward()
            seen.append((y, [p.grad for p in model.parameters()], torch.rand(2)))
        torch.testing.assert_close(seen[0], seen[1])


EXPRESSIONS = """
x[flag]; x[[flag, not flag]]; torch.where(flag, x, w)
x.sum(0, keepdim=flag);torch.nn.functional.dropout(x, 0.0, flag); list(range(flag)); "%d" % flag
{flag: 1}; [1, 2][flag];flag & True; flag ^ number; flag | (x > 1); max(flag, 0)
min(flag, number); sorted([flag, number]);sum([flag, flag]); isinstance(flag, bool); type(flag)
hash(flag); bool(flag); int(flag); float(flag);any([flag, False]); all([flag, number])
flag == flag; flag != number; flag < number; -flag; ~flag;flag in (True, 2); (flag, number)
f"{flag} {number:03d}"; repr([flag]); x * flag; x + number; flag * x;number * flag; number - 1
number // 2; number % 2; number / 2; 3 - number; x.pow(number)
x + x[number];torch.full((2,), flag); torch.tensor([flag, number]); torch.tensor(flag)
x.new_full((2,), number);x.to(torch.int64) * flag; x.bool() & flag; flag and number
number or flag; not number; [x, w][number > 1];x.view(number, 4) if number == 1 else x
getattr(x, "shape" if flag else "dtype"); divmod(number, 2);x.mul_(number) if number else x
x.clamp(min=number); torch.add(x, w, alpha=number); number is flag;flag is True
flag is not False; number is None; round(number); abs(-number); str(number)
len("a" * number);setattr(torch.nn, "seen", flag) or torch.nn.seen; (lambda flag=flag: flag)()
[flag] * number; number == 1.0;x.masked_fill(x > 1, number)
x.index_fill(0, torch.tensor([1]), number); operator.truth(flag);operator.not_(number)
copy.copy(flag); x.requires_grad_(flag).requires_grad; torch.arange(number + 1)
"""


@pytest.mark.parametrize("expression", EXPRESSIONS.replace("\n", ";").strip("; ").split("; "))
def test_expression(expression):
    source = f"""
def function(x, w):
    flag, number = False, 1
    if x.sum() > 5:
        flag, number = True, 2
    x = x + 0
    seen = {expression}
    return seen, x, w * 2
"""
    scope = {"torch": torch, "operator": operator, "copy": copy}
    exec(source, scope)
    compiled = dynamo.compile(scope["function"], backend="eager")
    for values in ([1.0, 0.0, 2.0, 3.0], [0.0, 1.0, 1.0, 1.0]):
        found = []
        for function in (scope["function"], compiled):
            try:
                found.append(function(torch.tensor(values), torch.ones(4)))
            except (RuntimeError, TypeError, IndexError) as error:
                found.append((type(error), str(error)))
        assert repr(found[0]) == repr(found[1])
