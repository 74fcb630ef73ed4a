"""Bad input gives one clear error or one clear warning; nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import warnings
from pathlib import Path

import pytest
import torch

import dynamo
import fxgraph
from tests.children import run_script


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@pytest.fixture(autouse=True)
def fresh():
    dynamo.reset()
    yield
    dynamo.reset()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"backend": "inducter"}, ValueError, "did you mean 'inductor'"),
        ({"backend": "zzz"}, ValueError, "no backend named 'zzz'. The backends are"),
        ({"backend": 7}, TypeError, "backend must be a name or a callable"),
        ({"mode": "fastest"}, ValueError, "the modes are: default"),
        ({"mode": 3}, TypeError, "mode must be a string"),
        ({"options": {"nonsense": 1}}, ValueError, "no option named 'nonsense'"),
        ({"options": ["a"]}, TypeError, "options must be a dict"),
        ({"options": {"aten_ops": "aten.gelu"}}, ValueError, "'aten_ops' takes list, not str"),
        ({"options": {"aten_ops": ["gelu"]}}, ValueError, "no operator named 'gelu'"),
        ({"options": {"aten_ops": ["aten.gelu.nonsense"]}}, ValueError, "names are 'aten.gelu'"),
        ({"options": {"device_graphs": -1}}, ValueError, "device_graphs=-1; at least 0"),
        ({"mode": "default", "options": {}}, ValueError, "either mode or options"),
        ({"fullgraph": "yes"}, TypeError, "fullgraph must be True or False"),
        ({"dynamic": "yes"}, TypeError, "dynamic must be"),
        ({"dynamic": 1}, TypeError, "dynamic must be"),
        ({"name": 3}, TypeError, "name must be a string"),
        ({"recompile_limit": 0}, ValueError, "recompile_limit must be at least 1"),
    ],
)
def test_compile_arguments(arguments, error, text) -> None:
    for function in (dynamo.compile, dynamo.explain):
        with pytest.raises(error, match=text):
            function(add_one, **arguments)


@pytest.mark.parametrize("model", [3, "f", int, None.__class__])
def test_what_is_compiled(model) -> None:
    with pytest.raises(TypeError, match="takes a function, a method or an nn.Module"):
        dynamo.compile(model)


ONES = torch.ones(2)


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        (dynamo.allow_in_graph, (3,), TypeError),
        (lambda mode: dynamo.compile(len, mode=mode), ("fast",), dynamo.errors.InvalidOption),
        (dynamo.assume_constant_result, (3,), TypeError),
        (dynamo.disable, (3,), TypeError),
        (dynamo.disable, (add_one, "a reason"), TypeError),
        (dynamo.disallow_in_graph, (3,), TypeError),
        (dynamo.export, (3,), TypeError),
        (dynamo.list_mode_options, ("fast",), dynamo.errors.InvalidOption),
        (dynamo.list_backends, ("debug",), TypeError),
        (dynamo.load, ("/no/such/file",), dynamo.errors.ProgramError),
        (dynamo.load_cache_artifacts, (b"text",), ValueError),
        (dynamo.lookup_backend, ("fast",), dynamo.errors.InvalidBackend),
        (dynamo.lookup_backend, (3,), TypeError),
        (dynamo.mark_dynamic, (3, 0), TypeError),
        (dynamo.mark_dynamic, (ONES, "batch"), TypeError),
        (dynamo.mark_dynamic, (ONES, 0, "2"), TypeError),
        (dynamo.mark_dynamic, (ONES, 1), IndexError),
        (dynamo.mark_dynamic, (ONES, 0, 3, 2), ValueError),
        (dynamo.mark_dynamic, (ONES, 0, None, -1), ValueError),
        (dynamo.mark_static, (ONES, 1), IndexError),
        (dynamo.nested_compile_region, (3,), TypeError),
        (dynamo.nonstrict_trace, (3,), TypeError),
        (dynamo.register_backend, (3,), TypeError),
        (dynamo.register_backend, (add_one, 3), TypeError),
        (dynamo.register_backend, (add_one, "one", "debug"), TypeError),
        (dynamo.run, (3,), TypeError),
        (dynamo.set_default_backend, ("fast",), dynamo.errors.InvalidBackend),
        (dynamo.set_enable_guard_collectives, (3,), TypeError),
        (dynamo.set_stance, ("fast",), ValueError),
        (dynamo.set_stance, (["default"],), ValueError),
        (dynamo.substitute_in_graph, (3,), TypeError),
        (dynamo.substitute_in_graph(len), (3,), TypeError),
        (dynamo.wrap_numpy, (3,), TypeError),
    ],
)
def test_arguments_without_a_meaning(function, arguments, error) -> None:
    """They fail at once, with an error that the docstring names."""
    with pytest.raises(error):
        function(*arguments)
    assert error.__name__ in (function.__doc__ or error.__name__)


def test_arguments_of_explain_and_of_a_range_without_sizes() -> None:
    with pytest.raises(TypeError, match="takes a callable"):
        dynamo.explain(3)
    with pytest.raises(TypeError, match="takes no argument disable; .* fullgraph, dynamic"):
        dynamo.explain(add_one, disable=True)
    with pytest.raises(ValueError, match="min 5 is more than max 2"):
        dynamo.mark_unbacked(ONES, 0, min=5, max=2)


def test_mode_for_a_backend_that_takes_none() -> None:
    with pytest.raises(ValueError, match="takes no 'mode'"):
        dynamo.compile(add_one, backend=lambda gm, inputs: gm.forward, mode="max-autotune")


def test_dynamic_true_says_that_it_has_no_effect() -> None:
    def backend(gm, inputs):
        return gm.forward

    backend.dynamic_shapes = False
    with pytest.warns(UserWarning, match="has no effect with this backend"):
        dynamo.compile(add_one, dynamic=True, backend=backend)


def test_unknown_config_option() -> None:
    with pytest.raises(AttributeError, match="the options are: recompile_limit"):
        dynamo.config.recompile_limits = 3
    with pytest.raises(TypeError, match="takes int"):
        dynamo.config.recompile_limit = "many"
    with pytest.raises(ValueError, match="recompile_limit is at least 0, not -1"):
        dynamo.config.recompile_limit = -1
    with pytest.raises(AttributeError, match="strict cannot be deleted"):
        del dynamo.config.strict
    with pytest.raises(AttributeError), dynamo.config.patch(nonsense=1):
        pass
    with pytest.raises(TypeError, match="takes names with values"):
        dynamo.config.patch(["strict"])
    with dynamo.config.patch(no_graph_seconds=1):
        assert dynamo.config.no_graph_seconds == 1.0


def test_arguments_of_saved_programs(tmp_path: Path) -> None:
    exported = dynamo.export(add_one)(ONES)
    path = tmp_path / "one.fg"
    for arguments, text in (
        ({"targets": "x86-64-v3"}, r"such as \['x86-64-v3'\]"),
        ({"targets": ["avx"]}, "the targets are: x86-64-v2"),
        ({"standalone": "torch"}, "standalone is True, False"),
        ({"steps": 0}, "a positive number of steps, not 0"),
        ({"training": "yes"}, "training is True, False or None"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            exported.save(path, **arguments)
    exported.save(path)
    with pytest.raises(TypeError, match=r"such as \['aten'\]"):
        dynamo.load(path, operators="aten")


def test_settings_of_a_static_graph() -> None:
    graph = dynamo.Graph(backend="eager")
    for name in ("amp_", "enable_amp"):
        with pytest.raises(AttributeError, match=name):
            setattr(graph.config, name, True)
    with pytest.raises(TypeError, match="a state dict is a mapping, not 3"):
        graph.load_state_dict(3)


def test_parts_of_a_graph_module() -> None:
    with pytest.raises(TypeError, match="root must be an nn.Module or a dict, not int"):
        fxgraph.GraphModule(3, fxgraph.Graph())
    with pytest.raises(TypeError, match="graph must be a fxgraph.Graph, not int"):
        fxgraph.GraphModule({}, 3)


def test_backend_that_raises() -> None:
    def bad(gm, example_inputs):
        raise ZeroDivisionError("the backend's own message")

    with pytest.raises(dynamo.errors.BackendCompilerFailed) as info:
        dynamo.compile(add_one, backend=bad)(torch.ones(3))
    text = str(info.value)
    assert "the backend's own message" in text
    assert "return x + 1" in text and Path(__file__).name in text  # the user's line
    assert "add" in text  # the graph
    assert isinstance(info.value.__cause__, ZeroDivisionError)


def test_backend_that_raises_and_is_suppressed() -> None:
    def bad(gm, example_inputs):
        raise ZeroDivisionError("the backend's own message")

    with dynamo.config.patch(suppress_errors=True):
        with pytest.warns(UserWarning, match="the backend's own message"):
            assert torch.equal(
                dynamo.compile(add_one, backend=bad)(torch.ones(3)), torch.full((3,), 2.0)
            )


def test_backend_that_returns_no_callable() -> None:
    with pytest.raises(dynamo.errors.BackendCompilerFailed, match="returned 7"):
        dynamo.compile(add_one, backend=lambda gm, example_inputs: 7)(torch.ones(3))


def test_function_works_after_a_failed_compilation() -> None:
    attempts = []

    def second_time(gm, example_inputs):
        attempts.append(gm)
        if len(attempts) == 1:
            raise RuntimeError("not yet")
        return gm.forward

    compiled = dynamo.compile(add_one, backend=second_time)
    with pytest.raises(dynamo.errors.BackendCompilerFailed):
        compiled(torch.ones(3))
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.parametrize(
    "call", [lambda f: f(), lambda f: f(1, 2, 3), lambda f: f(y=torch.ones(2))]
)
def test_wrong_arguments_raise_eagers_type_error(call) -> None:
    with pytest.raises(TypeError) as eager:
        call(add_one)
    with pytest.raises(TypeError) as compiled:
        call(dynamo.compile(add_one))
    assert str(compiled.value) == str(eager.value)


def test_wrong_arguments_of_a_module() -> None:
    module = torch.nn.Linear(2, 2)
    with pytest.raises(TypeError) as eager:
        module()
    with pytest.raises(TypeError) as compiled:
        dynamo.compile(module)()
    assert str(compiled.value) == str(eager.value)


def test_tensor_error_is_eagers() -> None:
    def mismatched(x, y):
        return x @ y

    arguments = torch.ones(2, 3), torch.ones(2, 3)
    with pytest.raises(RuntimeError) as eager:
        mismatched(*arguments)
    with pytest.raises(RuntimeError) as compiled:
        dynamo.compile(mismatched)(*arguments)
    assert str(compiled.value) == str(eager.value)
    frames = [f.name for f in compiled.traceback]
    assert "mismatched" in frames


def test_interrupt_while_compiling() -> None:
    # A process started in the background ignores the signal, so install Python's own handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started = threading.Event()

    def slow(gm, example_inputs):
        if not started.is_set():
            started.set()
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(10_000_000):
                pass
        return gm.forward

    compiled = dynamo.compile(add_one, backend=slow)
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(torch.ones(3))
    finally:
        signal.signal(signal.SIGINT, before)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


CHECK = """
    import warnings, torch, dynamo
    warnings.simplefilter("always")
    def f(x):
        return torch.softmax(x * 2 + 1, -1)
    def g(x):
        return (x.sin() + 1).sum(0)
    x = torch.randn(8, 8)
    with torch.no_grad():
        for fn in (f, g):
            torch.testing.assert_close(dynamo.compile(fn)(x), fn(x))
"""


def one_warning(done: subprocess.CompletedProcess[str], text: str) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Warning:") == 1, done.stderr
    assert text in done.stderr


def test_no_compiler(tmp_path: Path) -> None:
    done = run_script(
        CHECK,
        {
            **os.environ,
            "PATH": str(tmp_path),
            "CXX": "",
            "DYNAMO_CACHE_DIR": str(tmp_path / "cache"),
        },
    )
    one_warning(done, "compiler")


def test_cache_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = run_script(CHECK, {**os.environ, "DYNAMO_CACHE_DIR": str(blocked)})
    one_warning(done, "DYNAMO_CACHE_DIR")


def test_damaged_cache(tmp_path: Path) -> None:
    cache = {"DYNAMO_CACHE_DIR": str(tmp_path / "cache")}
    done = run_script(CHECK, {**os.environ, **cache})
    assert done.returncode == 0 and not done.stderr, done.stderr
    damaged = 0
    for file in (tmp_path / "cache").rglob("*"):
        if file.is_file() and file.stat().st_size > 16:
            data = bytearray(file.read_bytes())
            middle = len(data) // 2
            data[middle : middle + 8] = b"damaged!"
            file.write_bytes(data)
            damaged += 1
    assert damaged
    done = run_script(CHECK, {**os.environ, **cache})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Warning:") <= 1, done.stderr
    truncated = run_script(CHECK, {**os.environ, **cache})
    assert truncated.returncode == 0 and not truncated.stderr, truncated.stderr


def test_unknown_log_channel() -> None:
    done = run_script("import dynamo", {**os.environ, "DYNAMO_LOGS": "graf"})
    one_warning(done, "the channels are: graph")


@pytest.mark.parametrize(("value", "disabled"), [("1", True), ("true", True), ("False", False)])
def test_disabled_by_the_environment(value: str, disabled: bool) -> None:
    done = run_script(
        f"""
        import dynamo
        def f(x): return x
        assert (dynamo.compile(f) is f) is {disabled}
        """,
        {**os.environ, "DYNAMO_DISABLE": value},
    )
    assert done.returncode == 0, done.stderr


def test_recompile_limit_gives_one_warning_with_the_reason() -> None:
    compiled = dynamo.compile(lambda x, text: x + len(text), backend="eager")
    with dynamo.config.patch(recompile_limit=3), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(8):
            assert torch.equal(compiled(torch.zeros(2), "a" * n), torch.full((2,), float(n)))
    (warning,) = caught
    assert "recompile_limit" in str(warning.message) and "L['text']" in str(warning.message)
