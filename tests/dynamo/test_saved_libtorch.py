"""Saved programs without Python, their operators without generated code by libtorch."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import dynamo
from dynamo.errors import ProgramError
from dynamo.saved import container
from inductor.runner import FOLDER, libtorch_flags, sources
from tests.dynamo import runner
from tests.dynamo.damaging import sections_of
from tests.dynamo.runner import ONE_UNIT, Library, build
from tests.dynamo.test_saved_data import CASES

ROOT = Path(__file__).parent.parent.parent
pytestmark = [runner.needs, pytest.mark.slow]  # libtorch's headers take half a minute


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runner")
    return Library(build(folder / "runner.so", "-shared", "-fPIC", *libtorch_flags()))


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return Library(build(folder / "runner.so", *runner.LIBRARY))


def save(path, fn, *args, **kwargs):
    with torch.no_grad():
        dynamo.export(fn)(*args).save(path, standalone="libtorch", **kwargs)
    dynamo.reset()
    return path


def called(path):
    """The operators of libtorch that a file calls."""
    text = str(dynamo.load(path, backend="aot_eager"))
    return text.partition("operators of libtorch: ")[2]


def drawn(*sizes):
    torch.manual_seed(1)
    return torch.randn(*sizes)


class Decoder(nn.Module):
    """Transposed convolutions, with generated code before and after them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.ConvTranspose2d(4, 3, 3, padding=1, groups=1)

    def forward(self, x):
        return torch.sigmoid(self.last(torch.relu(self.norm(self.up(torch.relu(self.first(x)))))))


class Ranked(nn.Module):
    """Results in several, lists of tensors, booleans, dtypes, optional tensors, numbers."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 6)

    def forward(self, x):
        scores = self.head(x).softmax(-1)
        values, order = scores.sort(-1, descending=True)
        best, which = (scores * 2).topk(2)
        median = scores.median(dim=0)
        return (
            values + 1,
            order,
            best - which,
            median.values,
            torch.linalg.inv(x.t() @ x + torch.eye(8)),
        )


def spectrum(x):
    """Complex numbers between operators of libtorch."""
    return torch.fft.irfft(torch.fft.rfft(x) * 2, n=x.shape[-1]).relu() + 1, torch.fft.fft(x)


def aliases(x, y):
    """Results that would lie in the memory of arguments."""
    ordered = x.sort(0).values
    return ordered, ordered.t(), x, torch.cummax(y, 0).values[1:]


def in_place(x, y):
    x.copy_(x.sort(0).values)
    return x * y


PROGRAMS = {
    "decoder": lambda: (Decoder().eval(), (drawn(2, 3, 8, 8),)),
    "ranked": lambda: (Ranked(), (drawn(5, 8),)),
    "spectrum": lambda: (spectrum, (drawn(3, 16),)),
    "aliases": lambda: (aliases, (drawn(4, 3), drawn(4))),
    "empty": lambda: (lambda x: (x.sort(0).values, x.sum(0)), (drawn(0, 3),)),
    "half": lambda: (lambda x: x.bfloat16().sort(-1).values * 2, (drawn(3, 7),)),
}


def assert_same(found, expected):
    expected = [t for t in torch.utils._pytree.tree_leaves(expected) if torch.is_tensor(t)]
    assert [t.dtype for t in found] == [t.dtype for t in expected]
    assert [t.stride() for t in found] == [t.stride() for t in expected]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(library, tmp_path, name):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    path = save(tmp_path / "m.fg", fn, *args)
    assert called(path)
    with library.load(path) as program:
        for _ in range(2):
            found = program(*args)
            assert_same(found, fn(*args))
    assert_same(found, fn(*args))  # after the program's end


def test_inputs_are_written(library, tmp_path):
    x, y = drawn(4, 3), drawn(4, 3) + 2
    path = save(tmp_path / "m.fg", in_place, x.clone(), y)
    given, expected = x.clone(), x.clone()
    result = in_place(expected, y)
    with library.load(path) as program:
        assert_same(program(given, y), [result])
    assert torch.equal(given, expected)


def test_sizes_that_vary(library, tmp_path):
    def fn(x):
        return x.sort(0).values.reshape(-1, 2), torch.nn.functional.pad(
            x, (1, 1), mode="circular"
        ).roll(x.shape[0] // 2, 0).cummax(0).values

    x = drawn(6, 4)
    dynamo.mark_dynamic(x, 0, min=2, max=60)
    with library.load(save(tmp_path / "m.fg", fn, x)) as program:
        for count in (2, 6, 37, 3):
            x = torch.randn(count, 4)
            assert_same(program(x), fn(x))


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_depend_on_data(library, tmp_path, name):
    """Numbers among results are tensors."""
    fn, arguments = CASES[name]
    torch.manual_seed(0)
    with library.load(save(tmp_path / "m.fg", fn, *arguments(0))) as program, torch.no_grad():
        for n in range(4):
            given = arguments(n)
            results = fn(*given)
            results = results if isinstance(results, tuple) else (results,)
            for one, other in zip(program(*given), results, strict=True):
                torch.testing.assert_close(one, torch.as_tensor(other), check_dtype=one.dim() > 0)


def test_what_a_program_checks_is_checked(library, tmp_path):
    fn, arguments = CASES["numbered"]
    with library.load(save(tmp_path / "m.fg", fn, *arguments(0))) as program:
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            program(drawn(3), torch.tensor(0))
        assert_same(program(drawn(3), torch.tensor(2))[:1], [torch.zeros(2) + drawn(3).sum()])


def test_forged_numbers_of_operators_are_refused(library, tmp_path):
    fn, arguments = CASES["places"]
    path = save(tmp_path / "m.fg", fn, *arguments(0))
    sections = sections_of(path)
    plan = json.loads(sections["plan"][0])
    place = next(i for i, step in enumerate(plan["steps"]) if len(step) > 6)
    late = next(i for i, row in enumerate(plan["registers"]) if len(row) > 3)
    for change, text in (
        (lambda plan: plan["steps"][place][6][0].__setitem__(0, 10**6), "a number of nothing"),
        (lambda plan: plan["steps"][place][6][0].__setitem__(1, 10**6), "a number of nothing"),
        (lambda plan: plan["registers"][late].__setitem__(3, 7), "no operator's|known later"),
        (lambda plan: plan["registers"][late].__setitem__(3, -1), "never known"),
        (lambda plan: plan["registers"][late].pop(), "never known"),
    ):
        changed = copy.deepcopy(plan)
        change(changed)
        forged = {**sections, "plan": [json.dumps(changed).encode()]}
        container.write(tmp_path / "forged.fg", forged)
        with pytest.raises(RuntimeError, match=text), library.load(tmp_path / "forged.fg"):
            pass


def test_the_random_numbers_are_libtorchs(library, tmp_path):
    x = drawn(500)
    with library.load(
        save(tmp_path / "m.fg", lambda x: torch.bernoulli(x.sigmoid()) + x, x)
    ) as program:
        torch.manual_seed(3)
        found = program(x)
        torch.manual_seed(3)
        assert_same(found, [torch.bernoulli(x.sigmoid()) + x])


def test_threads(library, tmp_path):
    torch.manual_seed(0)
    model = Ranked()
    failed = []

    def work(program, seed):
        draw = torch.Generator().manual_seed(seed)
        for _ in range(30):
            x = torch.randn(5, 8, generator=draw)
            with torch.no_grad():
                if not torch.allclose(program(x)[0], model(x)[0], atol=1e-5):
                    failed.append(seed)

    with library.load(save(tmp_path / "m.fg", model, drawn(5, 8))) as program:
        threads = [threading.Thread(target=work, args=(program, seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_a_program_of_our_operators_alone_needs_no_libtorch(without, tmp_path):
    model = nn.Linear(3, 4)
    path = save(tmp_path / "m.fg", model, drawn(2, 3))
    assert not called(path)
    with without.load(path) as program:
        assert_same(program(drawn(2, 3)), model(drawn(2, 3)))


def test_errors(library, without, tmp_path):
    path = save(tmp_path / "m.fg", lambda x: x.sort(0).values, drawn(4))
    with pytest.raises(
        RuntimeError, match=r"operator aten::sort.*: it is of libtorch, which fg_opt"
    ):
        with without.load(path):
            pass
    sections = sections_of(path)
    plan = json.loads(sections["plan"][0])
    place = next(i for i, step in enumerate(plan["steps"]) if step[0] == "operator")
    name, args = "aten::sort", plan["steps"][place][3]
    for changes, text in (
        ({1: "aten::tros"}, "aten::tros.*: this libtorch has none of this name"),
        ({3: [*args, True, True, True, True]}, f"{name}.*: it does not take these arguments"),
        ({3: []}, f"{name}.*: it misses the argument self"),
        ({3: [args[0], args[0]]}, f"{name}.*: .* is no tensor"),
        ({3: [args[0], "x"]}, f"{name}.*: an argument that is no number"),
        ({3: [{"dtype": "float7"}]}, f"{name}.*: 'float7' is nothing"),
        ({3: [{"value": 10**6}]}, "a number of nothing"),
        ({3: [{"pickle": "x"}]}, "'pickle' is nothing"),
        ({4: {"stabel": True}}, f"{name}.*: it does not take these arguments"),
        ({5: [10**6]}, "a number of nothing"),
        ({5: [args[0]["value"]]}, f"{name}.*: its result has another place"),
    ):
        changed = copy.deepcopy(plan)
        for key, value in changes.items():
            changed["steps"][place][key] = value
        container.write(
            tmp_path / "forged.fg", {**sections, "plan": [json.dumps(changed).encode()]}
        )
        with pytest.raises(RuntimeError, match=text), library.load(tmp_path / "forged.fg"):
            pass
    path = save(tmp_path / "n.fg", lambda x: torch.linalg.inv(x), torch.eye(3))
    with library.load(path) as program:
        with pytest.raises(RuntimeError, match="singular"):
            program(torch.zeros(3, 3))
        assert_same(program(torch.eye(3) * 2), [torch.linalg.inv(torch.eye(3) * 2)])


def test_what_is_refused(tmp_path):
    with pytest.raises(ProgramError, match='standalone="libtorch"'), torch.no_grad():
        dynamo.export(lambda x: x.sort())(drawn(4)).save(tmp_path / "m.fg", standalone=True)
    with pytest.raises(ValueError, match="libtorch"), torch.no_grad():
        dynamo.export(lambda x: x + 1)(drawn(4)).save(tmp_path / "m.fg", standalone="torch")
    assert not (tmp_path / "m.fg").exists()


# -- a program of its own --------------------------------------------------------------------------
MAIN = """
#include <cstdio>
#include "framegraph_libtorch.h"
int main(int, char** argv) {  // sorts six numbers
  fg_options options = {sizeof options, 1, fg_libtorch()};
  fg_program* program = fg_load(argv[1], &options);
  float numbers[] = {3, 1, 2, 6, 5, 4};
  int64_t shape[] = {6};
  DLTensor x{numbers, {1, 0}, 1, {2, 32, 1}, shape, nullptr, 0};
  DLTensor* inputs[] = {&x};
  DLManagedTensor* results[1];
  if (program == nullptr || fg_run(program, inputs, 1, results, 1) != 0) {
    return std::puts(fg_error()), 1;
  }
  fg_free(program);
  const float* sorted = static_cast<float*>(results[0]->dl_tensor.data);
  for (int i = 0; i < 6; ++i) std::printf("%g ", sorted[i]);
  results[0]->deleter(results[0]);
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(sorts CXX)
set(FRAMEGRAPH_LIBTORCH ON)
find_package(Torch REQUIRED)
add_subdirectory("{deploy}" deploy)
add_executable(sorts sorts.cpp)
target_link_libraries(sorts PRIVATE framegraph_runner)
"""


@pytest.fixture(scope="module")
def sorting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sorting")
    (folder / "sorts.cpp").write_text(MAIN)
    save(folder / "sorts.fg", lambda x: x.sort().values, drawn(6))
    return folder


def sorted_numbers(program, folder):
    done = subprocess.run(
        [str(program), "sorts.fg"], cwd=folder, capture_output=True, text=True, timeout=60,
        env={"PATH": "/nowhere"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_one_line_builds_it(library, sorting):
    """The line's flags, with the library that they built in place of its sources."""
    command = [sys.executable, "-m", "dynamo", "runner", "--libtorch"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    flags = subprocess.run(command, capture_output=True, text=True, env=env).stdout.split()
    built = [str(file) for file in (*sources(), FOLDER / "libtorch" / "operators.cpp")]
    assert set(built) <= set(flags) and set(libtorch_flags()) <= set(flags)
    others = [flag for flag in flags if flag not in built]
    command = ["g++", "-o", "sorts", "sorts.cpp", library.path, *others]
    done = subprocess.run(command, cwd=sorting, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted_numbers(sorting / "sorts", sorting) == list("123456")
    libraries = subprocess.run(["ldd", str(sorting / "sorts")], capture_output=True, text=True)
    assert "torch_cpu" in libraries.stdout and "libpython" not in libraries.stdout


def test_cmake_builds_it(sorting, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    deploy = ROOT / "tutorials" / "deploy"
    (sorting / "CMakeLists.txt").write_text(CMAKE.replace("{deploy}", str(deploy)))
    settings = [
        f"-DFRAMEGRAPH_RUNNER={FOLDER}",
        f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}",
        *ONE_UNIT,
    ]
    for command in (
        ["cmake", "-S", str(sorting), "-B", str(tmp_path), *settings],
        ["cmake", "--build", str(tmp_path), "--target", "sorts"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert sorted_numbers(tmp_path / "sorts", sorting) == list("123456")
