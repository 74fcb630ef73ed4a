"""Arguments of every kind that a schema allows reach an operator of a plan as they are in eager."""

from __future__ import annotations

import pytest
import torch

import dynamo
from fxgraph import symbolic_trace
from inductor import plan_cache
from inductor.pipeline import new_compilation, run_stages
from inductor.runtime.plan import PlanError, PlanSpec

GENERATOR = torch.Generator().manual_seed(3)

# schema of an argument -> values
ARGUMENTS = {
    "str v": ["sum", ""],
    "str? v": [None, "x"],
    "str[] v": [["a", "b"], []],
    "int v": [3],
    "int? v": [None, 2],
    "int[] v": [[1, 2], []],
    "int[2] v": [[1, 2], 3],
    "int[]? v": [None, [1]],
    "int?[] v": [[None, 1]],
    "SymInt v": [3],
    "SymInt? v": [None, 3],
    "SymInt[] v": [[3, 4]],
    "float v": [2.5, float("inf"), 3],
    "float? v": [None, 2.0],
    "float[] v": [[1.0, 2.5]],
    "float[]? v": [None, [1.0]],
    "float?[] v": [[None, 1.0]],
    "complex v": [1 + 2j],
    "bool v": [True],
    "bool? v": [None, True],
    "bool[] v": [[True, False]],
    "Scalar v": [2, 2.5, True, 1 + 2j],
    "Scalar? v": [None, 3],
    "Scalar[] v": [[1, 2.5, True]],
    "ScalarType v": [torch.float16],
    "ScalarType? v": [None, torch.bool],
    "ScalarType[] v": [[torch.float16, torch.int8]],
    "Layout v": [torch.strided],
    "MemoryFormat v": [torch.channels_last],
    "Device v": [torch.device("cpu")],
    "Device? v": [None, torch.device("meta")],
    "Device[] v": [[torch.device("cpu")]],
    "Generator? v": [None, GENERATOR],
    "Dict(str, int) v": [{"a": 1}],
    "Any v": ["x", 3, [1, 2], None, 2.5],
}  # fmt: skip


@pytest.fixture(scope="module")
def library():
    """An operator for each schema, which notes what it is given."""
    library = torch.library.Library("framegraph_arguments", "DEF")
    given = []

    def run(x, v):
        given.append(v)
        return x * 2

    names = {}
    for number, schema in enumerate(ARGUMENTS):
        names[schema] = f"op{number}"
        library.define(f"op{number}(Tensor x, {schema}) -> Tensor")
        library.impl(f"op{number}", run, "CPU")
        library.impl(f"op{number}", lambda x, v: torch.empty_like(x), "Meta")
    yield given, lambda schema: getattr(torch.ops.framegraph_arguments, names[schema])
    library._destroy()


def as_given(value):
    """With the type, and the identity of what is compared by it."""
    return value if isinstance(value, torch.Generator) else (type(value), repr(value))


@pytest.mark.parametrize("schema", ARGUMENTS)
def test_an_argument_of_each_kind(schema, library):
    given, operator = library
    op = operator(schema)
    x = torch.arange(3.0)
    for value in ARGUMENTS[schema]:
        fn = lambda x: op(x, value)
        del given[:]
        expected = fn(x)
        torch.testing.assert_close(dynamo.compile(fn)(x), expected)
        first, second = map(as_given, given)
        assert first == second, value


@pytest.mark.parametrize("dynamic", [False, True])
def test_tensors_and_sizes_among_the_arguments(dynamic):
    library = torch.library.Library("framegraph_tensors", "DEF")
    schema = "Tensor x, Tensor[] many, Tensor?[] some, Tensor? one, SymInt[] sizes, SymInt? size"
    library.define(
        f"mixed({schema}, str how, *, Scalar? times=None, float rate=0.5) -> (Tensor, Tensor[])"
    )

    def run(x, many, some, one, sizes, size, how, *, times=None, rate=0.5):
        assert how == "sum" and [s is None for s in some] == [False, True]
        total = sum(many) + some[0] + (0 if one is None else one)
        return total * rate + sum(sizes) + (size or 0), [total * (times or 1), x + len(many)]

    def fake(x, *args, **kwargs):
        return torch.empty_like(x), [torch.empty_like(x), torch.empty_like(x)]

    library.impl("mixed", run, "CPU")
    library.impl("mixed", fake, "Meta")
    op = torch.ops.framegraph_tensors.mixed

    def fn(x, y):
        sizes = [x.shape[0], 7]
        first, (second, third) = op(
            x * 2, [x + 1, y], [y.sin(), None], None, sizes, x.shape[0], "sum", times=2.5
        )
        return first + 1, second * third

    compiled = dynamo.compile(fn, dynamic=dynamic)
    try:
        for n in (3, 5, 6):
            x, y = torch.randn(n), torch.randn(n)
            for a, b in zip(compiled(x, y), fn(x, y)):
                torch.testing.assert_close(a, b)
    finally:
        library._destroy()


def test_a_plan_with_objects_is_not_stored(library, monkeypatch):
    kept = []
    monkeypatch.setattr(plan_cache.cache, "save_plan", lambda *args: kept.append(args))
    _, operator = library
    op = operator("Generator? v")

    def compiled(value):
        with torch.no_grad():
            graph = symbolic_trace(lambda x: (op(x, value) + 1,))
            c = new_compilation(graph, [torch.ones(3)])
            c.cached = True
            return run_stages(c)

    c = compiled(GENERATOR)
    assert [type(item) for item in c.spec.objects] == [torch.Generator] and not kept
    with pytest.raises(PlanError, match="cannot be stored"):
        c.spec.to_json()
    assert torch.equal(c.compiled(torch.ones(3))[0], torch.full((3,), 3.0))
    c = compiled(None)
    assert not c.spec.objects and PlanSpec.from_json(c.spec.to_json()) == c.spec
