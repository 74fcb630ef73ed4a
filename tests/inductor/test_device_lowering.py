"""Plans of graphs on a GPU, made of tensors without memory: who computes what."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from fxgraph import symbolic_trace
from inductor import devices
from inductor.pipeline import new_compilation, run_stages
from inductor.runtime.device_graph import device_for
from inductor.runtime.link import link
from inductor.runtime.plan import AtenStep, BufferSpec, OutputSpec, PlanSpec, TensorSpec
from inductor.schedule.updates import GPU_PARTS
from tests.inductor.test_pipeline import fake_tensor_mode

CUDA, CPU = "cuda", "cpu"


def planned(fn, *inputs):
    """The compilation of fn, up to its plan. An input: (size, dtype, device)."""
    with fake_tensor_mode():
        made = [torch.empty(size, dtype=dtype, device=device) for size, dtype, device in inputs]
    c = new_compilation(symbolic_trace(fn), made)
    with torch.no_grad():
        run_stages(c, until="codegen")
    check(c.spec)
    return c


def check(spec):
    """No kernel sees memory of another device."""
    own = {kernel.name: kernel.device for kernel in spec.triton}
    where = {t.name: t.device for t in [*spec.inputs, *spec.constants, *spec.buffers]}
    for step in spec.steps:
        if step.kind == "view":
            where[step.out] = where[step.base]
        if step.kind in ("kernel", "launch"):
            devices = {where[name] for name in step.names()}
            assert devices == {own[step.kernel] if step.kind == "launch" else "cpu"}, step


def steps(c):
    return [s.op.removeprefix("aten::") if s.kind == "aten" else s.kind for s in c.spec.steps]


f32, bf16, i64, i16 = torch.float32, torch.bfloat16, torch.int64, torch.int16


@pytest.mark.parametrize(
    ("fn", "inputs", "wanted"),
    [
        (lambda x, y: (x * y + 1,), [((4,), f32, CUDA), ((), f32, CPU)], ["mul", "launch"]),
        (lambda y, x: (y * x + 1,), [((), f32, CPU), ((4,), f32, CUDA)], ["mul", "launch"]),
        (lambda x: ((x * 2).cpu() + 1,), [((4,), f32, CUDA)], ["launch", "_to_copy", "kernel"]),
        (lambda c, x: (torch.where(c > 0, x, 0.0),), [((), f32, CPU), ((4,), f32, CUDA)],
         ["kernel", "launch", "where"]),
        (lambda x: (torch.softmax(x * 2, -1) @ x,), [((64, 64), f32, CUDA)], ["launch", "mm"]),
        (lambda x: (F.interpolate(x, size=(5, 7), mode="bilinear"),),
         [((2, 3, 4, 4), f32, CUDA)], ["launch", "launch"]),
        (lambda x: (F.adaptive_avg_pool2d(x, (3, 5)) * 2,),
         [((2, 3, 7, 8), f32, CUDA)], ["launch", "launch"]),
        (lambda x, w, b: (F.gelu(F.linear(x, w, b)),),
         [((8, 64), f32, CUDA), ((32, 64), f32, CUDA), ((32,), f32, CUDA)],
         ["launch"]),
        (lambda x, w, b: (F.gelu(F.linear(x, w, b)),),
         [((4096, 4096), f32, CUDA), ((4096, 4096), f32, CUDA), ((4096,), f32, CUDA)],
         ["view", "addmm", "launch"]),
        (lambda x, w, b: (F.gelu(F.linear(x, w, b)),),
         [((512, 768), bf16, CUDA), ((3072, 768), bf16, CUDA), ((3072,), bf16, CUDA)], ["launch"]),
        (lambda x, w: (torch.mm(x, w),), [((4096, 768), bf16, CUDA), ((768, 768), bf16, CUDA)],
         ["mm"]),
        (lambda x, w: (F.relu(F.conv2d(x, w)),),
         [((2, 3, 8, 8), bf16, CUDA), ((4, 3, 3, 3), bf16, CUDA)], ["convolution", "launch"]),
        (lambda i, w: (F.embedding(i, w).sum(1),), [((4, 5), i64, CUDA), ((9, 8), f32, CUDA)],
         ["launch", "_assert_async", "launch"]),
    ],
)  # fmt: skip
def test_who_computes(fn, inputs, wanted):
    assert steps(planned(fn, *inputs)) == wanted


ON = [((8, 64), f32, "cuda:0"), ((8, 64), f32, "cuda:1"), ((64, 64), f32, "cuda:1")]


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (lambda x, y, w: (x * 2 + 1, y * 3, w * 4), ["launch"] * 3),
        (lambda x, y, w: (x * 2 + (y * 3).to("cuda:0") * 5,), ["launch", "_to_copy", "launch"]),
        (lambda x, y, w: (x + y.to("cuda:0"), y * 2 + x.to("cuda:1")),
         ["_to_copy", "_to_copy", "launch", "launch"]),
        (lambda x, y, w: (F.gelu(F.linear(y * 2, w)).to("cuda:0") + x,),
         ["launch", "launch", "_to_copy", "launch"]),
    ],
)  # fmt: skip
def test_two_devices(fn, wanted, monkeypatch):
    """Kernels are of one device each; operators of aten take tensors from one to another."""
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    c = planned(fn, *ON)
    assert steps(c) == wanted
    assert {kernel.device for kernel in c.spec.triton} == {"cuda:0", "cuda:1"}


def test_an_input_is_written_from_another_device():
    """By one operator; the rest of the graph has its kernels."""

    def write(x, y, z):
        x.copy_(y)
        return (torch.exp(z) + 1,)

    c = new_compilation(symbolic_trace(write), [torch.zeros(8) for _ in range(3)])
    run_stages(c, until="functionalize")
    with fake_tensor_mode():
        on_device = torch.empty(8, device=CUDA)
    for node in c.functional.graph_module.graph.nodes:
        if "val" in node.meta and node.name != "y":
            node.meta["val"] = on_device
    run_stages(c, until="codegen")
    check(c.spec)
    assert sorted(steps(c)) == ["copy_", "launch"]


def bottleneck(norm):
    def fn(x, v, a, b, c):
        y = norm(F.conv2d(x, a), v)
        y = norm(F.conv2d(F.relu(y), b, None, 1, 1), v)
        return (F.relu(norm(F.conv2d(F.relu(y), c), v) + x),)

    size = [((8, 64, 14, 14), bf16, CUDA), ((64,), bf16, CUDA)]
    weights = [(64, 64, 1, 1), (64, 64, 3, 3), (64, 64, 1, 1)]
    return fn, [*size, *((weight, bf16, CUDA) for weight in weights)]


def inference(y, v):
    return F.batch_norm(y, v, v, v, v)


def statistics(y, v):
    return F.batch_norm(y, None, None, v, v, training=True)


@pytest.mark.parametrize(("groups", "plain"), [(1, True), (2, True), (4, False)])
@pytest.mark.parametrize("call", [F.conv2d, F.conv_transpose2d])
def test_the_bias_of_a_convolution_joins_a_kernel(call, groups, plain):
    """cuDNN would leave it to a pass over the result; depthwise convolutions of eager's add it."""

    def fn(x, w, b):
        return (F.gelu(call(x, w, b, groups=groups)),)

    sizes = (2, 4, 8, 8), (4, 4 // groups, 3, 3), (4,)
    c = planned(fn, *((size, f32, CUDA) for size in sizes))
    assert steps(c) == ["convolution", "launch"]
    convolution = c.spec.steps[0]
    assert (convolution.args[2] is None) == plain


def test_images_of_convolutions_have_channels_innermost():
    """Those of one pixel are products then, with all that reads them."""
    fn, inputs = bottleneck(inference)
    c = planned(fn, *inputs)
    assert steps(c) == ["launch", "launch", "convolution", "launch", "launch"]
    convolution = next(s for s in c.spec.steps if s.kind == "aten")
    (made,) = [b for b in c.spec.buffers if b.name in convolution.produces()]
    assert tuple(made.stride) == (14 * 14 * 64, 1, 14 * 64, 64)


@pytest.mark.parametrize(
    ("norm", "dtype", "setting"),
    [
        (statistics, bf16, "allow_tf32"),
        (inference, f32, "allow_tf32"),
        (inference, bf16, "enabled"),
    ],
)
def test_images_that_stay_as_they_are(norm, dtype, setting):
    """Sums of each channel would be slower; convolutions of float32 as such are no faster; cuDNN is
    off.
    """
    fn, inputs = bottleneck(norm)
    flags = {"enabled": True, "allow_tf32": True} | {setting: False}
    with torch.backends.cudnn.flags(**flags):
        c = planned(fn, *((size, dtype, device) for size, _, device in inputs))
    assert steps(c).count("convolution") == 3
    assert not any("layout" in note for note in c.notes)


def test_updates_share_launches():
    """What an optimizer, or batch norm, writes: as many as one kernel may have."""
    count = 2 * GPU_PARTS + 3

    def step(*tensors):
        for p, g, n in zip(tensors[:count], tensors[count : 2 * count], tensors[2 * count :]):
            n.add_(1)
            p.sub_(g / n)
        return ()

    given = ", ".join(f"x{k}" for k in range(3 * count))
    graph = symbolic_trace(eval(f"lambda {given}: step({given})", {"step": step}))
    sizes = [(8 + 4 * (k % 5),) for k in range(count)]
    tensors = [torch.ones(size) for size in (*sizes, *sizes, *[()] * count)]
    c = new_compilation(graph, tensors)
    run_stages(c, until="functionalize")
    for node in c.functional.graph_module.graph.nodes:
        if "val" in node.meta:
            with fake_tensor_mode():
                node.meta["val"] = torch.empty(node.meta["val"].shape, device=CUDA)
    run_stages(c, until="codegen")
    check(c.spec)
    assert steps(c) == ["launch"] * 6  # three of counters, three of parameters
    written = [name for step in c.spec.steps for name in step.writes if name.startswith("arg")]
    assert len(written) == len(set(written)) == 2 * count
    assert all(len(k.source) < 64_000 for k in c.spec.triton)


def test_a_cat_that_others_than_kernels_of_elements_read_is_made_once():
    """The backward is given what lies in memory anyway."""
    from benchmarks.device_plan import captured, plans

    def dense(x, y):
        a, b = x.exp(), y.exp()  # the backward reads them
        both = torch.cat([a, b], 1)
        turned = torch.cat([-a[:, 1:], a[:, :1]], 1)  # part of a kernel of elements
        return ((both * both.mean((0, 2))[:, None]).sin().sum() + (turned * b).sin().sum(),)

    x, y = (torch.randn(4, 2, 9, requires_grad=True) for _ in range(2))
    ((gm, inputs),) = captured(dense, {"x": x, "y": y}, training=True)
    backward = plans(gm, inputs, training=True)[1].functional.graph_module.graph
    cats = [n for n in backward.nodes if n.target is torch.ops.aten.cat.default]
    kept = [
        n for n in backward.nodes if n.op == "placeholder" and n.meta["val"].shape[1:] == (4, 9)
    ]
    assert [n.meta["val"].shape[1] for n in cats] == [2] and len(kept) == 1


def test_predictions():
    """A fused plan moves fewer bytes in fewer launches; a graph takes the host's time away."""
    from benchmarks import device_plan, roofline
    from benchmarks.subjects import chain

    fn, example = chain()
    ((gm, inputs),) = device_plan.captured(fn, example)
    (plan,) = roofline.works_of_plan(device_plan.plan(gm, inputs))
    ((gm, inputs),) = device_plan.captured(fn, example)
    whole = device_plan.plan(gm, inputs, fusion=False)
    unfused, eager = roofline.works_of_plan(whole), roofline.works_of_eager(whole)
    assert plan.bytes == 2 * 4 * 1024 * 1024 + 2 * 4 * 1024 < sum(w.bytes for w in unfused)
    assert len(eager) == 5
    many = [roofline.Work("mul", 1 << 10, 1)] * 100
    for device in roofline.DEVICES.values():
        graph, plan_, eager_ = (
            roofline.predicted(many, s, device, "bfloat16") for s in ("graph", "plan", "eager")
        )
        assert graph <= plan_ <= eager_
    product = roofline._flops(
        torch.ops.aten.mm, [{"buf": "x"}, {"buf": "y"}], {"x": (4, 8), "y": (8, 2), "z": (4, 2)},
        ["z"],
    )  # fmt: skip
    assert product == 2 * 4 * 8 * 2


def test_eager_adds_the_bias_of_a_convolution_in_a_pass():
    from benchmarks import device_plan, roofline

    net, x = torch.nn.Conv2d(4, 8, 3), torch.randn(2, 4, 6, 6)
    ((gm, inputs),) = device_plan.captured(net, {"input": x}, training=True)
    parts = device_plan.plans(gm, inputs, training=True, whole=True, fusion=False)
    forward, backward = (roofline.works_of_eager(part) for part in parts)
    nbytes = 2 * 8 * 4 * 4 * 4
    assert [(w.name, w.bytes) for w in forward][1:] == [("add_", 2 * nbytes)]
    assert ("sum", nbytes) in [(w.name, w.bytes) for w in backward]


def test_eager_runs_no_copies_of_statistics_and_nothing_twice():
    """The graphs of training copy what batch norm writes, and make concatenations anew."""
    from benchmarks import device_plan, roofline

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.conv = torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 4, 1, bias=False)

        def forward(self, x):
            return self.conv(torch.relu(self.norm(torch.cat([x, x * 2], 1))))

    net = Net()
    x = torch.randn(2, 4, 8, 8)
    ((gm, inputs),) = device_plan.captured(net, {"x": x}, training=True)
    parts = device_plan.plans(gm, inputs, training=True, whole=True, fusion=False)
    names = [{node.name for node in p.functional.graph_module.graph.nodes} for p in parts]
    forward, backward = (
        {work.name: work for work in roofline.works_of_eager(part, before)}
        for part, before in zip(parts, [set(), names[0]], strict=True)
    )
    batch_norm = "_native_batch_norm_legit_functional"
    assert {batch_norm, "add", "cat", "convolution", "mul", "relu"} <= forward.keys()
    assert "copy_" not in forward
    assert "cat" not in backward and "convolution_backward" in backward
    # The statistics first, then each element: the input is read twice.
    whole = 4 * 2 * 8 * 8 * 8
    assert 3 * whole < forward[batch_norm].bytes < 3.1 * whole
    assert 5 * whole < backward["native_batch_norm_backward"].bytes < 5.1 * whole


def test_attention():
    def attend(q, k, v):
        return (F.scaled_dot_product_attention(q * 2, k, v) + 1,)

    c = planned(attend, *[((2, 4, 64, 32), f32, CUDA)] * 3)
    assert "kernel" not in steps(c) and "launch" in steps(c)


class Captures:
    captures_aten = True


def attention_and_gradient(dropout):
    def fn(q, k, v, g):
        aten = torch.ops.aten
        out, lse, seed, offset = aten._scaled_dot_product_efficient_attention.default(
            q, k, v, None, True, dropout, True
        )
        back = aten._scaled_dot_product_efficient_attention_backward.default
        mask = [True, True, True, False]
        dq, dk, dv, _ = back(g, q, k, v, None, out, lse, seed, offset, dropout, mask, True)
        return dq + 1, dk, dv

    return fn


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_seeds_of_attention(dropout):
    """Outside of a capture they are on the host, and a graph's on the device: where dropout needs
    them, a backward by a plan cannot read a graph's."""
    c = planned(attention_and_gradient(dropout), *[((2, 4, 64, 32), bf16, CUDA)] * 4)
    (kernel,) = c.spec.triton
    kernel.device = Captures
    found = device_for(c.spec, {kernel.name: kernel})
    assert (found is Captures) == (dropout == 0) and (dropout == 0 or "seeds" in found)


def test_operators_see_to_devices_themselves():
    """An argument that no kernel reads may be elsewhere than shape functions say, as seeds are."""
    spec = PlanSpec(
        inputs=[TensorSpec("arg0", "int64", (), (), device="cuda:0")],
        buffers=[BufferSpec("buf0", "int64", (), (), device="cuda:0", kind="aten")],
        steps=[AtenStep("aten::neg", "", [{"buf": "arg0"}], ["buf0"])],
        outputs=[OutputSpec("buffer", "buf0")],
    )
    assert link(spec)(torch.tensor(3))[0].item() == -3


@pytest.mark.parametrize(
    ("fn", "inputs", "left"),
    [
        # What is missing, a scatter of small integers, is in no operator's name.
        (lambda x, i, y: (x.index_put((i,), y, accumulate=True) * 2, torch.abs(x).sum(1) + 1),
         [((8, 4), i16, CUDA), ((5,), i64, CUDA), ((5, 4), i16, CUDA)],
         {"aten.index_put.default"}),
        (lambda x, i, y: (x.scatter_reduce(0, i, y, "amax"), torch.exp(x) + 1),
         [((8,), f32, CUDA), ((5,), i64, CUDA), ((5,), f32, CUDA)], {"aten.scatter_reduce"}),
    ],
)  # fmt: skip
def test_an_operator_without_a_form_is_left_alone(fn, inputs, left):
    c = planned(fn, *inputs)
    assert c.left_to_aten == left, c.notes
    assert "launch" in steps(c)
    assert len(c.notes) == 1 and "no Triton form" in c.notes[0]


@pytest.mark.parametrize("on", [False, True])
def test_deterministic_algorithms(on):
    """Additions that meet are the library's, in an order that it keeps."""
    inputs = [((9, 4), f32, CUDA), ((3,), i64, CUDA), ((3, 4), f32, CUDA)]
    fns = {
        "index_add": lambda x, i, v: (x.index_add(0, i, v) * 2,),
        "scatter_add": lambda x, i, v: (x.scatter_add(0, i.unsqueeze(1).expand(3, 4), v) * 2,),
        "index_put": lambda x, i, v: (x.index_put((i,), v, accumulate=True) * 2,),
    }
    torch.use_deterministic_algorithms(on)
    try:
        found = {name: steps(planned(fn, *inputs)) for name, fn in fns.items()}
    finally:
        torch.use_deterministic_algorithms(False)
    assert all((name in found[name]) == on for name in fns), found


@pytest.mark.parametrize(
    ("size", "dims", "tiles", "counts"),
    [
        ((4, 3152, 768), [0], [(1024, 4)], [2364]),  # few and short sums: many in a program
        ((50176, 64), [0], [(32, 256), (16, 256)], [512, 4]),
        ((16, 56, 56, 256), [0, 1, 2], [(64, 64), (16, 64)], [256, 16]),  # channels innermost
    ],
    ids=str,
)
def test_sums_read_memory_that_lies_together(size, dims, tiles, counts):
    """Elements of one address after another are a program's, also where sums are made in parts."""
    c = planned(lambda x: (x.sum(dims),), (size, f32, CUDA))
    kernels = c.spec.triton
    assert [(k.constants["XBLOCK"], k.constants["RBLOCK"]) for k in kernels] == tiles
    assert [step.programs for step in c.spec.steps if step.kind == "launch"] == counts
    if len(kernels) > 1:
        assert f"+ (x % {size[-1]})" in kernels[0].source


def attention_kernels(c):
    labels = [step.label for step in c.spec.steps if step.kind == "launch"]
    return sum(label.startswith("attention of") for label in labels)


def test_products_of_a_device_without_tensor_cores_for_triton(monkeypatch):
    """They are the library's, and scores of attention are in memory: by Triton both would spill."""

    def attend(q, k, v):
        weights = torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1)
        return (F.gelu(weights @ v),)

    inputs = [((2, 4, 64, 32), f32, CUDA)] * 3
    large = [((16, 16, 512, 32), f32, CUDA)] * 3  # scores whose memory counts
    assert "bmm" not in steps(planned(attend, *large))
    assert attention_kernels(planned(attend, *large)) == 1
    assert attention_kernels(planned(attend, *inputs)) == 0
    monkeypatch.setattr(devices, "device_model", lambda *about: devices.DEVICES["t4"])
    c = planned(attend, *large)
    assert steps(c).count("bmm") == 2 and "launch" in steps(c)
    assert attention_kernels(c) == 0


@pytest.mark.parametrize("last", [True, False])
def test_sums_of_a_group_read_neighbouring_channels_in_turn(last):
    """Where images have channels innermost: of 40, 10 in a group."""
    with fake_tensor_mode():
        x = torch.empty((2, 40, 16, 16), dtype=bf16, device=CUDA)
        x = x.to(memory_format=torch.channels_last) if last else x
        w = torch.empty(40, dtype=bf16, device=CUDA)
    c = new_compilation(symbolic_trace(lambda x, w: (F.group_norm(x, 4, w, w),)), [x, w])
    with torch.no_grad():
        run_stages(c, until="codegen")
    sums = next(kernel.source for kernel in c.spec.triton if "row_sum" in kernel.source)
    assert ("r % 10" in sums) == last


def test_a_kernel_behind_a_product_counts_in_the_template():
    """GPT-2's layer with a gelu, measured on an H200: by the library and a kernel. Not so a sum."""
    size = [((2048, 768), bf16, CUDA), ((768, 3072), bf16, CUDA), ((2048, 3072), bf16, CUDA)]

    def gelu(x, w, y):
        return (F.gelu(x @ w, approximate="tanh"),)

    def added(x, w, y):
        return (x @ w + y,)

    for fn, wanted in ((gelu, ["mm", "launch"]), (added, ["launch"])):
        with mock.patch.object(devices, "device_model", lambda *_: devices.DEVICES["h200"]):
            assert steps(planned(fn, *size)) == wanted
