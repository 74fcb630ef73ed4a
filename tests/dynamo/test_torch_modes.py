"""torch's functions in captured code: modes, flags, attention, init, containers, complex."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dynamo
from dynamo.api.compile import compile
from dynamo.backend_lookup import lookup_backend
from dynamo.errors import Unsupported
from tests.dynamo.dynamic_support import Counting
from tests.dynamo.torch_ops import Programs, check_program
from tests.dynamo.values_support import CountingBackend

program = Programs()


def matrix():
    return torch.arange(6.0).reshape(2, 3) + 0.5


@program(matrix)
def jit_queries(x):
    return (
        torch.jit.is_scripting(),
        torch.jit.is_tracing(),
        torch.onnx.is_in_onnx_export(),
        x + 1,
    )


@torch.jit.ignore
def jit_ign(x):
    return x + 1


@torch.jit.unused
def jit_unu(x):
    return x + 2


@torch.jit.script
def jit_scr(x):
    return x + 3


@torch.jit.export
def jit_exp(x):
    return x + 4


@torch.jit.script_if_tracing
def jit_sit(x):
    return x + 5


@program(matrix)
def jit_decorators(x):
    return jit_ign(x), jit_unu(x), jit_exp(x)


@program(matrix)
def scripted_function(x):
    return jit_scr(x)


@program(matrix)
def script_if_tracing(x):
    return jit_sit(x)


@program(matrix)
def annotated(x):
    y: torch.Tensor = torch.jit.annotate(torch.Tensor, x)
    return y + 1


@program(lambda: [torch.randn(2), torch.randn(2)])
def types_inside(x):
    return x[0] + 1, [torch.jit.isinstance(x, t) for t in (str, list[torch.Tensor], dict[str, int])]


@program(matrix)
def backends(x):
    return (
        torch.backends.cudnn.enabled,
        torch.backends.mkldnn.enabled,
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.mkldnn.is_available(),
        torch.backends.cuda.is_built(),
        torch.cuda.is_available(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.openmp.is_available(),
        torch.backends.mps.is_available(),
        torch.backends.cuda.flash_sdp_enabled(),
        x + 1,
    )


@program(matrix)
def backend_flags_set(x):
    with torch.backends.cudnn.flags(enabled=False):
        return x + 1


@program(lambda: torch.randn(2, 4, 8, 8))
def attention_kernel_chosen(x):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(x, x, x)


@program(lambda: torch.randn(2, 4, 8, 8))
def attention(x):
    return (
        F.scaled_dot_product_attention(x, x, x),
        F.scaled_dot_product_attention(x, x, x, is_causal=True),
        F.scaled_dot_product_attention(x, x, x, torch.ones(8, 8).tril().bool(), scale=0.3),
        F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    )


@program(lambda: nn.Linear(3, 2), matrix, graphs=2)
def init_of_module(m, x):
    nn.init.xavier_uniform_(m.weight)
    nn.init.zeros_(m.bias)
    return m(x)


@program(matrix, breaks="DATA_DEPENDENT_JUMP", graphs=4)
def init_functions(x):
    w = torch.empty(3, 2)
    nn.init.kaiming_normal_(w)
    a = nn.init.orthogonal_(torch.empty(3, 3))
    nn.init.constant_(w[0], 3)
    nn.init.trunc_normal_(w[1])
    nn.init.eye_(torch.empty(2, 2))
    return (
        w,
        a,
        nn.init.calculate_gain("relu"),
        nn.init.normal_(torch.empty(2)),
        nn.init.uniform_(torch.empty(2)),
        nn.init.ones_(torch.empty(2)),
        nn.init.sparse_(torch.empty(4, 4), 0.5),
        nn.init.dirac_(torch.empty(2, 2, 3)),
    )


def ml():
    m = nn.Linear(3, 2)
    m(torch.ones(1, 3)).sum().backward()
    return m


@program(ml, graphs=2)
def clip(m):
    return (
        nn.utils.clip_grad_norm_(m.parameters(), 0.1),
        nn.utils.clip_grad_value_(m.parameters(), 0.01),
        [p.grad for p in m.parameters()],
    )


@program(ml, graphs=2)
def clip2(m):
    return (
        nn.utils.clip_grad_norm_(m.parameters(), 0.1, foreach=False),
        nn.utils.clip_grad_norm_(list(m.parameters()), 0.1, norm_type=float("inf")),
        [p.grad for p in m.parameters()],
    )


@program(ml, graphs=2)
def parameters_to_vector(m):
    return nn.utils.parameters_to_vector(m.parameters())


@program(ml, graphs=2)
def vector_to_parameters(m):
    v = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(v * 2, m.parameters())
    return m(torch.ones(1, 3))


@program(matrix)
def padseq(x):
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence([x[0], x[1, :2]]), pad_sequence(
        [x[0], x[1, :1]], batch_first=True, padding_value=2.0
    )


@program(matrix)
def packseq(x):
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    p = pack_padded_sequence(x[..., None], [3, 2], batch_first=True)
    return pad_packed_sequence(p, batch_first=True)


@program(matrix, breaks="UNCAPTURED_CALL")
def sparse(x):
    s = x.to_sparse()
    return s.to_dense() + 1


@program(matrix)
def sparse2(x):
    s = torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (2, 3))
    return torch.sparse.mm(s, x.T)


@program(lambda: matrix().to_sparse())
def sparse3(s):
    return s.to_dense() + 1


@program(lambda: matrix().to_sparse_csr(), matrix, breaks="UNKNOWN_OBJECT")
def sparse4(s, x):
    return s @ x.T


@program(matrix, breaks="UNCAPTURED_CALL")
def nested(x):
    n = torch.nested.nested_tensor([x, x[:1]])
    return n.to_padded_tensor(0.0)


@program(matrix, breaks="UNCAPTURED_CALL")
def quantizes(x):
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    return q.dequantize(), q.int_repr()


@program(lambda: torch.quantize_per_tensor(matrix(), 0.1, 0, torch.qint8), breaks="UNKNOWN_OBJECT")
def quantized_from_outside(q):
    return q.dequantize()


@program(matrix)
def fake_quantizes(x):
    return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)


@program(matrix)
def complex_tensors(x):
    c = torch.complex(x, x * 2)
    return (
        c.conj() * c,
        c.conj(),
        torch.view_as_real(c),
        c.real,
        c.imag,
        c.abs(),
        c.conj().T,
        c * 1j,
        c + 2,
        torch.is_complex(c),
        c.resolve_conj(),
        torch.fft.fft(x),
        torch.fft.rfft(x).imag,
        c.H,
        c.conj().imag,
        c.conj().is_conj(),
        c.conj().imag.is_neg(),
    )


@program(lambda: torch.randn(2, 2, dtype=torch.cfloat).conj())
def conjugate_from_outside(c):
    return c * 2, c.is_conj(), c


@program(matrix)
def einsum_forms(x):
    return (
        torch.einsum("ij,kj->ik", x, x),
        torch.einsum("ij->j", x),
        torch.einsum("ii", x[:, :2]),
        torch.einsum("...j,...j->...", x, x),
        torch.einsum(x, [0, 1], x, [2, 1], [0, 2]),
        torch.einsum("ij,jk,kl", x, x.T, x),
        torch.einsum("ij,kj->ik", [x, x]),
        torch.einsum(x, [..., 0], [...]),
        torch.functional.einsum(" i j -> j i ", x),
    )


@program(matrix)
def pytrees(x):
    t = {"a": [x, (x + 1, 2)], "b": None}
    l, s = pytree.tree_flatten(t)
    u = pytree.tree_unflatten([*l], s)
    m = pytree.tree_map(lambda v: v, t)
    o = pytree.tree_map_only(torch.Tensor, lambda v: v * 2, t)
    return (
        u,
        m,
        o,
        pytree.tree_leaves(t),
        pytree.tree_all(lambda v: True, t),
        pytree.tree_any(lambda v: v is None, t),
    )


@program(matrix)
def pytree_structure(x):
    t = {"a": [x, (x + 1, 2)]}
    s = pytree.tree_structure(t)
    return s.num_leaves, pytree.tree_flatten_with_path(t), s == pytree.tree_structure(t), x + 1


@program(matrix)
def pytree_spec_returned(x):
    t = {"a": [x, (x + 1, 2)]}
    return pytree.tree_flatten(t)


@program(lambda: torch.randn(400))
def stft(x):
    return (
        torch.stft(x, 64, return_complex=True),
        torch.stft(x, 64, 16, 32, torch.hann_window(32), return_complex=True, center=False),
        torch.istft(
            torch.stft(x, 64, window=torch.ones(64), return_complex=True), 64, window=torch.ones(64)
        ),
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_istft_refuses_windows_with_gaps(backend, fullgraph):
    def function(x, window, length=None):
        return torch.istft(x, 16, 4, window.size(0), window, length=length)

    compiled = dynamo.compile(function, backend=backend, fullgraph=fullgraph)
    spectra = torch.stft(torch.randn(2, 64), 16, window=torch.ones(16), return_complex=True)
    for window in (torch.hann_window(16), torch.hann_window(12) + 0.1):
        x, y = (spectra.clone().requires_grad_() for _ in range(2))
        expected, actual = function(x, window), compiled(y, window)
        torch.testing.assert_close(actual, expected)
        gradients = [
            torch.autograd.grad(r.square().sum(), v) for r, v in ((actual, y), (expected, x))
        ]
        torch.testing.assert_close(*gradients)
        with pytest.raises(RuntimeError, match="window overlap add min: 1"):
            compiled(y, window * 0)
    assert dynamo.explain(function, backend="eager")(spectra, torch.ones(16)).graph_count == 1


@torch.compiler.disable
def dis(x):
    return x * 3


@program(matrix, breaks="DISABLED_CALL")
def disabled_function(x):
    return dis(x) + 1


@torch.compiler.allow_in_graph
def aig(x):
    return x * 3


@program(matrix)
def allowed_in_graph(x):
    return aig(x) + 1


@program(matrix)
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.T


@program(matrix)
def default_dtype_set(x):
    torch.set_default_dtype(torch.float64)
    try:
        return torch.zeros(2), x + 1
    finally:
        torch.set_default_dtype(torch.float32)


@program(matrix)
def device_context(x):
    with torch.device("cpu"):
        return torch.zeros(2) + x[0, :2]


@program(matrix)
def detcheck(x):
    torch.use_deterministic_algorithms(True)
    try:
        return x + 1
    finally:
        torch.use_deterministic_algorithms(False)


@program(matrix)
def torch_check(x):
    torch._check(x.shape[0] == 2)
    torch._check(True, lambda: "m")
    torch._assert(x.dim() == 2, "no")
    return x + 1


@program(matrix)
def torch_check_fails(x):
    torch._check(x.shape[0] == 3, lambda: "bad")
    return x + 1


@program(matrix)
def torch_assert_of_tensor(x):
    torch._assert(x.sum() > 0, "no")
    return x + 1


@program(matrix)
def assert_of_tensor(x):
    assert x.sum() > 0, "no"
    return x + 1


@program(matrix)
def foreach(x):
    return torch._foreach_add([x, x], 1), torch._foreach_norm([x, x])


@program(matrix)
def foreach_(x):
    l = [x.clone(), x.clone()]
    torch._foreach_mul_(l, 2.0)
    return l


@program(matrix)
def miscellaneous(x):
    return (
        torch.broadcast_tensors(x, x[0]),
        torch.meshgrid(x[0], x[0], indexing="ij"),
        torch.block_diag(x, x),
        torch.cartesian_prod(x[0], x[1]),
        torch.cdist(x, x),
        torch.tensordot(x, x, ([1], [1])),
        torch.atleast_2d(x[0]),
        torch.split(x, [1, 1]),
        torch.chunk(x, 2),
        torch.unbind(x),
        torch.hstack([x, x]),
        torch.broadcast_to(x[0], (4, 3)),
        torch.broadcast_shapes((2, 1), (3,)),
        torch._refs._broadcast_shapes((2, 1), (3,)),
        torch.norm(x),
        torch.lu(x[:, :2])[0],
        torch.chain_matmul(x, x.T),
        torch.bucketize(x, torch.tensor([1.0, 2])),
        torch.where(x > 1, x, 0.0),
        torch.where(x > 1, 1.0, x),
        torch.clamp(x, min=1),
        torch.vmap(lambda t: t * 2)(x),
    )


@program(matrix)
def where_of_condition(x):
    return torch.where(x > 1)


@program(matrix)
def nonzero_forms(x):
    return torch.nonzero(x > 1), (x > 1).nonzero(as_tuple=True)


@program(matrix)
def inference(x):
    with torch.inference_mode():
        return x + 1


# -- what capture does not know --------------------------------------------------------------------
@program(matrix, breaks="UNCAPTURED_CALL")
def address_of_memory(x):
    return x.const_data_ptr() == x.data_ptr()


@program(matrix, breaks="UNCAPTURED_CALL")
def storage_of_tensor(x):
    return x._typed_storage()._data_ptr() == x.data_ptr(), x.untyped_storage().nbytes()


@program(matrix, breaks="UNCAPTURED_CALL")
def capsule_of_tensor(x):
    return type(torch.to_dlpack(x)).__name__


def test_unknown_functions_break_by_name():
    known = compile(lambda x: torch._C._to_dlpack(x), backend=CountingBackend(), fullgraph=True)
    with pytest.raises(Unsupported, match="_to_dlpack"):
        known(matrix())


def test_flags_of_backends_are_guarded():
    def enabled(x):
        return x + 1 if torch.backends.mkldnn.enabled else x - 1

    captured = compile(enabled, backend=CountingBackend(), fullgraph=True)
    assert torch.equal(captured(matrix()), matrix() + 1)
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(captured(matrix()), matrix() - 1)
    assert torch.equal(captured(matrix()), matrix() + 1)


def test_default_dtype_is_guarded():
    captured = compile(lambda x: torch.zeros(2), backend=CountingBackend(), fullgraph=True)
    assert captured(matrix()).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert captured(matrix()).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert captured(torch.ones(2, device="cpu")).device.type == "meta"
    assert captured(matrix()).device.type == "cpu"


@pytest.mark.parametrize(("function", "args", "graphs", "code"), program)
def test_program(function, args, graphs, code):
    check_program(function, args, graphs, code)


@pytest.mark.parametrize("dynamic", [None, True])
def test_inference_tensors_of_varying_sizes_stay_inference_tensors(dynamic):
    def f(x):
        return x * 2, x.is_inference()

    compiled = compile(f, backend="eager", dynamic=dynamic)
    for size in (3, 5, 7):
        with torch.inference_mode():
            inside = torch.ones(size)
        for x in (inside, torch.ones(size)):
            assert compiled(x)[1] is x.is_inference()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_layers_of_varying_sizes_in_inference_mode(backend):
    layer = torch.nn.Linear(2, 2)
    compiled = compile(layer, backend=backend, dynamic=True)
    with torch.inference_mode():
        for size in (1, 5):
            x = torch.randn(size, 2)
            result = compiled(x)
            torch.testing.assert_close(result, layer(x))
            assert result.is_inference()


@pytest.mark.parametrize("dynamic", [None, True])
def test_inference_tensors_with_gradients(dynamic):
    def f(x):
        return x * 2, (x * x).requires_grad

    compiled = compile(f, backend="aot_eager", dynamic=dynamic)
    with torch.inference_mode():
        x = torch.ones(3, requires_grad=True)
        assert compiled(x)[0].tolist() == [2, 2, 2]
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert repr(compiled(x)) == repr(f(x))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_grad_mode_has_no_effect_in_inference_mode(backend, dynamic):
    def f(x):
        with torch.enable_grad():
            inside = x + 1
        return inside, x * 2

    compiled = compile(f, backend=backend, dynamic=dynamic)
    x = torch.ones(3, requires_grad=True)
    with torch.inference_mode():
        for result in compiled(x):
            assert (result.requires_grad, result.is_inference()) == (False, True)
    assert compiled(x)[0].requires_grad


def status(tensors):
    return [(t.is_inference(), t.requires_grad, t._is_view()) for t in tensors]


def evaluates_between_steps(layer, x):
    y = layer(x)
    with torch.inference_mode():
        z = (layer(x) + y).relu()
        views = z.t(), x.view(-1)
        with torch.inference_mode(False):
            w = layer(x * 2)
    with torch.autocast("cpu", torch.bfloat16):
        u = layer(x)
        with torch.inference_mode():
            v = layer(x)
    return y, z, *views, w, u, v, z.clone() * y


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_blocks_of_inference_mode_are_parts_of_one_graph(backend, dynamic):
    layer = torch.nn.Linear(3, 3)
    counting = Counting(lookup_backend(backend))
    compiled = compile(evaluates_between_steps, backend=counting, dynamic=dynamic, fullgraph=True)
    x = torch.linspace(-1, 1, 6).view(2, 3)
    results = [compiled(layer, x), evaluates_between_steps(layer, x)]
    assert status(results[0]) == status(results[1])
    torch.testing.assert_close(*results, rtol=1e-2, atol=1e-2)
    assert len(counting.graphs) == 1
    gradients = [
        torch.autograd.grad(sum(t.sum() for t in made if t.requires_grad), layer.weight)[0]
        for made in results
    ]
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-2)
    with torch.inference_mode():
        assert status(compiled(layer, x)) == status(evaluates_between_steps(layer, x))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_inference_mode_is_left_where_an_operation_fails(backend):
    def f(x, index):
        y = x * 2
        with torch.inference_mode():
            z = y[index] * 2
        return y + z.clone()

    compiled = compile(f, backend=backend)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x, torch.tensor([0])), f(x, torch.tensor([0])))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]))
    assert not torch.is_inference_mode_enabled()
    assert not compiled(x, torch.tensor([2])).is_inference()


def test_kernels_are_made_under_a_default_device_of_other_tensors():
    def f(x):
        return torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear") * 0.1

    compiled = compile(f, backend="inductor")
    x = torch.randn(1, 2, 4, 4, requires_grad=True)
    with torch.device("meta"):
        y = compiled(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, f(x))
    torch.testing.assert_close(gradient, torch.autograd.grad(f(x).sum(), x)[0])
