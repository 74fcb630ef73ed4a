"""The plan executor, on hand-written plans against eager."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
import weakref

import psutil
import pytest
import torch

from fxgraph.sizes import contiguous_strides
from inductor.runtime import _plan
from inductor.runtime.link import link
from inductor.runtime.plan import (
    AtenStep,
    BufferSpec,
    CallStep,
    ConstantSpec,
    KernelStep,
    OutputSpec,
    PlanError,
    PlanSpec,
    TensorSpec,
    ViewStep,
    dtype_name,
    encode,
)
from tests.inductor.plan_kernels import (
    add1,
    add1_plan,
    buffer,
    chain_plan,
    library,
    tensor_input,
)


def spec_of(name, tensor):
    return TensorSpec(name, dtype_name(tensor.dtype), tuple(tensor.shape), tensor.stride())


def aten_plan(op, overload, args, kwargs, inputs, results):
    """A plan of one aten step; `results` are eager's."""
    names = {id(t): f"x{i}" for i, t in enumerate(inputs)}

    def name_of(leaf):
        return names.get(id(leaf))

    buffers = [
        BufferSpec(f"r{i}", dtype_name(r.dtype), tuple(r.shape), r.stride(), kind="aten")
        for i, r in enumerate(results)
    ]
    step = AtenStep(
        op,
        overload,
        encode(list(args), name_of),
        [b.name for b in buffers],
        {key: encode(value, name_of) for key, value in kwargs.items()},
    )
    return PlanSpec(
        inputs=[spec_of(names[id(t)], t) for t in inputs],
        buffers=buffers,
        steps=[step],
        outputs=[OutputSpec("buffer", b.name) for b in buffers],
    )


# --- kernels --------------------------------------------------------------------------------------


def test_one_kernel():
    plan = link(add1_plan(2, 3), library())
    x = torch.randn(2, 3)
    (out,) = plan(x)
    assert torch.equal(out, x + 1)
    assert out.stride() == (3, 1) and out._version == 0 and out.is_leaf
    assert plan(x)[0] is not out and plan.kernels == 1


def test_unaligned_input():
    plan = link(add1_plan(5), library())
    x = torch.randn(6)[1:]
    assert torch.equal(plan(x)[0], x + 1)


@pytest.mark.parametrize("size, grain", [(7, 1), (100_000, 1000), (3, 32768), (0, 1)])
def test_chain_in_parallel_pieces(size, grain):
    plan = link(chain_plan(5, size, grain), library())
    x = torch.randn(size)
    assert torch.allclose(plan(x)[0], x + 5)


def test_temps_share_the_arena():
    assert link(chain_plan(6, 1000), library()).arena_bytes == 4032


def test_byte_offsets_and_views_of_views():
    spec = PlanSpec(
        inputs=[tensor_input("x", 4, 4)],
        buffers=[buffer("out", 4, kind="output")],
        steps=[
            ViewStep("rows", "x", (2, 4), (4, 1), 4),
            ViewStep("row", "rows", (4,), (1,), 4),
            KernelStep("add1", [("row", 0), ("out", 0)], ["out"], 3),
            KernelStep("add1", [("row", 0), ("out", 4)], ["out"], 3),
        ],
        outputs=[OutputSpec("buffer", "out")],
    )
    x = torch.randn(5, 4)[1:]
    out = link(spec, library())(x)[0]
    assert torch.equal(out, torch.cat([x[2, :1], x[2, :3]]) + 1)


@pytest.mark.parametrize(
    "wrong",
    [torch.randn(4), torch.randn(2, 3).double(), torch.randn(3, 2).t(), torch.randn(2, 3, 1)],
)
def test_wrong_tensor_is_refused(wrong):
    with pytest.raises(RuntimeError, match="compiled for"):
        link(add1_plan(2, 3), library())(wrong)


def test_strides_of_single_element_dimensions_do_not_matter():
    plan = link(add1_plan(1, 3), library())
    x = torch.randn(3).as_strided((1, 3), (77, 1))
    assert torch.equal(plan(x)[0], x + 1)


def test_wrong_arguments_are_type_errors():
    plan = link(add1_plan(2), library())
    for args, kwargs in [((), {}), ((torch.ones(2),) * 2, {}), ((3,), {}), ((), {"x": 1})]:
        with pytest.raises(TypeError):
            plan(*args, **kwargs)


def test_missing_kernel():
    spec = add1_plan(2)
    spec.steps[0].symbol = "nowhere"
    with pytest.raises(AttributeError, match="nowhere"):
        link(spec, library())


# --- aten steps -----------------------------------------------------------------------------------

X = torch.randn(2, 3, 8, 8)
W = torch.randn(4, 3, 3, 3)
Y = torch.randn(2, 3, 8, 8)
INDEX = torch.tensor([1, 0, 1])
aten = torch.ops.aten

CASES = [
    (aten.add.Tensor, (X, Y), {"alpha": 2}),
    (aten.add.Tensor, (X, 1), {}),
    (aten.mul.Scalar, (X, 2.5), {}),
    (aten.clamp.default, (X, None, 0.5), {}),
    (aten.full_like.default, (X, float("inf")), {}),
    (aten.convolution.default, (X, W, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), {}),
    (aten.cat.default, ([X, Y, X], 1), {}),
    (aten.index.Tensor, (X, [None, INDEX]), {}),
    (aten.split.Tensor, (X, 3, 2), {}),
    (aten.native_layer_norm.default, (X, [8], None, None, 1e-5), {}),
    (aten.max_pool2d_with_indices.default, (X, [2, 2]), {}),
    (aten._to_copy.default, (X,), {"dtype": torch.float64}),
    (aten._to_copy.default, (X,), {"memory_format": torch.channels_last}),
    (aten.empty_like.default, (X[:0],), {"device": torch.device("cpu"), "layout": torch.strided}),
    (aten.arange.start_step, (0, 9, 2), {"dtype": torch.int32}),
    (aten.upsample_nearest2d.vec, (X, None, [2.0, 2.0]), {}),
    (aten.sum.dim_IntList, (X, [1, 2], True), {}),
    (aten.topk.default, (X, 2), {}),
    (aten.div.Tensor_mode, (X, Y), {"rounding_mode": "floor"}),
    (aten.bitwise_and.Scalar, (INDEX, True), {}),
    (aten.view.default, (X, [6, 64]), {}),
]


@pytest.mark.parametrize("op, args, kwargs", CASES, ids=[str(c[0]) for c in CASES])
def test_aten_step(op, args, kwargs):
    want = op(*args, **kwargs)
    results = [want] if isinstance(want, torch.Tensor) else list(want)
    flat = [a for arg in args for a in (arg if isinstance(arg, list) else [arg])]
    inputs = list({id(a): a for a in flat if isinstance(a, torch.Tensor)}.values())
    schema = op._schema
    spec = aten_plan(schema.name, schema.overload_name, args, kwargs, inputs, results)
    spec = PlanSpec.from_json(spec.to_json())
    for got, expected in zip(link(spec)(*inputs), results):
        assert got.dtype == expected.dtype and got.stride() == expected.stride()
        assert torch.equal(got, expected)


def test_result_with_unexpected_strides_is_copied_for_kernels():
    x = torch.randn(3, 4)
    spec = PlanSpec(
        inputs=[spec_of("x", x)],
        buffers=[buffer("t", 4, 3, kind="aten"), buffer("out", 4, 3, kind="output")],
        steps=[AtenStep("aten::t", "", [{"buf": "x"}], ["t"]), add1("t", "out", 12)],
        outputs=[OutputSpec("buffer", "out")],
    )
    assert torch.equal(link(spec, library())(x)[0], x.t() + 1)


def test_result_with_unexpected_size_is_an_error():
    x = torch.randn(3, 4)
    spec = PlanSpec(
        inputs=[spec_of("x", x)],
        buffers=[buffer("t", 3, 4, kind="aten"), buffer("out", 3, 4, kind="output")],
        steps=[AtenStep("aten::t", "", [{"buf": "x"}], ["t"]), add1("t", "out", 12)],
        outputs=[OutputSpec("buffer", "out")],
    )
    with pytest.raises(RuntimeError, match="result 't'"):
        link(spec, library())(x)


def test_out_variant_writes_a_temp():
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    out_step = AtenStep("aten::mm", "out", [{"buf": "a"}, {"buf": "b"}], [], {"out": {"buf": "t"}})
    spec = PlanSpec(
        inputs=[spec_of("a", a), spec_of("b", b)],
        buffers=[buffer("pad", 9), buffer("t", 5, 3), buffer("out", 5, 3, kind="output")],
        steps=[
            KernelStep("increment", [("pad", 0)], ["pad"], 9),
            out_step,
            KernelStep("increment", [("pad", 0)], ["pad"], 9),
            add1("t", "out", 15),
        ],
        outputs=[OutputSpec("buffer", "out")],
    )
    assert torch.equal(link(spec, library())(a, b)[0], a @ b + 1)


def test_view_used_by_aten():
    x = torch.randn(6)
    spec = PlanSpec(
        inputs=[tensor_input("x", 6)],
        buffers=[buffer("t", 6), buffer("r", 2, 3, kind="aten")],
        steps=[
            add1("x", "t", 6),
            ViewStep("v", "t", (2, 3), (1, 2), 0),
            AtenStep("aten::neg", "", [{"buf": "v"}], ["r"]),
        ],
        outputs=[OutputSpec("buffer", "r")],
    )
    assert torch.equal(link(spec, library())(x)[0], -(x + 1).as_strided((2, 3), (1, 2)))


def test_autocast_is_not_applied_again():
    a = torch.randn(4, 4)
    spec = aten_plan("aten::mm", "", (a, a), {}, [a], [a])
    with torch.autocast("cpu", torch.bfloat16):
        assert link(spec)(a)[0].dtype == torch.float32


def test_error_in_a_step_leaves_nothing():
    a = torch.randn(4, 4)
    spec = aten_plan("aten::linalg_inv", "", (a,), {}, [a], [a])
    plan = link(spec)
    singular = torch.zeros(4, 4)
    for _ in range(3):
        with pytest.raises(torch.linalg.LinAlgError):
            plan(singular)
    alive = weakref.ref(singular)
    del singular
    assert alive() is None
    assert torch.allclose(plan(a)[0], torch.linalg.inv(a))


# --- Python steps ---------------------------------------------------------------------------------


def call_plan(size):
    return PlanSpec(
        inputs=[tensor_input("x", size)],
        buffers=[
            buffer("t", size),
            buffer("r", size, kind="aten"),
            buffer("o", size, kind="output"),
        ],
        steps=[
            add1("x", "t", size),
            CallStep("f", [{"buf": "t"}, [1, "a"]], ["r"], {"flag": True}),
            add1("r", "o", size),
        ],
        outputs=[OutputSpec("buffer", "o")],
    )


def test_python_step():
    seen = []

    def f(t, rest, flag):
        seen.append((rest, flag))
        return t * 2

    plan = link(call_plan(3), library(), callables={"f": f})
    x = torch.randn(3)
    assert torch.equal(plan(x)[0], (x + 1) * 2 + 1)
    assert seen == [([1, "a"], True)]


def test_python_step_that_keeps_a_temp_keeps_its_memory():
    kept = []
    plan = link(call_plan(3), library(), callables={"f": lambda t, *_, **__: kept.append(t) or t})
    for i in range(3):
        plan(torch.full((3,), float(i)))
    assert [t[0].item() for t in kept] == [1.0, 2.0, 3.0]


def test_python_step_raises():
    def f(*args, **kwargs):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        link(call_plan(3), library(), callables={"f": f})(torch.randn(3))


@pytest.mark.parametrize("result", [None, 3, ("a",)])
def test_python_step_with_a_bad_result(result):
    with pytest.raises((RuntimeError, TypeError)):
        link(call_plan(3), library(), callables={"f": lambda *_, **__: result})(torch.randn(3))


def taking_plan():
    """A kernel that is the last use of x, and a Python step after it."""
    return PlanSpec(
        inputs=[tensor_input("x", 3), tensor_input("y", 3)],
        buffers=[buffer("t", 3), buffer("out", 3, kind="aten")],
        steps=[
            add1("x", "t", 3),
            CallStep("f", [{"buf": "t"}, {"buf": "y"}], ["out"]),
        ],
        outputs=[OutputSpec("buffer", "out"), OutputSpec("input", "y")],
    )


def test_taken_inputs_are_let_go_after_their_last_use():
    alive = []

    def f(t, y):
        alive.append(memory() is not None)
        return t + y

    plan = link(taking_plan(), library(), callables={"f": f})
    for take in (True, False):
        x, y = torch.randn(3), torch.randn(3)
        expected = x + 1 + y
        memory = weakref.ref(x.untyped_storage())
        given = [x, y]
        del x
        out, same = plan.take(given) if take else plan(*given)
        assert torch.equal(out, expected) and same is y
        assert given == [] if take else len(given) == 2
    assert alive == [False, True]


def test_taken_inputs_that_others_have_stay():
    plan = link(taking_plan(), library(), callables={"f": lambda t, y: t + y})
    x, y = torch.randn(3), torch.randn(3)
    kept = x.clone()
    out, _ = plan.take([x, y])
    assert torch.equal(x, kept) and torch.equal(out, x + 1 + y)


def test_taking_what_does_not_fit():
    plan = link(taking_plan(), library(), callables={"f": lambda t, y: t + y})
    given = [torch.randn(3)]
    with pytest.raises(TypeError, match="takes 2 tensors, got 1"):
        plan.take(given)
    assert len(given) == 1  # nothing has been taken
    with pytest.raises(TypeError, match="a list"):
        plan.take((torch.randn(3), torch.randn(3)))
    with pytest.raises(RuntimeError, match="compiled for"):
        plan.take([torch.randn(4), torch.randn(3)])


def test_plan_is_reentrant():
    depth = []

    def f(t, rest, flag):
        depth.append(1)
        return plan(t)[0] if len(depth) < 5 else t

    plan = link(call_plan(3), library(), callables={"f": f})
    x = torch.zeros(3)
    assert torch.equal(plan(x)[0], x + 10)


def test_custom_op():
    @torch.library.custom_op("framegraph_test::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    x = torch.randn(4)
    spec = aten_plan("framegraph_test::triple", "", (x,), {}, [x], [x])
    assert torch.equal(link(spec)(x)[0], x * 3)


def test_no_tensor_where_the_schema_declares_one():
    """The backward of attention on a device declares a bias; from its forward there may be none."""

    with torch.library._scoped_library("framegraph_test", "FRAGMENT") as scope:
        scope.define("tripled(Tensor x, Tensor bias) -> Tensor")
        scope.impl("tripled", lambda x, bias: x * 3 if bias is None else x, "CPU")
        x = torch.randn(4)
        spec = aten_plan("framegraph_test::tripled", "", (x, None), {}, [x], [x])
        assert torch.equal(link(spec)(x)[0], x * 3)


# --- outputs --------------------------------------------------------------------------------------


def outputs_plan(*outputs):
    return PlanSpec(
        inputs=[tensor_input("x", 2, 3), tensor_input("p", 2, 3, static=True)],
        buffers=[buffer("o", 2, 3, kind="output")],
        steps=[add1("x", "o", 6)],
        outputs=list(outputs),
        constants=[ConstantSpec.of("c", torch.tensor([5, 7]))],
    )


def test_output_kinds():
    p = torch.nn.Parameter(torch.randn(2, 3))
    plan = link(
        outputs_plan(
            OutputSpec("input", "x"),
            OutputSpec("input", "p"),
            OutputSpec("buffer", "o"),
            OutputSpec("buffer", "o"),
            OutputSpec("value", value=None),
            OutputSpec("value", value=3.5),
            OutputSpec("buffer", "c"),
            OutputSpec("view", "o", (3, 2), (1, 3)),
        ),
        library(),
        statics=[p],
    )
    x = torch.randn(2, 3)
    same, param, o, again, none, number, constant, transposed = plan(x)
    assert same is x and param is p and o is again and none is None and number == 3.5
    assert constant.tolist() == [5, 7]
    assert transposed._base is o and torch.equal(transposed, o.t())
    o.add_(1)
    assert transposed._version == 1 and torch.equal(transposed, o.t())


def test_view_of_input_is_tracked_as_eagers():
    plan = link(
        outputs_plan(OutputSpec("view", "x", (3,), (1,), 3)), library(), statics=[torch.ones(2, 3)]
    )
    x = torch.randn(3, 3)[1:]
    with torch.no_grad():
        (row,) = plan(x)
    assert torch.equal(row, x[1]) and row.data_ptr() == x[1].data_ptr()
    assert row._base is x._base
    x.mul_(2)
    assert row._version == x._version == 1


def test_temp_named_as_output_is_given_its_own_memory():
    spec = add1_plan(4)
    spec.buffers[0].kind = "temp"
    plan = link(spec, library())
    first, second = plan(torch.zeros(4))[0], plan(torch.ones(4))[0]
    assert first.tolist() == [1.0] * 4 and second.tolist() == [2.0] * 4


# --- autograd modes and mutation ------------------------------------------------------------------


def mutation_plan():
    return PlanSpec(
        inputs=[tensor_input("x", 3)],
        buffers=[],
        steps=[KernelStep("increment", [("x", 0)], ["x"], 3)],
        outputs=[OutputSpec("input", "x")],
    )


def aten_mutation_plan():
    return PlanSpec(
        inputs=[tensor_input("x", 3)],
        buffers=[],
        steps=[AtenStep("aten::add_", "Tensor", [{"buf": "x"}, 1], [])],
        outputs=[OutputSpec("input", "x")],
    )


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_step_fails_before_or_after_writes(written):
    """Versions count the writes before the failure: of each tensor one, as the plan knows it."""
    writes = [KernelStep("increment", [(name, 0)], [name], 3) for name in ("x", "y")]
    failing = AtenStep("aten::index_select", "", [{"buf": "x"}, 0, {"buf": "i"}], ["row"])
    plan = link(
        PlanSpec(
            inputs=[
                tensor_input("x", 3),
                tensor_input("y", 3),
                TensorSpec("i", "int64", (1,), (1,)),
            ],
            buffers=[BufferSpec("row", "float32", (1,), (1,), kind="aten")],
            steps=[*writes[:written], failing, *writes[written:]],
            outputs=[OutputSpec("buffer", "row")],
        ),
        library(),
    )
    x, y = torch.zeros(3), torch.zeros(3)
    assert plan(x, y, torch.tensor([1]))[0].tolist() == [float(written > 0)]
    assert x._version == y._version == 1
    with pytest.raises(IndexError):
        plan(x, y, torch.tensor([3]))
    assert x.tolist() == [1.0 + (written > 0)] * 3 and y.tolist() == [1.0 + (written > 1)] * 3
    assert x._version == 1 + (written > 0)


@pytest.mark.parametrize("spec", [mutation_plan(), aten_mutation_plan()])
def test_mutation(spec):
    plan = link(spec, library())
    x = torch.zeros(3)
    view = x[:2]
    assert plan(x)[0] is x and x.tolist() == [1.0] * 3
    assert x._version == view._version == 1
    parameter = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        plan(parameter)
    assert parameter.tolist() == [0.0] * 3
    with torch.no_grad():
        plan(parameter)
    assert parameter.tolist() == [1.0] * 3 and parameter._version == 1
    with torch.inference_mode():
        plan(x)
        inference = torch.zeros(3)
        plan(inference)
    assert x._version == 2 and inference.tolist() == [1.0] * 3
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        plan(inference)
    assert inference.tolist() == [1.0] * 3


def test_saved_tensor_notices_the_mutation():
    x = torch.ones(3)
    w = torch.ones(3, requires_grad=True)
    loss = (x * w).sum()
    link(mutation_plan(), library())(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("kind", ["kernel", "aten"])
def test_outputs_by_mode(kind):
    x = torch.randn(3, requires_grad=True)
    if kind == "kernel":
        plan = link(add1_plan(3), library())
    else:
        plan = link(aten_plan("aten::add", "Tensor", (x, 1), {}, [x], [x]))
    with torch.no_grad():
        (out,) = plan(x)
    assert not out.requires_grad and not out.is_inference()
    out.requires_grad_().sum().backward()
    with torch.inference_mode():
        assert plan(x)[0].is_inference()
    assert not plan(x)[0].requires_grad


# --- static inputs --------------------------------------------------------------------------------


def static_plan():
    return PlanSpec(
        inputs=[tensor_input("w", 3, static=True), tensor_input("x", 3)],
        buffers=[buffer("o", 3, kind="output")],
        steps=[KernelStep("add", [("x", 0), ("w", 0), ("o", 0)], ["o"], 3)],
        outputs=[OutputSpec("buffer", "o")],
    )


def test_static_input_is_read_anew():
    w = torch.nn.Parameter(torch.ones(3))
    plan = link(static_plan(), library(), statics={"w": w})
    x = torch.zeros(3)
    assert plan.binds_static and plan(x)[0].tolist() == [1.0] * 3
    w.data = torch.full((3,), 5.0)
    assert plan(x)[0].tolist() == [5.0] * 3
    w.data = torch.ones(4)
    with pytest.raises(RuntimeError, match="'w'.*compiled for"):
        plan(x)


def test_static_inputs_must_match():
    with pytest.raises(PlanError, match="1 static"):
        link(static_plan(), library())


def test_plan_holds_its_statics_and_lets_go():
    w = torch.ones(3)
    plan = link(static_plan(), library(), statics=[w])
    alive = weakref.ref(w)
    del w
    gc.collect()
    assert alive() is not None
    del plan
    assert alive() is None


def test_cycle_through_a_callable_is_collected():
    class Holder:
        def f(self, t, *_, **__):
            return t

    holder = Holder()
    holder.plan = link(call_plan(3), library(), callables={"f": holder.f})
    holder.plan.compile_report = {"kernels": 2}
    alive = weakref.ref(holder.plan)
    del holder
    gc.collect()
    assert alive() is None


# --- leaks and threads ----------------------------------------------------------------------------


def test_no_leak_in_10000_calls():
    plan = link(call_plan(1000), library(), callables={"f": lambda t, *_, **__: t + 1})
    x = torch.randn(1000)
    for _ in range(200):
        plan(x)
    process = psutil.Process()

    def resident() -> int:
        """What is in use: not what the tests before freed and the allocator keeps."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return process.memory_info().rss

    memory, objects = resident(), len(gc.get_objects())
    for _ in range(10_000):
        plan(x)
    assert resident() - memory < 8 << 20
    assert len(gc.get_objects()) - objects < 50  # fewer: what tests before left is gone


@pytest.mark.parametrize("size", [16, 200_000])
def test_threads(size):
    plan = link(chain_plan(9, size), library())
    wrong = []

    def work(seed):
        x = torch.full((size,), float(seed))
        for _ in range(50):
            if not torch.equal(plan(x)[0], x + 9):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_large_outputs_are_independent_and_their_memory_is_used_again():
    plan = link(add1_plan(1 << 19), library())
    first, second = plan(torch.zeros(1 << 19))[0], plan(torch.ones(1 << 19))[0]
    assert first[0] == 1 and second[-1] == 2
    assert first.untyped_storage().nbytes() == 2 << 20
    view, address = first[10:], first.data_ptr()
    del first
    assert plan(torch.zeros(1 << 19))[0].data_ptr() != address and view[0] == 1
    del view
    assert plan(torch.zeros(1 << 19))[0].data_ptr() == address
    second.resize_(1 << 20)
    assert second[0] == 2


def test_reading_keeps_copy_on_write():
    x = torch.zeros(3)
    lazy = torch._lazy_clone(x)
    assert link(add1_plan(3), library())(lazy)[0].tolist() == [1.0] * 3
    assert torch._C._is_cow_tensor(lazy)
    link(mutation_plan(), library())(lazy)
    assert x.tolist() == [0.0] * 3 and lazy.tolist() == [1.0] * 3


def test_profiler_sees_the_plan():
    plan = link(add1_plan(3), library())
    with torch.profiler.profile() as profile:
        plan(torch.zeros(3))
    assert "framegraph::plan" in {event.key for event in profile.key_averages()}


def test_idle_arenas_are_bounded():
    try:
        plan = link(chain_plan(3, 1 << 20), library())
        plan(torch.zeros(1 << 20))
        assert _plan.idle_arena_bytes() >= 4 << 20
        _plan.set_arena_limit(1 << 20)
        assert _plan.idle_arena_bytes() <= 1 << 20
        plan(torch.zeros(1 << 20))
        assert _plan.idle_arena_bytes() <= 1 << 20
    finally:
        _plan.set_arena_limit(1 << 30)


def test_large_outputs_have_memory_of_their_own():
    """Whatever is kept of other calls, freed in whatever order, given back to the system or not."""
    random.seed(0)
    plans = [(n, link(add1_plan(n), library())) for n in (20_000, 90_000, 300_000, 3_000_000)]
    kept: list[tuple[torch.Tensor, float]] = []
    try:
        for turn in range(300):
            n, plan = random.choices(plans, (8, 8, 4, 1))[0]
            kept.append((plan(torch.full((n,), float(turn)))[0], turn + 1.0))
            while len(kept) > random.randrange(12):
                tensor, value = kept.pop(random.randrange(len(kept)))
                assert tensor.min() == tensor.max() == value
                del tensor
            if turn % 50 == 0:
                _plan.set_arena_limit(random.choice((0, 1 << 20, 1 << 30)))
        assert all(tensor.min() == tensor.max() == value for tensor, value in kept)
        _plan.set_arena_limit(0)
        assert _plan.idle_arena_bytes() == 0
    finally:
        _plan.set_arena_limit(1 << 30)


def test_products_are_given_memory():
    """An operator that can write its result elsewhere writes it into the arena."""
    first = {"op": "aten::mm", "overload": "out", "outputs": []}
    spec = PlanSpec(
        inputs=[TensorSpec("x", "float32", (8, 8), (8, 1))],
        buffers=[
            BufferSpec("t", "float32", (8, 8), (8, 1)),
            BufferSpec("y", "float32", (8, 8), (8, 1), kind="output"),
        ],
        steps=[
            AtenStep(args=[{"buf": "x"}, {"buf": "x"}], kwargs={"out": {"buf": "t"}}, **first),
            AtenStep(args=[{"buf": "t"}, {"buf": "x"}], kwargs={"out": {"buf": "y"}}, **first),
        ],
        outputs=[OutputSpec("buffer", "y")],
    )
    plan = link(spec)
    x = torch.randn(8, 8)
    assert plan.arena_bytes == 256 and torch.equal(plan(x)[0], x @ x @ x)


# --- the dataclasses ------------------------------------------------------------------------------


def test_json_round_trip():
    spec = call_plan(3)
    spec.outputs.append(OutputSpec("view", "o", (3, 1), (1, 1)))
    spec.constants.append(ConstantSpec.of("c", torch.randn(2, 2)))
    assert PlanSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 0}', '{"format": 1, "inputs": 3}'])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(PlanError):
        PlanSpec.from_json(text)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("size", [(), (0,), (2, 3)])
def test_constants_survive(dtype, size):
    value = torch.randn(size).to(dtype)
    back = ConstantSpec.of("c", value).tensor()
    assert back.dtype == dtype and torch.equal(back, value)


def test_encode_refuses_what_json_cannot_hold():
    assert encode((1, None, [2.5]), lambda leaf: None) == [1, None, [2.5]]
    with pytest.raises(TypeError, match="object"):
        encode(object(), lambda leaf: None)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: s.steps[0].args.append(("q", 0)), "nothing before it defines"),
        (lambda s: s.steps[0].writes.append("q"), "not among its args"),
        (lambda s: s.buffers.append(buffer("out", 2)), "twice"),
        (lambda s: s.outputs.append(OutputSpec("buffer", "q")), "not defined"),
        (lambda s: s.outputs.append(OutputSpec("odd", "x")), "output kind"),
        (lambda s: s.buffers.append(buffer("b", 2, kind="odd")), "unknown kind"),
    ],
)
def test_validate(change, message):
    spec = add1_plan(2)
    change(spec)
    with pytest.raises(PlanError, match=message):
        link(spec, library())


def test_contiguous_strides():
    for size in [(), (3,), (2, 3, 4), (2, 0, 4), (1, 1)]:
        assert contiguous_strides(size) == torch.empty(size).stride()
