"""Compilations that are alike share their code: equal blocks, one function compiled again."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import Any

import pytest
import torch

import dynamo
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
    assert backend.graphs == 3  # the first's, the second's, that of any


def test_methods_of_equal_blocks_share_code():
    backend, x = CountingBackend(), torch.randn(3, 8)
    for block in [Block(i) for i in range(6)]:
        assert torch.equal(compiled(block.forward, backend)(x), block(x))
    assert backend.graphs == 3


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
            if function_fails(closure, x):
                with pytest.raises(TypeError):
                    call(x)
            else:
                assert torch.equal(call(x), closure(x))
        alive += [closure, call] if kept else []
    assert 0 < backend.graphs <= graphs + (not kept)  # the first context ends with its closure


def function_fails(function, x):
    try:
        function(x)
    except TypeError:
        return True
    return False


@pytest.mark.parametrize("value", ["module", "list", "method", "builtin", "closure", "tensor"])
def test_closures_over_other_objects_share_with_themselves_alone(value):
    make: dict[str, Any] = {
        "module": lambda: torch.nn.Linear(4, 4),
        "list": lambda: [2],
        "method": lambda: torch.nn.ReLU().forward,
        "builtin": lambda: [2].append,
        "closure": lambda: scaled(2),
        "tensor": lambda: torch.ones(2),
    }
    x, contexts = torch.randn(4), set()
    for _ in range(3):
        held = make[value]()
        closure = (lambda held: lambda x: x + len(str(held)) * 0)(held)
        calls = [compiled(closure, "eager") for _ in range(3)]
        assert all(torch.equal(call(x), x) for call in calls)
        assert len({id(call.context) for call in calls}) == 1
        contexts.add(calls[0].context)
    assert len(contexts) == 3


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
