"""A program for each reason for a graph break, and what its hint makes of it.

`@program(code)` registers a function of one tensor that breaks for this reason; `@mended(code)` the
same function after following the hint: one graph, and the same result. The page
tutorials/graph_breaks.md is made from both.
"""

from __future__ import annotations

import array
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import dynamo

Program = Callable[[torch.Tensor], Any]
PROGRAMS: dict[str, Program] = {}
MENDED: dict[str, Program] = {}


def program(code: str) -> Callable[[Program], Program]:
    def register(function: Program) -> Program:
        PROGRAMS[code] = function
        return function

    return register


def mended(code: str) -> Callable[[Program], Program]:
    def register(function: Program) -> Program:
        MENDED[code] = function
        return function

    return register


# -- calls ----------------------------------------------------------------------------------------
@program("UNCAPTURED_CALL")
def waits(x):
    y = x + 1
    time.sleep(0)
    return y * 2


@mended("UNCAPTURED_CALL")
def does_not_wait(x):
    y = x + 1
    return y * 2


@program("DISABLED_CALL")
def disabled(x):
    return not_compiled(x + 1) * 2


@dynamo.disable
def not_compiled(x):
    return x * 3


@mended("DISABLED_CALL")
def enabled(x):
    return (x + 1) * 3 * 2


WEIGHT = torch.nn.Parameter(torch.ones(4))
OPTIMIZER = torch.optim.LBFGS([WEIGHT], lr=0)


@program("LEFT_TO_PYTHON")
def steps(x):
    loss = OPTIMIZER.step(lambda: (WEIGHT * x).sum())
    return loss + 1


@mended("LEFT_TO_PYTHON")
def is_given_the_loss(x):
    loss = (WEIGHT * x).sum()
    return loss + 1


@program("REQUESTED_BREAK")
def requested(x):
    y = x + 1
    dynamo.graph_break("here")
    return y * 2


@mended("REQUESTED_BREAK")
def not_requested(x):
    y = x + 1
    return y * 2


@program("NOT_CALLABLE")
def makes_an_array(x):
    y = x + 1
    weights = array.array("d", [1.0, 2.0])
    return y * len(weights)


WEIGHTS = [1.0, 2.0]


@mended("NOT_CALLABLE")
def is_given_a_list(x):
    y = x + 1
    return y * len(WEIGHTS)


@program("INLINE_DEPTH")
def recursive(x):
    return count_down(x, 150)


def count_down(x, n):
    return x if n == 0 else count_down(x + 1, n - 1)


@mended("INLINE_DEPTH")
def iterative(x):
    for _ in range(150):
        x = x + 1
    return x


# -- values of tensors ----------------------------------------------------------------------------
@program("DATA_DEPENDENT_JUMP")
def branches(x):
    kind = "cold"
    if (x + 1).sum() > 0:
        kind = "hot"
    return x * len(kind)


@mended("DATA_DEPENDENT_JUMP")
def chooses(x):
    return torch.where((x + 1).sum() > 0, x * 3, x * 4)


@program("DATA_DEPENDENT_VALUE")
def item(x):
    return x * {10.0: 2.0}.get(x.sum().item(), 1.0)


@mended("DATA_DEPENDENT_VALUE")
def no_item(x):
    return x * torch.where(x.sum() == 10.0, 2.0, 1.0)


@program("DYNAMIC_SHAPE_OP")
def selects(x):
    y, total = x + 1, 0.0
    for limit in (2, 3):
        total = total + sum([row * 2 for row in y[y > limit]])
    return total


@mended("DYNAMIC_SHAPE_OP")
def selects_as_a_whole(x):
    y = x + 1
    return (y[y > 2] * 2).sum() + (y[y > 3] * 2).sum()


# -- tensors --------------------------------------------------------------------------------------
@program("TENSOR_METADATA")
def detaches_in_place(x):
    y = x.reshape(2, 2) + 1
    z = y.exp()
    y.detach_()
    return y * z


@mended("TENSOR_METADATA")
def detached(x):
    y = x.reshape(2, 2) + 1
    z = y.exp()
    y = y.detach()
    return y * z


@program("OP_ERROR")
def wrong_shapes(x):
    y = x + 1
    return y @ torch.ones(3)


@program("UNKNOWN_OBJECT")
def makes_a_sparse_tensor(x):
    y = (x + 1)[None].to_sparse_csr()
    return (y + y).to_dense()[0]


@mended("UNKNOWN_OBJECT")
def stays_dense(x):
    y = x + 1
    return y + y


# -- objects and state ----------------------------------------------------------------------------
@program("ATTRIBUTE_MUTATION")
def changes_code(x):
    y = x + 1
    doubled.__code__ = tripled.__code__
    return doubled(y)


def doubled(x):
    return x * 2


def tripled(x):
    return x * 3


@mended("ATTRIBUTE_MUTATION")
def chooses_a_function(x):
    y = x + 1
    function = tripled
    return function(y)


@program("ATTRIBUTE_ACCESS")
def reads_the_place(x):
    y = x + 1
    try:
        raise ValueError
    except ValueError as error:
        return y * bool(error.__traceback__.tb_lasti)


@mended("ATTRIBUTE_ACCESS")
def reads_no_place(x):
    y = x + 1
    try:
        raise ValueError
    except ValueError:
        return y * True


ARRAY = array.array("q", [1, 2])


@program("NOT_GRAPH_ARGUMENT")
def indexes_with_an_array(x):
    y = x + 1
    return y[ARRAY]


@mended("NOT_GRAPH_ARGUMENT")
def indexes_with_a_list(x):
    y = x + 1
    return y[[1, 2]]


@program("CANNOT_RECONSTRUCT")
def unusual_order(x):
    y = x + 1
    s = set(range(100))
    s -= {i for i in range(100) if i not in (7, 8)}
    return y, s


# -- iteration ------------------------------------------------------------------------------------
@program("SET_ORDER")
def set_of_tensors(x):
    members = {x, x + 1}
    return sum(members)


@mended("SET_ORDER")
def list_of_tensors(x):
    members = [x, x + 1]
    return sum(members)


def forever():
    while True:
        yield 1


FOREVER = forever()


@program("OUTSIDE_ITERATOR")
def given_iterator(x):
    for n in FOREVER:
        x = x + n
        if n:
            break
    return x


ONES = [1]


@mended("OUTSIDE_ITERATOR")
def given_container(x):
    for n in ONES:
        x = x + n
        if n:
            break
    return x


@program("LOOP_LIMIT")
def long_loop(x):
    return x * max(*range(3_000_000))


LENGTHS = [1.0] * 60_000


@program("MANY_ITEMS")
def longest(x):
    return x * max(LENGTHS)


TENSOR_OF_LENGTHS = torch.tensor(LENGTHS)


@mended("MANY_ITEMS")
def longest_of_tensor(x):
    return x * TENSOR_OF_LENGTHS.max()


# -- frames ---------------------------------------------------------------------------------------
@program("READS_LOCALS")
def reads_locals(x):
    y = x + 1
    return sorted(locals()), y


@mended("READS_LOCALS")
def names_locals(x):
    y = x + 1
    return ["x", "y"], y


@program("NO_GRAPHS")
def reports(x):
    with dynamo.config.patch(no_graph_limit=2):
        time.sleep(0)
        time.sleep(0)
        time.sleep(0)
    return x + 1


@mended("NO_GRAPHS")
def does_not_report(x):
    return x + 1


@program("DATA_DEPENDENT_LOOP")
def reads_in_a_loop(x):
    y = x + 1
    for i in range(40):
        y = y * x[i % 3].item()
    return y * 2


@mended("DATA_DEPENDENT_LOOP")
def keeps_values_in_tensors(x):
    y = x + 1
    for i in range(40):
        y = y * x[i % 3]
    return y * 2


@program("RAISING_CALLS")
def fails_for_many_keys(x):
    with dynamo.config.patch(recompile_limit=1):
        for key in "abcdef":
            try:
                _called_natively(_looked_up, key)
            except KeyError:
                continue
    return x + 1


def _looked_up(key):
    return TABLE[key]


@mended("RAISING_CALLS")
def looks_before(x):
    for key in "abcdef":
        if key in TABLE:
            _looked_up(key)
    return x + 1


@program("DEBUGGER")
def stops(x):
    y = x + 1
    breakpoint()
    return y * 2


@mended("DEBUGGER")
def does_not_stop(x):
    y = x + 1
    return y * 2


@program("MODULE_IMPORT")
def imports(x):
    y = x + 1
    import this_is_not_there

    return y * this_is_not_there.value


class Registry:
    def __init_subclass__(cls):
        cls.registered = True


@program("CLASS_STATEMENT")
def defines_a_registered_class(x):
    y = x + 1

    class Double(Registry):
        factor = 2

    return y * Double.factor


class Double(Registry):
    factor = 2


@mended("CLASS_STATEMENT")
def uses_a_registered_class(x):
    return (x + 1) * Double.factor


INFERENCE = torch.inference_mode()


@program("INFERENCE_MODE")
def inference(x):
    with INFERENCE:
        y = x + 1
    return y.clone()


@mended("INFERENCE_MODE")
def makes_the_manager(x):
    with torch.inference_mode():
        y = x + 1
    return y.clone()


@program("NUMPY_CONVERSION")
def to_numpy(x):
    return torch.from_numpy(np.partition((x + 1).numpy(), 1))


@mended("NUMPY_CONVERSION")
def stays_in_torch(x):
    return torch.sort(x + 1).values


COUNTS = torch.zeros(1 << 19)
COUNTED: list[str] = []


@program("SHOWN_BEFORE")
def prints_before_indexing(x):
    index = (x > 0).long()
    COUNTS.add_(1)
    print("indexing")
    return x[index]


@mended("SHOWN_BEFORE")
def prints_after_indexing(x):
    index = (x > 0).long()
    COUNTS.add_(1)
    y = x[index]
    print("indexing")
    return y


@program("LOST_EFFECTS")
def counts_before_indexing(x):
    index = (x > 0).long()
    COUNTS.add_(1)
    COUNTED.append("counted")
    return x[index]


@mended("LOST_EFFECTS")
def counts_after_indexing(x):
    y = x[(x > 0).long()]
    COUNTS.add_(1)
    COUNTED.append("counted")
    return y


@program("CAUGHT_FAILURE")
def catches_after_writing(x):
    COUNTS.add_(1)
    try:
        return x[(x > 0).long()]
    except IndexError:
        return x


@mended("CAUGHT_FAILURE")
def catches_without_writing(x):
    try:
        return x[(x > 0).long()]
    except IndexError:
        return x


# -- bodies and gradients -------------------------------------------------------------------------
@program("BODY_SIDE_EFFECT")
def keeps_what_the_body_computed(x):
    seen = []

    def loss(y):
        seen.append(y * 2)
        return (y**2).sum()

    return torch.func.grad(loss)(x) + seen[0].shape[0]


@mended("BODY_SIDE_EFFECT")
def counts_outside_of_the_body(x):
    def loss(y):
        return (y**2).sum()

    return torch.func.grad(loss)(x) + x.numel()


SETTINGS = {"factor": 2}


@dynamo.nonstrict_trace
def scaled(x):
    return x * SETTINGS["factor"]


@program("CHANGED_STATE")
def changes_what_a_function_reads(x):
    SETTINGS["size"] = x.numel()
    return scaled(x + 1) - 1


@mended("CHANGED_STATE")
def changes_behind_the_function(x):
    y = scaled(x + 1)
    SETTINGS["size"] = x.numel()
    return y - 1


NOTED = {"size": 0}


@torch.library.custom_op("break_examples::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    NOTED["size"] = x.numel()
    return x * 2


noted.register_fake(torch.empty_like)


@program("WRITTEN_STATE")
def reads_what_an_operator_notes(x):
    y = noted(x + 1)
    return y - NOTED["size"]


@mended("WRITTEN_STATE")
def knows_the_same_itself(x):
    return noted(x + 1) - x.numel()


@program("BODY_RAISES")
def catches_what_the_body_raises(x):
    def loss(y):
        if y.dim() != 2:
            raise ValueError("not a matrix")
        return (y**2).sum()

    try:
        return torch.func.grad(loss)(x)
    except ValueError:
        return torch.zeros_like(x)


@mended("BODY_RAISES")
def checks_outside_of_the_body(x):
    if x.dim() != 2:
        return torch.zeros_like(x)
    return torch.func.grad(lambda y: (y**2).sum())(x)


class CountedKey:
    hashed = 0

    def __hash__(self):
        CountedKey.hashed += 1
        return 1


@program("KEY_SIDE_EFFECT")
def counts_how_often_a_key_is_hashed(x):
    y = x + 1
    table = {CountedKey(): 2}
    return y * len(table)


class PlainKey:
    def __hash__(self):
        return 1


@mended("KEY_SIDE_EFFECT")
def hashes_a_key(x):
    y = x + 1
    table = {PlainKey(): 2}
    return y * len(table)


LEAF = torch.ones(4, requires_grad=True)
PRODUCT = LEAF * 2


@program("OUTSIDE_HISTORY")
def differentiates_by_a_result(x):
    loss = (x * PRODUCT).sum()
    return torch.autograd.grad(loss, PRODUCT)[0]


@mended("OUTSIDE_HISTORY")
def computes_it_inside(x):
    product = LEAF * 2
    loss = (x * product).sum()
    return torch.autograd.grad(loss, product)[0]


@program("BRANCHED_GRADIENTS")
def differentiates_a_side(x):
    weight = LEAF * 1
    y = x * weight if x.sum() > 0 else x - weight
    return torch.autograd.grad(y.sum(), weight)[0]


@mended("BRANCHED_GRADIENTS")
def chooses_of_both(x):
    weight = LEAF * 1
    y = torch.where(x.sum() > 0, x * weight, x - weight)
    return torch.autograd.grad(y.sum(), weight)[0]


def _checked(x):
    try:
        if x.dim() != 2:
            raise ValueError("not a matrix")
    except ValueError:
        return x * 2
    return x * 3


@dynamo.disable(recursive=False)
def _called_natively(function, x):
    return function(x)


TABLE: dict[str, torch.Tensor] = {}


@program("HANDLED_OUTSIDE")
def raises_inside_an_except_block(x):
    try:
        return TABLE["norm"]
    except KeyError:
        return _called_natively(_checked, x)


@mended("HANDLED_OUTSIDE")
def raises_outside_of_it(x):
    if "norm" in TABLE:
        return TABLE["norm"]
    return _checked(x)


ended: list[str] = []


class Lease:
    def __del__(self):
        ended.append("lease")


@program("OBJECT_DIES")
def ends_an_object(x):
    ended.clear()
    lease = Lease()
    y = x * 2
    del lease
    return y + len(ended)


@mended("OBJECT_DIES")
def ends_it_by_a_call(x):
    ended.clear()
    y = x * 2
    ended.append("lease")
    return y + len(ended)


async def _norm(x):
    return x / x.norm()


def _finish(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value


@program("MADE_COROUTINE")
def makes_a_coroutine(x):
    y = x + 1
    return y * _finish(_norm(y))


@mended("MADE_COROUTINE")
def calls_a_function(x):
    y = x + 1
    return y * (y / y.norm())


def _sizes():
    yield 1
    yield 2


@program("GENERATOR_FRAME")
def a_generator_goes_elsewhere(x):
    y = x + 1
    return y * array.array("i", _sizes())[1]


@mended("GENERATOR_FRAME")
def a_generator_stays(x):
    y = x + 1
    return y * list(_sizes())[1]


# What these say is no program's doing, or there is nothing that a program could do instead.
NO_MENDED = {
    "OP_ERROR": "the program is wrong",
    "UNCAUGHT_EXCEPTION": "the program is wrong",
    "CANNOT_RECONSTRUCT": "the value is made before the break",
    "LOOP_LIMIT": "dynamo.config.loop_limit",
    "MODULE_IMPORT": "the import at the head of the file",
}
