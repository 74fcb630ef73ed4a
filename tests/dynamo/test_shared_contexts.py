"""Compilations that are alike share their code: equal blocks, one function compiled again."""

from __future__ import annotations

import copy
import gc
import itertools
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import dynamo
from dynamo import _hook
from dynamo.api.kinds_of_values import Kinds
from tests.dynamo.values_support import CountingBackend


class Block(torch.nn.Module):
    def __init__(self, index: int, size: int = 8) -> None:
        super().__init__()
        self.index = index
        self.linear = torch.nn.Linear(size, size)

    def forward(self, x):
        return x + self.linear(x).relu()


class Indexed(Block):
    def forward(self, x, cache):
        cache[f"layer {self.index}"] = x
        return super().forward(x)


def compiled(target, backend, **settings):
    return dynamo.compile(target, backend=backend, **settings)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_equal_blocks_share_code(kept, grad):
    backend, x = CountingBackend(), torch.randn(3, 8)
    blocks = [Block(i) for i in range(12)]
    with torch.set_grad_enabled(grad):
        held = [compiled(block, backend) for block in blocks if kept]
        for _ in range(2 if kept else 1):
            for i, block in enumerate(blocks):
                call = held[i] if kept else compiled(block, backend)
                result, expected = call(x), block(x)
                assert torch.equal(result, expected)
                if grad:
                    given = torch.autograd.grad(result.sum(), [block.linear.weight])
                    wanted = torch.autograd.grad(expected.sum(), [block.linear.weight])
                    assert torch.equal(*given, *wanted)
    # The first's, which serves any of them that is compiled while that lives.
    assert 1 <= backend.graphs <= (1 if kept else 2)


def test_methods_of_equal_blocks_share_code():
    backend, x = CountingBackend(), torch.randn(3, 8)
    for block in [Block(i) for i in range(6)]:
        assert torch.equal(compiled(block.forward, backend)(x), block(x))
    assert 1 <= backend.graphs <= 2


def test_each_block_may_have_code_of_its_own():
    """Where blocks differ in what they read, the limit of versions is one for each of them."""
    backend, x, cache, expected = CountingBackend(), torch.randn(3, 8), {}, {}
    with dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for block in [Indexed(i) for i in range(12)]:
            assert torch.equal(compiled(block, backend)(x, cache), block(x, expected))
    assert list(cache) == list(expected)


def test_other_sizes_classes_settings_and_configurations_do_not_share():
    x = torch.randn(3, 8)
    first = [Block(0), Block(1)]
    context = [compiled(block, "eager")._dynamo_context for block in first][1]
    others = [
        compiled(Block(2, 9), "eager"),
        compiled(Indexed(2), "eager"),
        compiled(Block(2), "aot_eager"),
        compiled(Block(2), "eager", dynamic=True),
        compiled(Block(2), "eager", fullgraph=True),
        compiled(Block(2), "eager", isolate_recompiles=True),
        compiled(torch.nn.LazyLinear(3), "eager"),
    ]
    with dynamo.config.patch(capture_scalar_outputs=True):
        others.append(compiled(Block(2), "eager"))
    assert all(other._dynamo_context is not context for other in others)
    third = compiled(Block(2), "eager")
    assert third._dynamo_context is context
    assert torch.equal(third(x), third._orig_mod(x))


def test_a_function_compiled_at_each_call():
    backend = CountingBackend()

    def step(x):
        return x.sin() * 2

    for size in (3, 3, 3, 4, 5, 6):
        x = torch.randn(size)
        assert torch.equal(compiled(step, backend)(x), step(x))
    assert backend.graphs <= 3


def scaled(by):
    return lambda x: x * by


def assert_same(call, function, x):
    if fails := function_fails(function, x):
        with pytest.raises(fails):
            call(x)
    else:
        assert torch.allclose(call(x), function(x))


def applied(function):
    return lambda x: function(x) + 1


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("make", "over", "graphs"),
    [
        (scaled, [2, 3, 4, 5, 6], 2),
        (scaled, [2.5, 3.0, 4.25, 5.5], 2),
        (scaled, [2, 3.5, 4, 4.5, 7], 3),
        (applied, [torch.sin, torch.cos, torch.sin, torch.cos, torch.sin], 2),
        (applied, [scaled, torch.relu, torch.relu], 1),  # the first one's call fails
    ],
)
def test_closures_over_numbers_and_functions_share(make, over, graphs, kept):
    backend, x, alive = CountingBackend(), torch.randn(4), []
    for value in over:
        closure = make(value)
        call = compiled(closure, backend)
        for _ in range(2):
            assert_same(call, closure, x)
        alive += [closure, call] if kept else []
    families = 1 if make is scaled else len(set(over))
    # The first context of a family ends with its closure.
    assert 0 < backend.graphs <= graphs + (0 if kept else families)


def function_fails(function, x):
    try:
        function(x)
    except (TypeError, ValueError) as error:
        return type(error)
    return None


class Scale:
    def __init__(self, by, bias=0.0):
        self.by = by
        self.bias = bias

    def apply(self, x):
        return x * self.by + self.bias

    def through(self, x):
        return self.by(x) + self.bias

    __call__ = apply


def defaulting(by):
    return lambda x, by=by, *, shift=2.0: x * by + shift


def summed(values):
    return lambda x: sum(x * v for v in values)


def added(x, y):
    return x + y


made: list[weakref.ref[Any]] = []


def noted(value):
    made.append(weakref.ref(value))
    return value


def tensor():
    return noted(torch.randn(4))


def linear():
    return noted(torch.nn.Linear(4, 4))


number = partial(next, itertools.cycle(range(2, 14)))

# name: (value that is compiled, graphs if all are kept)
SHARING: dict[str, tuple[Callable[[], Any], int]] = {
    "tensor": (lambda: scaled(tensor()), 1),
    "parameter": (lambda: scaled(torch.nn.Parameter(tensor())), 2),
    "module": (lambda: applied(linear()), 2),
    "module's method": (lambda: applied(linear().forward), 2),
    "list of tensors": (lambda: summed([tensor(), tensor()]), 1),
    "list of numbers": (lambda: summed([number(), number()]), 2),
    "closure": (lambda: applied(scaled(tensor())), 1),
    "closure of a closure over a module": (lambda: applied(applied(linear())), 2),
    "method of an object": (lambda: Scale(tensor()).apply, 1),
    "method of an object with a number": (lambda: Scale(number()).apply, 2),
    "method of an object with a module": (lambda: Scale(linear()).through, 2),
    "method of an object in a closure": (lambda: applied(Scale(tensor()).apply), 1),
    "object in a closure": (lambda: applied(Scale(tensor(), 3)), 1),
    "object that is called": (lambda: Scale(tensor()), 1),
    "default": (lambda: defaulting(tensor()), 1),
    "partial": (lambda: partial(added, tensor()), 1),
    "partial of a method": (lambda: partial(Scale(tensor(), tensor()).apply), 1),
    "a method of a builtin": (lambda: applied(tensor().add), 0),
}


@pytest.mark.parametrize("name", [name for name, row in SHARING.items() if row[1]])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_closures_and_methods_share(name, kept, grad):
    make, graphs = SHARING[name]
    backend, x, alive = CountingBackend(), torch.randn(4, requires_grad=grad), []
    for _ in range(12):
        function = make()
        call = compiled(function, backend)
        for _ in range(2):
            result, expected = call(x), function(x)
            assert torch.equal(result, expected)
            if grad:
                given, wanted = (torch.autograd.grad(y.sum(), x) for y in (result, expected))
                assert torch.equal(*given, *wanted)
        alive += [function, call] if kept else []
    assert 0 < backend.graphs <= graphs + (not kept)  # the first context ends with its closure


def test_closures_whose_code_differs_have_contexts_of_their_own_in_the_end():
    def named(name):
        return lambda x: x + len(name) if name[0] in "aeiou" else x * len(name)

    x, contexts = torch.randn(4), set()
    with dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for name in map(str, range(20)):
            call = compiled(named(name), "eager")
            for _ in range(2):
                assert torch.equal(call(x), named(name)(x))
            contexts.add(call.context)
    assert len(contexts) > 10


def test_compiled_before_the_first_call():
    backend, x = CountingBackend(), torch.randn(3, 4)
    functions = [applied(linear()) for _ in range(6)]
    calls = [compiled(function, backend) for function in functions]
    for _ in range(2):
        for call, function in zip(calls, functions):
            assert torch.equal(call(x), function(x))
    assert backend.graphs == 1


def test_calls_in_turn_see_their_own_cells():
    x = torch.randn(4)
    functions = [scaled(tensor()) for _ in range(4)] + [defaulting(tensor()) for _ in range(4)]
    calls = [compiled(function, "eager") for function in functions]
    for _ in range(3):
        for call, function in [*zip(calls, functions)][::-1]:
            assert torch.equal(call(x), function(x))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", SHARING)
def test_what_shares_is_not_kept_alive(name, backend):
    made.clear()
    x = torch.randn(4)
    for _ in range(3):
        function = SHARING[name][0]()
        for _ in range(2):
            assert_same(compiled(function, backend), function, x)
        del function
    gc.collect()
    assert not any(ref() is not None for ref in made)


def test_reset_forgets_the_code_of_closures():
    function, x = scaled(tensor()), torch.randn(4)
    call = compiled(function, "eager")
    assert torch.equal(call(x), function(x))
    code = weakref.ref(_hook.cache_entries(function.__code__, call.context)[0].code)
    dynamo.reset()
    gc.collect()
    assert code() is None
    assert torch.equal(call(x), function(x))


def test_cells_end_with_the_compiled_function():
    function, x = scaled(tensor()), torch.randn(4)
    call, other = compiled(function, "eager"), compiled(scaled(tensor()), "eager")
    assert torch.equal(call(x), function(x))
    assert call.context is other.context
    held = weakref.ref(function.__closure__[0].cell_contents)
    del function, call
    gc.collect()
    assert held() is None


class Holder:
    """An object that holds the compiled closure over itself."""

    def __init__(self, factor):
        self.factor = factor

        def run(x, shift=0.5):
            return x * self.factor + shift

        self.run, self.call = run, compiled(run, "eager")


@pytest.mark.parametrize("factors", ["tensors", "numbers"])  # one code for all; one each
def test_cycles_through_cells_end(factors):
    x, alive = torch.randn(4), []
    with dynamo.config.patch(automatic_dynamic_shapes=False):
        for i in range(12):
            holder = Holder(tensor() if factors == "tensors" else i)
            for _ in range(2):
                assert torch.equal(holder.call(x), holder.run(x))
            alive.append(weakref.ref(holder))
            del holder
    gc.collect()
    assert not any(ref() is not None for ref in alive)


def test_tensors_of_closures_are_not_kept_alive():
    alive = []
    for size in (3, 3, 4, 4, 5):
        tensor = torch.randn(size)
        closure = scaled(tensor)
        assert torch.equal(compiled(closure, "eager")(torch.ones(size)), tensor)
        alive.append(weakref.ref(tensor))
        del tensor, closure
    gc.collect()
    assert not any(ref() is not None for ref in alive)


def test_globals_of_functions_in_closures_are_not_kept_alive():
    alive = []
    for number in range(12):  # more than a frame has versions
        namespace = {"held": torch.ones(2)}
        exec(f"def added(x): return x + {number}", namespace)
        closure = applied(namespace["added"])
        assert torch.equal(
            compiled(closure, "eager")(torch.ones(2)), torch.full((2,), 2.0 + number)
        )
        alive.append(weakref.ref(namespace["held"]))
        del namespace, closure
    gc.collect()
    assert not any(ref() is not None for ref in alive)


def test_a_closure_that_changes_its_cell():
    backend, x = CountingBackend(), torch.randn(4)

    def counting(n):
        def count(x):
            nonlocal n
            n += 1
            return x * n

        return count

    for start in (1, 5, 9, 13):
        one, other = compiled(counting(start), backend), counting(start)
        assert all(torch.equal(one(x), other(x)) for _ in range(3))
    assert backend.graphs <= 3


def test_a_function_at_the_place_of_another_one():
    """A family is known by the id of its function, which another one may have later."""
    x = torch.randn(4)
    for by in range(50):

        def scaled(x, by=float(by)):
            return x * (by + len(kept))

        kept = [by]
        assert torch.equal(compiled(scaled, "eager")(x), x * (by + 1.0))
        del scaled
        gc.collect()


def test_recompiles_of_equal_blocks_are_no_errors():
    backend, x = CountingBackend(), torch.randn(3, 8)
    with dynamo.config.patch(error_on_recompile=True):
        blocks = [Block(i) for i in range(4)]
        calls = [compiled(block, backend) for block in blocks]
        for block, call in zip(blocks, calls):
            assert torch.equal(call(x), block(x))

    def single(x):
        return x * 2

    with dynamo.config.patch(error_on_recompile=True):
        call = compiled(single, backend)
        call(x)
        with pytest.raises(dynamo.errors.RecompileLimitExceeded):
            call(torch.randn(5, 9))


@pytest.mark.parametrize("make", [scaled, torch.nn.LeakyReLU])
def test_dropped_guards_tell_nobody_apart(make):
    x = torch.randn(4)
    drop = {"guard_filter_fn": lambda entries: [False for _ in entries]}
    for number in (0.1, 0.2, 0.3, 0.4):
        function = make(number)
        calls = [dynamo.compile(function, backend="eager", options=drop) for _ in range(3)]
        assert all(torch.equal(call(x), function(x)) for call in calls)
        contexts = {id(getattr(call, "_dynamo_context", None) or call.context) for call in calls}
        assert len(contexts) == 1


def test_objects_are_not_asked_for_their_class():
    class Lazy:
        def __getattribute__(self, name):
            raise AssertionError(name)

    lazy, x = Lazy(), torch.randn(4)

    def run(x):
        return x if x is not None else lazy

    assert torch.equal(compiled(run, "eager")(x), x)


@pytest.mark.parametrize("made", [range, lambda n: dict.fromkeys(range(n))])
def test_kinds_of_large_values_are_small(made):
    kind = str(Kinds().of([made(100_000), *made(100_000)]))
    assert len(kind) < 20_000


def test_options_that_cannot_be_keys_keep_contexts_apart():
    class Backend:
        __hash__ = None

        def __call__(self, gm, inputs):
            return gm.forward

    backend = Backend()
    calls = [compiled(Block(i), backend) for i in range(3)]
    assert len({id(call._dynamo_context) for call in calls}) == 3


def test_modules_are_not_kept_alive():
    x, alive = torch.randn(3, 8), []
    for i in range(4):
        block = Block(i)
        compiled(block, "eager")(x)
        alive.append(weakref.ref(block))
        del block
    gc.collect()
    assert not any(ref() is not None for ref in alive)


@pytest.mark.parametrize("times", [1, 3])
def test_closures_and_their_models_are_not_kept_alive(times):
    def run(model):
        closure = lambda x: model(x)  # noqa: E731
        for _ in range(times):
            compiled(closure, "eager")(torch.randn(3, 8))
        return weakref.ref(model)

    alive = run(Block(0))
    gc.collect()
    assert alive() is None


def test_a_backend_is_not_kept_alive_for_a_second_member():
    class Kept(CountingBackend):
        def method(self, gm, inputs):
            return self(gm, inputs)

    def double(x):
        return x * 2

    x, alive = torch.randn(4), []
    for name in ("__call__", "method"):
        backend = Kept()
        alive.append(weakref.ref(backend))
        called = backend if name == "__call__" else backend.method
        assert torch.equal(compiled(double, called)(x), double(x))
        del backend, called
    gc.collect()
    assert not any(ref() is not None for ref in alive)


def test_a_method_of_a_backend_is_the_same_one_each_time():
    class Kept(CountingBackend):
        def method(self, gm, inputs):
            return self(gm, inputs)

    def triple(x):
        return x * 3

    backend, x = Kept(), torch.randn(4)
    for _ in range(5):
        assert torch.equal(compiled(triple, backend.method)(x), triple(x))
    assert backend.graphs == 2


def test_a_backend_that_compiles_where_it_is_compared():
    def single(x):
        return x * 2

    class Backend:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            compiled(single, "eager")
            return self is other

        def __call__(self, gm, inputs):
            return gm.forward

    done = []

    def work():
        backends = [Backend(), Backend()]  # alive, so that they are compared
        done.extend([compiled(single, backend) for backend in backends])

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert len(done) == 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_modules_without_a_structure_have_contexts_of_their_own():
    class Early(torch.nn.Module):
        def __init__(self):
            self.call = compiled(self.double, "eager")
            super().__init__()

        def double(self, x):
            return x * 2

    class Nested(torch.nn.Module):
        def __init__(self):
            super().__init__()
            rows = [torch.ones(2), torch.ones(3)]
            self.register_buffer("rows", torch.nested.nested_tensor(rows))

        def forward(self, x):
            return x * 2

    x = torch.randn(3)
    for call in (Early().call, compiled(Nested(), "eager")):
        assert torch.equal(call(x), x * 2)


def test_a_copy_and_a_state_of_its_own():
    x = torch.randn(3, 8)
    block = compiled(Block(0), "eager")
    twins = [copy.deepcopy(block) for _ in range(3)]
    with torch.no_grad():
        for i, twin in enumerate([block, *twins]):
            twin.linear.weight.fill_(i)
            twin.linear.bias.zero_()
    for twin in [block, *twins]:
        assert torch.equal(twin(x), twin._orig_mod(x))


def test_threads_that_compile_equal_blocks():
    x, results = torch.randn(3, 8), {}

    def work(i):
        block = Block(i)
        results[i] = torch.equal(compiled(block, "eager")(x), block(x))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(8), True)


def test_reset_forgets():
    blocks = [compiled(Block(i), "eager") for i in range(2)]
    dynamo.reset()
    assert compiled(Block(2), "eager")._dynamo_context is not blocks[1]._dynamo_context
