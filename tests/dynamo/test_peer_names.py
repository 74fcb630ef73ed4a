"""Functions, settings and arguments of torch.compile and torch.compiler under the same names here:
stances, default backends, marks, guard filters, cache archives, directives in frames.
"""

from __future__ import annotations

import functools
import io
import zipfile
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # programs name functions of torch's own compiler
from torch import nn

import dynamo


class Counter:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0
        self.sizes: list[Any] = []

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.graphs += 1
        return gm


@pytest.fixture
def counter() -> Counter:
    return Counter()


def threes() -> torch.Tensor:
    return torch.arange(3.0) + 1


def test_names_of_torch_compiler():
    missing = {name for name in torch.compiler.__all__ if not hasattr(dynamo, name)}
    assert missing == {"load_compiled_function"}  # dynamo.load


# -- settings --------------------------------------------------------------------------------------
def test_forms_of_patch():
    config = dynamo.config
    with config.patch("recompile_limit", 5):
        assert config.recompile_limit == 5
    with config.patch({"recompile_limit": 6, "suppress_errors": True}, strict=True):
        assert (config.recompile_limit, config.suppress_errors, config.strict) == (6, True, True)

    @config.patch("recompile_limit", 7)
    def limit() -> int:
        return config.recompile_limit

    assert (limit(), limit(), config.recompile_limit) == (7, 7, 8)
    with pytest.raises(AttributeError, match="no option 'recompile_limits'"):
        config.patch("recompile_limits", 1).__enter__()


def test_names_of_torch_compile_in_config():
    config = dynamo.config
    with config.patch(cache_size_limit=3):
        assert config.recompile_limit == 3
    with config.patch(guard_nn_modules=False, verbose=True):
        assert (config.guard_nn_modules, config.verbose) == (False, True)
    assert (config.guard_nn_modules, config.verbose) == (True, False)
    for name in ("dead_code_elimination", "wrap_top_frame", "automatic_dynamic_local_pgo"):
        before = getattr(config, name)
        with config.patch(name, not before):
            assert getattr(config, name) is not before
        assert getattr(config, name) is before


def test_symbols_at_once(counter):
    with dynamo.config.patch(assume_static_by_default=False):
        compiled = dynamo.compile(lambda x: x * x.shape[0], backend=counter)
        for size in (3, 5):
            assert compiled(torch.ones(size)).tolist() == [size] * size
    assert counter.graphs == 1


def test_limit_as_error(counter):
    compiled = dynamo.compile(lambda x, n: x + n, backend=counter)
    settings = {"recompile_limit": 1, "automatic_dynamic_shapes": False}
    with dynamo.config.patch(settings, fail_on_recompile_limit_hit=True):
        compiled(threes(), 1)
        with pytest.raises(dynamo.errors.RecompileLimitExceeded, match="compiled 1 times"):
            compiled(threes(), 2)


# -- arguments of compile --------------------------------------------------------------------------
def test_limit_of_one_function(counter):
    with dynamo.config.patch(automatic_dynamic_shapes=False):
        compiled = dynamo.compile(lambda x, n: x + n, backend=counter, recompile_limit=2)
        with pytest.warns(UserWarning, match="was compiled 2 times"):
            results = [compiled(threes(), n).tolist() for n in range(5)]
    assert results == [[1.0 + n, 2.0 + n, 3.0 + n] for n in range(5)]
    assert counter.graphs == 2
    for wrong, error in ((0, ValueError), (True, TypeError), ("1", TypeError)):
        with pytest.raises(error, match="recompile_limit"):
            dynamo.compile(lambda x: x, recompile_limit=wrong)


def test_name(counter):
    compiled = dynamo.compile(lambda x: x + 1, backend=counter, name="mine")
    assert compiled.context.backend_name == "mine"
    with pytest.raises(TypeError, match="name must be a string"):
        dynamo.compile(lambda x: x, name=3)


def test_default_backend(counter):
    assert dynamo.get_default_backend() == "inductor"
    dynamo.set_default_backend(counter)
    try:
        assert dynamo.get_default_backend() is counter
        assert dynamo.compile(lambda x: x + 1)(threes()).tolist() == [2, 3, 4]
    finally:
        dynamo.set_default_backend(None)
    assert counter.graphs == 1
    assert dynamo.get_default_backend() == "inductor"
    with pytest.raises(dynamo.errors.InvalidBackend, match="no backend|unknown backend|nowhere"):
        dynamo.set_default_backend("nowhere")


def test_options_of_torch_compile():
    options = {"epilogue_fusion": True, "max_autotune": True, "triton.cudagraphs": True}
    compiled = dynamo.compile(lambda x: x.sin() + 1, options=options)
    assert torch.allclose(compiled(threes()), threes().sin() + 1)
    assert compiled.context.backend.keywords == {"options": {"tuning": "full", "device_graphs": 8}}
    with pytest.raises(dynamo.errors.InvalidOption, match="no option named 'epilogue'"):
        dynamo.compile(lambda x: x, options={"epilogue": True})


def test_partial_of_a_function_in_c(counter):
    compiled = dynamo.compile(functools.partial(torch.add, torch.ones(3)), backend=counter)
    assert compiled(threes()).tolist() == [2, 3, 4]
    assert counter.graphs == 1


# -- stances ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_first_call_shows_what_varies(counter, stance):
    compiled = dynamo.compile(lambda x, n: x * x.shape[0] + n, backend=counter)
    with dynamo.set_stance(stance):
        graphs = []
        for size in (3, 4, 5):
            assert compiled(torch.ones(size), size).tolist() == [2.0 * size] * size
            graphs.append(counter.graphs)
    assert graphs == [0, 1, 1]


def test_forced_backend(counter):
    other = Counter()
    compiled = dynamo.compile(lambda x: x + 1, backend=counter)
    compiled(threes())
    with dynamo.set_stance("default", force_backend=other):
        compiled(threes())
        compiled(threes())
        assert (counter.graphs, other.graphs) == (1, 1)
        with dynamo.set_stance("force_eager"):
            compiled(torch.ones(4, 4))
    assert compiled(threes()).tolist() == [2, 3, 4]
    assert (counter.graphs, other.graphs) == (2, 1)
    with pytest.raises(ValueError, match="goes with the stance 'default'"):
        dynamo.set_stance("force_eager", force_backend="eager")


# -- marks -----------------------------------------------------------------------------------------
def test_hints_of_marks(counter):
    compiled = dynamo.compile(lambda x: x * x.shape[0], backend=counter)
    for size in (3, 8, 5):
        x = torch.ones(size)
        dynamo.mark_dynamic(x, 0, hint_override=8, specialize_on=[lambda n: n == 8])
        assert compiled(x).tolist() == [size] * size
    assert counter.graphs == 1
    for size in (0, 1, 5):
        x = torch.ones(size)
        dynamo.mark_unbacked(x, 0, hint_override=4, strict=True)
        assert compiled(x).tolist() == [size] * size
    assert counter.graphs == 1  # that of the first mark takes all of them


def test_mark_of_a_class():
    class Layer(nn.Linear):
        pass

    dynamo.mark_static(Layer)
    assert dynamo.compile(Layer(3, 2), backend="eager")(threes()).shape == (2,)
    with pytest.raises(TypeError, match="a class of modules is marked"):
        dynamo.mark_static(dict)


# -- guard filters ---------------------------------------------------------------------------------
class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dropout(0.5)
        self.inner.eval()
        self.factor = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.factor


@pytest.mark.parametrize("api", [dynamo, torch.compiler])
def test_filters_of_modules(counter, api):
    model = Scaled()

    def run(choose: str) -> Any:
        options = {"guard_filter_fn": getattr(api, choose)}
        model.factor = 2
        compiled = dynamo.compile(model, backend=counter, options=options)
        compiled(threes())
        model.factor = 3
        return compiled(threes()).tolist()

    assert run("skip_guard_on_inbuilt_nn_modules_unsafe") == [3, 6, 9]
    assert run("skip_guard_on_all_nn_modules_unsafe") == [2, 4, 6]  # the promise was broken
    assert run("keep_tensor_guards_unsafe") == [2, 4, 6]
    assert run("skip_all_guards_unsafe") == [2, 4, 6]
    assert run("skip_guard_on_globals_unsafe") == [3, 6, 9]


def test_filter_of_portable_guards(counter):
    box = [1]
    compiled = dynamo.compile(
        lambda x: x + box[0],
        backend=counter,
        options={"guard_filter_fn": dynamo.keep_portable_guards_unsafe},
    )
    compiled(threes())
    box[0] = 5
    assert compiled(threes()).tolist() == [2, 3, 4]
    assert compiled(torch.ones(2)).tolist() == [6, 6]
    assert not compiled(threes().requires_grad_()).tolist() == [2, 3, 4]


# -- around compiled code --------------------------------------------------------------------------
def test_numpy_functions(counter):
    @dynamo.wrap_numpy
    def length(a: np.ndarray, scale: float = 1.0) -> np.ndarray:
        return np.sqrt(np.sum(a * a, axis=-1)) * scale

    x = torch.ones(2, 4)
    compiled = dynamo.compile(length, backend=counter, fullgraph=True)
    assert compiled(x, scale=0.5).tolist() == [1, 1]
    assert isinstance(length(x), torch.Tensor)
    grad = x.clone().requires_grad_()
    compiled(grad).sum().backward()
    assert torch.allclose(grad.grad, torch.full((2, 4), 0.5))
    with pytest.raises(TypeError, match="takes a callable"):
        dynamo.wrap_numpy(3)


def test_numpy_functions_of_torch(counter):
    @torch.compiler.wrap_numpy
    def double(a: np.ndarray) -> np.ndarray:
        return a * 2

    assert dynamo.compile(double, backend=counter, fullgraph=True)(threes()).tolist() == [2, 4, 6]
    around = dynamo.compile(lambda x: double(x + 1) + 1, backend=counter, fullgraph=True)
    assert around(threes()).tolist() == [5, 7, 9]
    assert counter.graphs == 2


def test_regions(counter):
    @dynamo.nested_compile_region
    def twice(x):
        return x * 2

    @dynamo.nested_compile_region(max_reuse_entries=2)
    def thrice(x):
        return x * 3

    compiled = dynamo.compile(lambda x: twice(x) + thrice(x), backend=counter, fullgraph=True)
    assert compiled(threes()).tolist() == [5, 10, 15]
    assert counter.graphs == 1


def test_questions(counter):
    def f(x):
        dynamo.cudagraph_mark_step_begin()
        return x + 1, dynamo.is_dynamo_compiling(), dynamo.is_exporting()

    compiled = dynamo.compile(f, backend=counter, fullgraph=True)
    assert compiled(threes())[1:] == (True, False)
    assert f(threes())[1:] == (False, False)


def test_guard_collectives():
    assert dynamo.set_enable_guard_collectives(True) is False
    assert dynamo.set_enable_guard_collectives(False) is True
    with pytest.raises(TypeError, match="enabled must be True or False"):
        dynamo.set_enable_guard_collectives(1)


def test_cache_archives(tmp_path, monkeypatch):
    def f(x):
        return (x.sin() + 0.125) * x.cos()

    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path / "one"))
    x = torch.randn(37)
    expected = dynamo.compile(f)(x)
    saved = dynamo.save_cache_artifacts()
    assert saved is not None
    archive, names = saved
    assert any(name.endswith(".so") for name in names)
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path / "two"))
    assert dynamo.save_cache_artifacts() is None
    assert sorted(dynamo.load_cache_artifacts(archive)) == sorted(names)
    assert {p.name for p in (tmp_path / "two").rglob("*.so")} == {
        name.rpartition("/")[2] for name in names if name.endswith(".so")
    }
    dynamo.reset()
    assert torch.equal(dynamo.compile(f)(x), expected)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"no archive",
        lambda data: with_member("../../evil.so", b"x"),
        lambda data: with_member("kernels/ab/abcd.so", b"x" * 100),
    ],
)
def test_damaged_archives(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    dynamo.reset()  # the code is compiled into this folder
    dynamo.compile(lambda x: x.sin() * 0.375 + 1)(torch.randn(19))
    archive, _ = dynamo.save_cache_artifacts()
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(ValueError, match="archive"):
        dynamo.load_cache_artifacts(damage(archive))
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def with_member(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, data)
    return file.getvalue()


# -- directives ------------------------------------------------------------------------------------
def test_breaks_of_torchs_name(counter):
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    assert dynamo.compile(f, backend=counter)(threes()).tolist() == [4, 6, 8]
    assert counter.graphs == 2


def test_constants_of_torchs_name(counter):
    number = [1]

    @torch.compiler.assume_constant_result
    def read():
        return number[0]

    compiled = dynamo.compile(lambda x: x + read(), backend=counter)
    compiled(threes())
    number[0] = 5
    assert compiled(threes()).tolist() == [2, 3, 4]
    assert counter.graphs == 1


def test_allowed_after_disallowed(counter):
    def f(x):
        return torch.sub(x + 1, 1) * 2

    dynamo.disallow_in_graph(torch.sub)
    try:
        dynamo.compile(f, backend=counter)(threes())
        assert counter.graphs == 2
    finally:
        dynamo.allow_in_graph(torch.sub)
    dynamo.directives.ALLOWED.pop(id(torch.sub))
    assert dynamo.compile(f, backend=counter, fullgraph=True)(threes()).tolist() == [2, 4, 6]


def test_disallowed_inside(counter):
    def f(x):
        y = x + 1
        dynamo.disallow_in_graph(torch.sub)
        return torch.sub(y, 1) * 2

    try:
        assert dynamo.compile(f, backend=counter)(threes()).tolist() == [2, 4, 6]
    finally:
        dynamo.directives.DISALLOWED.pop(id(torch.sub))
    assert counter.graphs == 2


def test_frames_that_are_skipped(counter):
    def inner(x):
        return x * 2

    def f(x, skips):
        y = inner(x) + 1
        if skips:
            dynamo.skip_frame("not here")
        return y

    compiled = dynamo.compile(f, backend=counter)
    assert compiled(threes(), True).tolist() == [3, 5, 7]
    assert counter.graphs == 1  # of inner
    with pytest.raises(dynamo.errors.Unsupported, match="not here"):
        dynamo.compile(f, backend=counter, fullgraph=True)(threes(), True)


def test_disabled_classes(counter):
    @dynamo.disable
    class Layer(nn.Module):
        def forward(self, x):
            return x * 2

    layer = Layer()
    assert dynamo.compile(lambda x: layer(x.sin()) + 1, backend=counter)(threes()).shape == (3,)
    assert counter.graphs == 2
    assert not isinstance(Layer.forward(layer, threes()), nn.Module)
