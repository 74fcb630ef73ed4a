"""Saved programs without Python: the runner's numbers are eager's, its errors have names."""

from __future__ import annotations

import ctypes
import json
import os
import re
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
from inductor.runner import FOLDER
from tests import integer_cases
from tests.dynamo import runner
from tests.dynamo.damaging import damaged, forged, sections_of, swapped
from tests.dynamo.runner import ONE_UNIT, Library, build, dl_tensor
from tests.integer_cases import OPERATORS

ROOT = Path(__file__).parent.parent.parent
pytestmark = runner.needs


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runner")
    return Library(build(folder / "runner.so", *runner.LIBRARY))


def save(path, fn, *args, **kwargs):
    with torch.no_grad():
        dynamo.export(fn)(*args).save(path, standalone=True, **kwargs)
    dynamo.reset()
    return path


def assert_same(found, expected):
    assert [t.dtype for t in found] == [t.dtype for t in expected]
    assert [t.shape for t in found] == [t.shape for t in expected]
    assert [t.stride() for t in found] == [t.stride() for t in expected]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6)


class Convolutions(nn.Module):
    """Every kind: of one pixel, of windows, grouped, depthwise, dilated, of signals."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.pixel = nn.Conv2d(8, 12, 1)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.wide = nn.Conv2d(12, 12, 7, padding=3, groups=12)
        self.grouped = nn.Conv2d(12, 6, 3, groups=3, bias=False)
        self.dilated = nn.Conv2d(6, 5, 3, padding=2, dilation=2)
        self.signals = nn.Conv1d(5, 4, 3, stride=2, padding=1)
        self.real = nn.Conv2d(6, 2, 3, dtype=torch.float64)

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x)))
        y = self.grouped(self.wide(self.depthwise(self.pixel(y))))
        z = self.dilated(y)
        pooled = torch.nn.functional.max_pool2d(z, 2)
        return z, self.signals(z.flatten(2)), pooled, self.real(y.double())


class Transformer(nn.Module):
    """Embedding, attention with a causal mask, norm, gelu, a head that shares its weight."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, ids):
        x = self.embedding(ids)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        x = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return x @ self.embedding.weight.t()


class Held(nn.Module):
    """Results that are arguments, weights, views of one another, numbers, constants."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(6.0).reshape(2, 3).t())

    def forward(self, x, pair):
        y = x @ self.table
        return {"y": y, "views": [y.t(), y[1:]], "x": x, "table": self.table}, None, pair[0], 3.5


class Recurrent(nn.Module):
    """Each kind, in both directions, with a projection, without biases, with given states."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, proj_size=3)
        self.gru = nn.GRU(6, 4, bias=False, batch_first=True)
        self.rnn = nn.RNN(6, 4, nonlinearity="relu", bidirectional=True)

    def forward(self, x, h):
        return self.lstm(x), self.gru(x), self.rnn(x, h)


def sums(a, b, c):
    """Products of what is no weight, running sums, integers, booleans."""
    products = torch.bmm(a, b), a[0] @ b[0], torch.baddbmm(a @ b, a, b)
    return (*products, a.cumsum(1), c.cumsum(0), (c > 2).cumsum(0), a.double() @ b.double())


def in_place(x, y):
    x.mul_(2)
    return x + y


def drawn(*sizes):
    torch.manual_seed(1)
    return torch.randn(*sizes)


def layer(**settings):
    """One that takes torch's fast path."""
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, **settings)


PROGRAMS = {
    "mlp": lambda: (
        nn.Sequential(nn.Linear(20, 50), nn.GELU(), nn.Linear(50, 5), nn.Softmax(-1)),
        (drawn(4, 20),),
    ),
    "convolutions": lambda: (Convolutions(), (drawn(2, 3, 24, 24),)),
    "transformer": lambda: (Transformer(), (torch.arange(40).reshape(2, 20) % 50,)),
    "encoder": lambda: (nn.TransformerEncoder(layer(), 2), (drawn(3, 7, 32),)),
    "encoder, norm first": lambda: (
        nn.TransformerEncoder(
            layer(norm_first=True, activation="gelu"), 1, enable_nested_tensor=False
        ),
        (drawn(3, 7, 32),),
    ),
    "recurrent": lambda: (Recurrent(), (drawn(7, 3, 6), drawn(2, 3, 4))),
    "held": lambda: (Held(), (drawn(4, 3), (drawn(2), 3))),
    "sums": lambda: (sums, (drawn(3, 4, 5), drawn(3, 5, 4), torch.arange(5))),
}


def flat(value):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if torch.is_tensor(leaf)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(library, tmp_path, name, threads):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    fn = fn.eval() if isinstance(fn, nn.Module) else fn
    with torch.no_grad():
        expected = flat(fn(*args))
    with library.load(save(tmp_path / "m.fg", fn, *args), threads) as program:
        for _ in range(2):
            found = program(*flat(args))
            assert_same(found, expected)
    assert_same(found, expected)  # after the program's end


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_where_libraries_are_fast_at_it(library, tmp_path, dtype, monkeypatch):
    """A standalone file depends on no measurement. As near to the exact values as eager's are."""
    refused = lambda *args, **kwargs: pytest.fail("measured")  # noqa: E731
    for module in ("widen", "attention", "products"):
        monkeypatch.setattr(f"inductor.{module}.fastest", refused)
    model, ids = Transformer().to(dtype).eval(), torch.arange(40).reshape(2, 20) % 50
    with library.load(save(tmp_path / "m.fg", model, ids)) as program:
        (found,) = program(ids)
    with torch.no_grad():
        eager, exact = model(ids), model.double()(ids)
    assert found.dtype == eager.dtype == dtype and found.stride() == eager.stride()
    assert (found - exact).abs().max() <= 1.5 * (eager - exact).abs().max()


def test_results_share_memory_with_each_other_alone(library, tmp_path):
    fn, args = PROGRAMS["held"]()
    path = save(tmp_path / "m.fg", fn, *args)
    with library.load(path) as program:
        assert program.inputs == ["x", "pair[0]"]
        names = ["y", "views", "views", "x", "table"]
        assert [n.split("'")[1] for n in program.results[:-1]] == names
        y, transposed, rows, x, table, first = program(*flat(args))
        y[1, 1] = 100.0
        assert transposed[1, 1] == 100.0 == rows[0, 1]
        for result in (x, table, first):
            result.fill_(7.0)
        assert_same(program(*flat(args)), flat(fn(*args)))


def test_inputs_are_written_where_the_program_writes_them(library, tmp_path):
    x, y = drawn(3, 3), drawn(3, 3)
    with library.load(save(tmp_path / "m.fg", in_place, x.clone(), y)) as program:
        given, expected = x.clone(), x.clone()
        (found,) = program(given, y)
        assert_same([found, given], [in_place(expected, y), expected])
        with pytest.raises(RuntimeError, match="input x is written, and shares memory with .* y"):
            program(given, given)


def varying(x):
    return torch.relu(x.reshape(-1, 4)), x.shape[0] + 5, x[:, -1].sum()


def test_sizes_that_vary(library, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(2)).eval()
    images = drawn(4, 3, 8, 8)
    dynamo.mark_dynamic(images, 0, min=2, max=9)
    with library.load(save(tmp_path / "m.fg", model, images), threads=2) as program:
        for count in (2, 9, 5, 2):
            images = drawn(count, 3, 8, 8)
            assert_same(program(images), [model(images)])
        with pytest.raises(RuntimeError, match=r"input.size\(0\) is 10; the most is 9"):
            program(drawn(10, 3, 8, 8))
        with pytest.raises(RuntimeError, match=r"input.size\(0\) is 1; the least is 2"):
            program(drawn(1, 3, 8, 8))
    x = drawn(6, 8)
    dynamo.mark_dynamic(x, 0, min=4, max=60)
    with library.load(save(tmp_path / "n.fg", varying, x)) as program:
        x = drawn(10, 8)
        y, n, total = varying(x)
        assert_same(program(x), [y, torch.tensor(n), total])


def test_many_threads_run_one_program(library, tmp_path):
    fn, args = PROGRAMS["mlp"]()
    x = drawn(64, 20)
    dynamo.mark_dynamic(x, 0, min=2, max=64)
    failed = []

    def work(program, seed):
        draw = torch.Generator().manual_seed(seed)
        for turn in range(40):
            x = torch.randn(2 + (seed + turn) % 60, 20, generator=draw)
            with torch.no_grad():
                if not torch.allclose(program(x)[0], fn(x), atol=1e-6):
                    failed.append((seed, turn))

    with library.load(save(tmp_path / "m.fg", fn, x), threads=2) as program:
        threads = [threading.Thread(target=work, args=(program, seed)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A program of two inputs."""

    def classes(images, ids):
        return images.flatten(1).relu(), ids + 1

    path = tmp_path_factory.mktemp("files") / "two.fg"
    return save(path, classes, drawn(2, 3, 4), torch.arange(6))


def with_fields(tensor, **fields):
    for name, value in fields.items():
        setattr(tensor, name, value)
    return tensor


def no_shape(tensor):
    return with_fields(tensor, shape=None)


def of_lanes(tensor):
    tensor.dtype.lanes = 4
    return tensor


IMAGES, IDS = (2, 3, 4), torch.arange(6)
# what is given for images -> the text of the error
BAD_IMAGES = {
    "None": (lambda: None, "input images is to be a tensor, not NULL"),
    "dtype": (lambda: dl_tensor(drawn(*IMAGES).double()), "images .* float32, not float64"),
    "lanes": (lambda: of_lanes(dl_tensor(drawn(*IMAGES))), "images .* float32, not .* 4 lanes"),
    "dimensions": (lambda: dl_tensor(drawn(2, 3)), r"images .* 3 dimensions, not 2: \(2, 3\)"),
    "shape": (lambda: dl_tensor(drawn(2, 4, 3)), r"images .* size \(2, 3, 4\), not \(2, 4, 3\)"),
    "stride": (
        lambda: dl_tensor(drawn(2, 4, 3).transpose(1, 2)),
        r"images .* stride \(12, 4, 1\), not \(12, 1, 3\)",
    ),
    "device": (
        lambda: with_fields(dl_tensor(drawn(*IMAGES)), device_type=2),
        "images .* CPU memory, not on DLPack's device 2",
    ),
    "memory": (lambda: with_fields(dl_tensor(drawn(*IMAGES)), data=None), "images .* with memory"),
    "offset": (lambda: with_fields(dl_tensor(drawn(*IMAGES)), byte_offset=2), "images .* aligned"),
    "ndim": (lambda: with_fields(dl_tensor(drawn(*IMAGES)), ndim=-5), "3 dimensions, not -5"),
    "many": (lambda: with_fields(dl_tensor(drawn(*IMAGES)), ndim=2**30), "not 1073741824"),
    "no shape": (lambda: no_shape(dl_tensor(drawn(*IMAGES))), "images .* 3 dimensions"),
    "negative": (lambda: with_size(-3), r"images .* not \(2, -3, 4\)"),
    "absurd": (lambda: with_size(2**62), "images .* size"),
}  # fmt: skip


def with_size(size):
    tensor = dl_tensor(drawn(*IMAGES))
    tensor.shape[1] = size
    return tensor


@pytest.mark.parametrize("what", BAD_IMAGES)
def test_bad_inputs_are_refused_by_name(library, file, what):
    make, text = BAD_IMAGES[what]
    with library.load(file) as program:
        with pytest.raises(RuntimeError, match=text):
            program.run([make(), dl_tensor(IDS)])
        program(drawn(*IMAGES), IDS)


def test_bad_calls(library, file):
    good = [dl_tensor(drawn(*IMAGES)), dl_tensor(IDS)]
    with library.load(file) as program:
        for inputs, results, text in (
            (good[:1], None, "it takes 2 tensors, not 1"),
            ([*good, good[0]], None, "it takes 2 tensors, not 3"),
            (good, 1, "it returns 2 tensors, not 1"),
            (good, 3, "it returns 2 tensors, not 3"),
        ):
            with pytest.raises(RuntimeError, match=text):
                program.run(inputs, results)
        assert program.c.fg_input_name(program.handle, 2) is None
        assert program.c.fg_result_name(program.handle, -1) is None
        assert program.c.fg_run(program.handle, None, 2, None, 2) == -1
    assert library.c.fg_run(None, None, 0, None, 0) == -1
    library.c.fg_free(None)
    with pytest.raises(RuntimeError, match="options"):
        with library.load(file, threads=-1):
            pass


def test_an_index_out_of_range_is_an_error(library, tmp_path):
    table = nn.Embedding(5, 4)
    with library.load(save(tmp_path / "m.fg", table, torch.tensor([1, 2]))) as program:
        with pytest.raises(RuntimeError, match="index out of range"):
            program(torch.tensor([1, 5]))
        assert_same(program(torch.tensor([4, 0])), [table(torch.tensor([4, 0])).detach()])


def test_strided_results_and_inputs_without_strides(library, file):
    images = dl_tensor(drawn(*IMAGES))
    images.strides = ctypes.POINTER(ctypes.c_int64)()
    with library.load(file) as program:
        assert_same(program.run([images, dl_tensor(IDS)])[:1], [drawn(*IMAGES).flatten(1).relu()])


# -- files -----------------------------------------------------------------------------------------
def renamed(path, target, name):
    """The file with a section under another name."""
    sections = sections_of(path)
    changed = {name(key): data for key, data in sections.items() if name(key)}
    container.write(target, changed)
    return target


def test_files_that_are_no_programs_for_it(library, file, tmp_path):
    plain = tmp_path / "plain.fg"
    dynamo.export(nn.ReLU())(drawn(3)).save(plain)
    (tmp_path / "text.fg").write_text("import torch\n" * 100)
    newer = bytearray(file.read_bytes())
    newer[8] = 7
    (tmp_path / "newer.fg").write_bytes(newer)
    elsewhere = renamed(file, tmp_path / "v9.fg", lambda key: key.replace("x86-64-v3", "riscv"))
    kernels = renamed(file, tmp_path / "none.fg", lambda key: key * ("kernels" not in key))
    for path, text in (
        (plain, "no plan for this runner: save it with standalone=True"),
        (tmp_path / "missing.fg", "missing.fg: cannot be read: No such file"),
        (tmp_path, "not a file"),
        (tmp_path / "text.fg", "not a saved program"),
        (tmp_path / "newer.fg", r"format 7; this runner reads 1 \(a newer framegraph wrote it\)"),
        (elsewhere, "no kernels for this processor: the file has those for riscv"),
        (kernels, "no kernels for this processor"),
    ):
        with pytest.raises(RuntimeError, match=text), library.load(path):
            pass


def test_what_needs_python_or_torch_is_refused_when_saved(tmp_path):
    counting = nn.BatchNorm1d(3)
    for fn, args, text in (
        (lambda x: x.sort(), (drawn(4),), r"operators without generated code: .*sort"),
        (counting, (drawn(4, 3),), "writes its buffers"),
        (nn.ConvTranspose2d(3, 4, 3), (drawn(1, 3, 5, 5),), "convolution"),
    ):
        with pytest.raises(ProgramError, match=text):
            save(tmp_path / "m.fg", fn, *args)
    assert not (tmp_path / "m.fg").exists()


@pytest.mark.parametrize("name", ["transformer", "convolutions", "held", "recurrent"])
def test_weights_for_it_alone(library, tmp_path, name):
    """Without those that only Python reads, which takes them from elsewhere."""
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    fn = fn.eval()
    both = save(tmp_path / "both.fg", fn, *args)
    path = save(tmp_path / "m.fg", fn, *args, weights=False)
    assert "weights" not in sections_of(path)
    held = sum(t.nbytes for t in fn.state_dict().values())
    assert path.stat().st_size < both.stat().st_size - 0.9 * held + 4096
    with torch.no_grad():
        expected = flat(fn(*args))
    with library.load(path) as program:
        assert_same(program(*flat(args)), expected)
    with pytest.raises(ProgramError, match="weights"):
        dynamo.load(path, backend="aot_eager")
    program = dynamo.load(path, weights=fn.state_dict(), backend="aot_eager")
    assert_same([t.detach() for t in flat(program(*args))], expected)


def test_saving_for_it_needs_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ProgramError, match="no-such-compiler"):
        save(tmp_path / "m.fg", nn.Linear(3, 4), drawn(2, 3))


def test_show_tells_of_it(small):
    text = str(dynamo.load(small, backend="aot_eager"))
    assert re.search(r"\nruns without Python: \d+ kernels for x86-64-v3$", text), text


def test_python_reads_the_same_file(file):
    program = dynamo.load(file, backend="aot_eager")
    images = drawn(*IMAGES)
    assert_same(program(images, IDS), [images.flatten(1).relu(), IDS + 1])


DRIVER = """
#include <cstdio>
#include <cstring>
#include "framegraph.h"
int main(int argc, char** argv) {  // loads each file; "!" before its name: and runs it on a float
  for (int i = 1; i < argc; ++i) {
    const bool runs = argv[i][0] == '!';
    fg_program* program = fg_load(argv[i] + runs, nullptr);
    if (program != nullptr && runs) {
      float numbers[24];
      for (int k = 0; k < 24; ++k) numbers[k] = static_cast<float>(k - 9);
      int64_t shape[] = {2, 3, 4};
      DLTensor x{numbers, {1, 0}, 3, {2, 32, 1}, shape, nullptr, 0};
      DLTensor* inputs[] = {&x};
      DLManagedTensor* results[1];
      if (fg_run(program, inputs, 1, results, 1) == 0) results[0]->deleter(results[0]);
      else std::printf("%s\\n", fg_error());
    }
    std::printf("%s: %s\\n", argv[i], program != nullptr ? "loaded" : fg_error());
    fg_free(program);
  }
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A program that ends with a report where memory is used otherwise than it may be."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cpp").write_text(DRIVER)
    flags = ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return build(folder / "driver", str(folder / "driver.cpp"), *flags)


def loads(driver, paths):
    """File name -> what loading it says."""
    env = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1"}
    command = [str(driver), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    lines = [line.split(": ", 1) for line in done.stdout.splitlines()]
    assert len(lines) == len(paths), done.stdout[-2000:]
    return {Path(name).name: text for name, text in lines}


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        return torch.softmax(self.head(x), -1)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.fg"
    x = drawn(2, 3, 4)
    dynamo.mark_dynamic(x, 0, min=2, max=8)
    return save(path, Small(), x)


def test_damaged_files_are_refused(driver, small, tmp_path):
    data = small.read_bytes()
    cases = [*damaged(data, 0), *damaged(data, 1), *swapped(data)]
    for number, (_, changed) in enumerate(cases):
        (tmp_path / f"{number}.fg").write_bytes(changed)
    assert len(cases) >= 200
    found = loads(driver, [f"!{small}", *(tmp_path / f"{n}.fg" for n in range(len(cases)))])
    assert found.pop(small.name) == "loaded"
    loaded = [what for n, (what, _) in enumerate(cases) if found[f"{n}.fg"] == "loaded"]
    assert not loaded


def test_forged_plans_do_no_harm_when_loaded(driver, small, tmp_path):
    """Hashes fit, and one place of the plan is another: an error, or a plan as good as any."""
    sections = sections_of(small)
    plan = json.loads(sections["plan"][0])
    paths = []
    for number, (_, changed) in enumerate(forged(plan, seed=0, count=300)):
        paths.append(tmp_path / f"{number}.fg")
        text = json.dumps(changed).encode()
        container.write(paths[-1], {**sections, "plan": [text]})
    for number, text in enumerate([b"", b"[]", b"{", b'"x', b"[" * 100_000, b"\xff", b"1" * 99]):
        paths.append(tmp_path / f"text{number}.fg")
        container.write(paths[-1], {**sections, "plan": [text]})
    found = loads(driver, paths)
    refused = [name for name, text in found.items() if text != "loaded"]
    assert len(refused) > 200
    assert all(f"text{n}.fg" in refused for n in range(7))


# -- arithmetic of sizes ---------------------------------------------------------------------------
_IN_EXPRESSIONS = {
    **{"add": "Add", "mul": "Mul", "pow": "Pow", "//": "FloorDiv", "%": "Mod", "max": "Max"},
    **{"min": "Min", "==": "Eq", "!=": "Ne", "<=": "Le", ">=": "Ge", "<": "Lt", ">": "Gt"},
    **{"and": "And", "or": "Or"},
}


def of_two_ints(path, **parts):
    """A saved program of two numbers, a and b, with these parts of a plan."""
    number = {"dtype": "int64", "number": True, "size": [], "stride": []}
    plan = {
        "format": 1,
        "symbols": [
            {"name": name, "label": name, "low": None, "high": None, "read": ["number", leaf]}
            for leaf, name in enumerate("ab")
        ],
        "inputs": [{"path": name, **number} for name in "ab"],
        "arena": 0,
        "kernels": None,
        **dict.fromkeys(["conditions", "given", "registers", "sizes", "statics", "values"], []),
        **dict.fromkeys(["written", "steps", "outputs", "results"], []),
    }
    container.write(path, {"plan": [json.dumps({**plan, **parts}).encode()]})
    return path


def answer(program, a, b):
    """The number; None where the program refuses the arguments as too large."""
    try:
        return int(program(torch.tensor(a), torch.tensor(b))[0])
    except RuntimeError as error:
        if "does not fit into 64 bits" in str(error):
            return None
        return int(str(error))  # of a check that fails with the number


@pytest.mark.parametrize("name", OPERATORS)
def test_expressions_and_registers_are_pythons_arithmetic(library, tmp_path, name):
    registers = of_two_ints(
        tmp_path / "registers.fg",
        given=[["number", "a"], ["number", "b"]],
        registers=[["int", 0, 0], ["int", 1, 0], [name, 0, 1]],
        sizes=[0],
        steps=[["check", [-1, 0], False, "{0}", [[2, 0]]]],
    )
    with library.load(registers) as program:
        for a, b, value in integer_cases.cases(name):
            # A divisor of 0 gives 0: such a size stands where nothing is computed.
            assert answer(program, a, b) == (0 if name in ("//", "%") and b == 0 else value), (a, b)
    if name not in _IN_EXPRESSIONS:
        return
    expression = [_IN_EXPRESSIONS[name], "a", "b"]
    results = [{"path": "r", "source": ["number", expression]}]
    with library.load(of_two_ints(tmp_path / "expression.fg", results=results)) as program:
        for a, b, value in integer_cases.cases(name):
            assert answer(program, a, b) == value, (a, b)


def test_a_condition_that_is_too_large_does_not_hold(library, tmp_path):
    conditions = [{"holds": ["Ge", ["Mul", "a", "b"], 0], "text": "a*b >= 0"}]
    results = [{"path": "r", "source": ["number", "a"]}]
    path = of_two_ints(tmp_path / "c.fg", conditions=conditions, results=results)
    with library.load(path) as program:
        assert answer(program, 3, 4) == 3
        assert answer(program, 2**32, 2**32) is None
        with pytest.raises(RuntimeError, match=re.escape("a*b >= 0")):
            program(torch.tensor(3), torch.tensor(-4))


# -- the tutorial ----------------------------------------------------------------------------------
DEPLOY = ROOT / "tutorials" / "deploy"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deploy")
    command = [sys.executable, str(DEPLOY / "save.py"), "mobilenet.fg"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def classified(program, folder):
    """What the program prints, without Python or torch in reach."""
    command = [str(program), "mobilenet.fg", "mobilenet.fg.inputs", "4"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, env={"PATH": "/nowhere"}
    )
    assert done.returncode == 0, done.stderr
    rows = [[float(number) for number in line.split()] for line in done.stdout.splitlines()]
    return torch.tensor(rows)


def scores(folder):
    data = bytearray((folder / "mobilenet.fg.scores").read_bytes())
    return torch.frombuffer(data, dtype=torch.float32).reshape(8, 10)


@pytest.mark.slow
def test_one_line_builds_the_tutorial(deployed):
    line = f"g++ -o classify {DEPLOY / 'classify.cpp'} $({sys.executable} -m dynamo runner)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        line, shell=True, cwd=deployed, capture_output=True, text=True, timeout=300, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = classified(deployed / "classify", deployed)
    torch.testing.assert_close(found, scores(deployed), rtol=0, atol=5e-4)
    assert found.std(0).min() > 0.1  # of images, not of biases alone
    libraries = subprocess.run(["ldd", str(deployed / "classify")], capture_output=True, text=True)
    assert "torch" not in libraries.stdout and "python" not in libraries.stdout


@pytest.mark.slow
def test_cmake_builds_the_tutorial(deployed, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    given = f"-DFRAMEGRAPH_RUNNER={FOLDER}"
    for command in (
        ["cmake", "-S", str(DEPLOY), "-B", str(tmp_path), given, *ONE_UNIT],
        ["cmake", "--build", str(tmp_path)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = classified(tmp_path / "classify", deployed)
    torch.testing.assert_close(found, scores(deployed), rtol=0, atol=5e-4)
