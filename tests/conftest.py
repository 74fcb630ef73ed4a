"""Options and fixtures of all tests."""

from __future__ import annotations

import ctypes
import difflib
import functools
import gc
import importlib
import os
import subprocess
import sys
import threading
import types
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

os.environ["DYNAMO_STRICT"] = "1"  # before dynamo is imported, and for processes that tests start
# Tests that run side by side share the cores: teams of threads that wait for one another take half
# as long again.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _WORKERS > 1:
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // _WORKERS))
# Tests that several threads compute all the same: of generated loops and products.
THREADED = (
    "tests/inductor/test_cpp",
    "tests/inductor/test_panels",
    "tests/inductor/test_programs",
    "tests/inductor/test_random",
    "tests/inductor/test_scatter",
)

GOLDENS = Path(__file__).parent / "goldens"
# Tests of code that depends on the Python version: bytecode, frames, guards of Python objects.
VERSION_DEPENDENT = (
    "tests/cpython/",
    "tests/fuzz/test_expressions",
    "tests/fuzz/test_programs.py::test_eager[1]",
    "tests/test_robustness",
    "tests/dynamo/test_breaks",
    "tests/dynamo/test_bytecode",
    "tests/dynamo/test_capture",
    "tests/dynamo/test_compiled_kinds",
    "tests/dynamo/test_debugger",
    "tests/dynamo/test_generator",
    "tests/dynamo/test_guards",
    "tests/dynamo/test_hook",
    "tests/dynamo/test_nested_breaks",
    "tests/dynamo/test_protocol_breaks",
    "tests/dynamo/test_resume",
    "tests/dynamo/test_polyfill_breaks",
    "tests/dynamo/test_tracebacks",
    "tests/dynamo/programs/test_language",
    "tests/gpu/test_stand_in",  # torch for CUDA is in the environments of other versions alone
)
# Long tables of Python objects, one operation of one kind in each row: a part of the rows is enough
# to see a version that differs, a quarter on each.
PARTLY_DEPENDENT = (
    "tests/fuzz/test_reflection",
    "tests/dynamo/test_laziness",
    "tests/dynamo/test_mutations.py",
    "tests/dynamo/test_mutations_classes",
    "tests/dynamo/test_mutations_special",
    "tests/dynamo/test_reflection",
    "tests/dynamo/programs/test_lifetimes",
)

# Long tables: operators, kernels, models, random programs, files and steps of saved programs. They
# are five sixths of the time, and a fault seldom fails one row alone: a part of the rows, another
# one for each commit, is enough to try a commit that was tried as a whole before (--part).
TABLES = (
    "tests/backends/",
    "tests/cpython/",
    "tests/fuzz/",
    "tests/inductor/",
    "tests/models/",
    "tests/dynamo/programs/",
    "tests/dynamo/test_branch_",
    "tests/dynamo/test_breaks_anywhere",
    "tests/dynamo/test_collectives",
    "tests/dynamo/test_data_",
    "tests/dynamo/test_dynamic_",
    "tests/dynamo/test_eager_exceptions",
    "tests/dynamo/test_empty_regions",
    "tests/dynamo/test_growing",
    "tests/dynamo/test_guessed_branches",
    "tests/dynamo/test_higher_order",
    "tests/dynamo/test_jagged",
    "tests/dynamo/test_laziness",
    "tests/dynamo/test_loops_on",
    "tests/dynamo/test_loops_with",
    "tests/dynamo/test_mutations",
    "tests/dynamo/test_number_functions",
    "tests/dynamo/test_overlap",
    "tests/dynamo/test_ragged",
    "tests/dynamo/test_read_numbers",
    "tests/dynamo/test_recurrent",
    "tests/dynamo/test_reflection",
    "tests/dynamo/test_replaced_names",
    "tests/dynamo/test_row_loops",
    "tests/dynamo/test_running_products",
    "tests/dynamo/test_saved",
    "tests/dynamo/test_static_graph",
    "tests/dynamo/test_torch_libraries",
    "tests/dynamo/test_torch_numpy",
    "tests/dynamo/test_torch_operators",
    "tests/dynamo/test_torch_settings",
    "tests/dynamo/test_transforms",
    "tests/dynamo/test_wrapper_subclass",
    "tests/fxgraph/test_arrivals",
    "tests/fxgraph/test_control_flow",
    "tests/fxgraph/test_resizing",
    "tests/fxgraph/test_training",
    "tests/test_documented_examples",
    "tests/test_library_tests",
    "tests/test_tutorials",
)

# What older versions of torch do otherwise, in tests that say more than equal results.
WITHOUT_TORCH_212 = {
    "tests/dynamo/programs/test_language.py::test_program[basics-exception_values]": (
        "indices of fake tensors fail in other words"
    ),
    "tests/dynamo/test_torch_modes.py::test_program[address_of_memory]": (
        "tensors have no const_data_ptr"
    ),
    **dict.fromkeys(
        (
            "tests/dynamo/test_transforms.py::test_program[hessian_by_two_arguments",
            "tests/dynamo/test_transforms.py::test_program[jacobians_agree",
        ),
        "jacobians by several arguments read a tensor of offsets, which breaks",
    ),
}
WITHOUT_TORCH_211 = {
    **WITHOUT_TORCH_212,
    **dict.fromkeys(
        (
            "tests/dynamo/programs/test_users.py::test_program[arrays-np_axis_tuples]",
            "tests/dynamo/test_torch_numpy_rounded.py::test_program[50-",
            "tests/dynamo/test_torch_numpy_rounded.py::test_by_the_default_backend[50]",
            "tests/dynamo/test_number_calls.py::test_call[quantile-",
        ),
        "quantiles are read, which breaks",
    ),
    **dict.fromkeys(
        (
            "tests/dynamo/test_peer_options.py::"
            "test_bounds_answer_what_is_asked_of_a_marked_size[mark_unbacked-torch.",
            "tests/inductor/test_triton.py::test_product_interpreted[of_float8_by_rows",
        ),
        "an argument or a kernel of a newer torch",
    ),
    "tests/inductor/test_triton.py::test_attention_compiles_to_machine_code[sm_100]": (
        "its Triton spills 64 bytes in one of the four kernels"
    ),
    "tests/dynamo/test_torch_modes.py::test_program[init_functions]": (
        "trunc_normal_ asks for no numbers of the tensor, so nothing breaks"
    ),
    "tests/inductor/test_triton.py::test_product_interpreted[scores_varying]": (
        "tracing alone, without capture, fixes the sizes of a matmul of four dimensions"
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept", action="store_true", help="write golden files instead of comparing"
    )
    parser.addoption(
        "--spread",
        type=int,
        default=1,
        metavar="N",
        help="of the tests that do not depend on the Python version, run each N-th: another N-th "
        "on each Python version",
    )
    parser.addoption(
        "--part",
        type=int,
        default=1,
        metavar="N",
        help="of the rows of long tables, run each N-th: another N-th for each commit and Python "
        "version",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Backends do not depend on the Python version: where the whole runs on another one, programs
    run under the first of theirs alone (tests/dynamo/differential.py).
    """
    if config.getoption("--spread") > 1:
        os.environ["TESTS_SPREAD"] = "1"


def pytest_report_header(config: pytest.Config) -> str | None:
    if (parts := config.getoption("--part")) > 1:
        return f"long tables: part {_part(parts)} of {parts}"
    return None


@functools.cache
def _part(parts: int) -> int:
    """The one of `parts` that this commit's turn is."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError:  # there is no git
        return sys.version_info.minor % parts
    return (zlib.crc32(done.stdout.strip()) + sys.version_info.minor) % parts


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the frame hook come first, and so do those that bound the growth of memory, which a
    process that ran thousands of tests blurs.
    """
    first = ("/test_hook", "test_robustness")
    items.sort(key=lambda item: not any(name in item.nodeid for name in first))
    torch = metadata.version("torch")[:4]
    unequal = {"2.11": WITHOUT_TORCH_211, "2.12": WITHOUT_TORCH_212}.get(torch, {})
    for start, reason in unequal.items():
        for item in items:
            if item.nodeid.startswith(start):
                item.add_marker(pytest.mark.skip(reason=f"torch {torch}: {reason}"))
    spread, parts = config.getoption("--spread"), config.getoption("--part")
    if spread > 1 or parts > 1:
        chosen = [i for i in items if _in_spread(i, spread) and _in_part(i, parts)]
        config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
        items[:] = chosen


def _in_spread(item: Any, spread: int) -> bool:
    if spread == 1 or item.nodeid.startswith(VERSION_DEPENDENT):
        return True
    if item.nodeid.startswith(PARTLY_DEPENDENT):
        spread = min(spread, 4)
    return zlib.crc32(_share_of(item).encode()) % spread == sys.version_info.minor % spread


def _in_part(item: Any, parts: int) -> bool:
    if parts == 1 or not item.nodeid.startswith(TABLES):
        return True
    # Divided: the remainder of the sum itself chooses for the other option.
    return zlib.crc32(_share_of(item).encode()) // 101 % parts == _part(parts)


def _share_of(item: Any) -> str:
    """The test; or the first fixture that its file makes once, whose tests stay together: it costs
    more than they do.
    """
    for name, found in sorted(item._fixtureinfo.name2fixturedefs.items()):
        if found[-1].scope == "module" and found[-1].baseid == item.location[0]:
            return f"{found[-1].baseid}::{name}"
    return item.nodeid


@pytest.fixture(autouse=True)
def team(request: pytest.FixtureRequest) -> Iterator[None]:
    """Threads for the tests that are about them."""
    if not request.node.nodeid.startswith(THREADED):
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(2, before))
    yield
    torch.set_num_threads(before)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nearly all that is made stays: looking for garbage takes an eighth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Libraries' objects, about a million, are not looked at by each garbage collection, and there
    are fewer: they took 7% of the time.
    """
    _forget_stacks_of_seeds()
    _note_usual_state()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _forget_stacks_of_seeds() -> None:
    """For each kind of device that the process has not begun to use, torch.manual_seed keeps the
    printed stack of its caller, three kinds here: 5% of the time of tests that seed.
    """
    torch: Any = sys.modules.get("torch")
    for kind in ("cuda", "xpu", "mtia"):
        module = getattr(torch, kind, None)
        if hasattr(module, "_lazy_call"):
            module.traceback = types.SimpleNamespace(format_stack=list)


@pytest.fixture(autouse=True, scope="module")
def frozen() -> None:
    """Nor is what earlier files left: tests that collect garbage took ten times as long after an
    hour of others.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """torch's own testing modules, which opcheck imports, forbid plain assignments to the flags of
    torch.backends for the whole process: a test of such an assignment may come later.
    """
    backends: Any = sys.modules.get("torch.backends")
    if backends is not None:
        backends.__allow_nonbracketed_mutation_flag = True
    _remove_frame_hooks()
    shared: Any = sys.modules.get("dynamo.api.shared_contexts")
    if shared is not None:
        shared.forget_all()  # a test counts what it compiles itself


def _remove_frame_hooks() -> None:
    """torch.cond in eager mode leaves torch's frame hook installed after an error. With any hook,
    CPython keeps arguments alive in callers: weak references of later tests would see that.
    """
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    state = ctypes.c_void_p(api.PyInterpreterState_Get())
    api._PyInterpreterState_SetEvalFrameFunc.restype = None
    api._PyInterpreterState_SetEvalFrameFunc(state, api._PyEval_EvalFrameDefault)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A test that leaves gradients off, another default dtype or a mode fails itself; of later
    tests, those that mind would fail, on the machine where they run behind it.
    """
    if not _USUAL or not (left := _USUAL[0].difference()):
        return
    _restore()
    if rest := _USUAL[0].difference():
        _USUAL[:] = [type(_USUAL[0])()]  # one test is to blame
        left += f", and for the rest of the process: {rest}"
    pytest.fail(f"the test leaves something changed: {left}", pytrace=False)


# The state of torch that guards compare (dynamo.guards.kinds.GlobalState), once there is torch: as
# a new thread has it, of which guards ask the same as of the one that compiled.
_USUAL: list[Any] = []


def _note_usual_state() -> None:
    if "torch" in sys.modules:
        guards = importlib.import_module("dynamo._guards")
        noting = threading.Thread(target=lambda: _USUAL.append(guards.GlobalState()))
        noting.start()
        noting.join()


def _restore() -> None:
    torch: Any = sys.modules["torch"]
    torch.set_grad_enabled(True)
    torch._C._set_fwd_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.set_autocast_cache_enabled(True)
    for device, dtype in (("cpu", torch.bfloat16), ("cuda", torch.float16)):
        torch.set_autocast_enabled(device, False)
        torch.set_autocast_dtype(device, dtype)


_FAULTY: list[str] = []  # tests that may pass, although capture has a fault below them


def pytest_warning_recorded(warning_message: Any, nodeid: str) -> None:
    if str(warning_message.message).startswith("a fault in capture"):
        _FAULTY.append(nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _FAULTY and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)  # behind the slowest tests: the last lines are read first
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The seconds that the tests of each folder took, and those with a fault in capture."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[str(Path(report.location[0]).parent)] += report.duration
    terminalreporter.section("seconds per folder")
    for folder, spent in seconds.most_common():
        terminalreporter.line(f"{spent:8.1f}  {folder}")
    if _FAULTY:
        terminalreporter.section("faults in capture, which fail the run")
        for nodeid in dict.fromkeys(_FAULTY):
            terminalreporter.line(nodeid)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): compares text with tests/goldens/<name>; --accept writes it there."""

    def check(name: str, text: str) -> None:
        path = GOLDENS / name
        if request.config.getoption("--accept"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {path}; write it by pytest --accept")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), str(path), "now", lineterm=""
            )
            pytest.fail("\n".join(lines) + "\n(refresh by pytest --accept)", pytrace=False)

    return check
