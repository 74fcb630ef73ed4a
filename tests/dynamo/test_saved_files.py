"""Files that are damaged, cut off, foreign, newer or forged: one clear error each, no crash."""

from __future__ import annotations

import os
import re

import pytest
import torch

import dynamo
from dynamo.errors import ProgramError
from dynamo.saved import container
from tests.dynamo.damaging import damaged, edited, forge, forged, program_of, swapped
from tests.dynamo.saved_cases import make


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "net.fg"
    fn, args, kwargs = make("net")
    dynamo.export(fn)(*args, **kwargs).save(path)
    return path


def loaded(path):
    return dynamo.load(path, backend="aot_eager")


def test_damaged_files_are_refused(file, tmp_path):
    data = file.read_bytes()
    cases = [*damaged(data, seed=0), *swapped(data)]
    assert len(cases) > 200
    passed = []
    for what, changed in cases:
        path = tmp_path / "damaged.fg"
        path.write_bytes(changed)
        try:
            loaded(path)
            passed.append(what)
        except ProgramError as error:
            assert str(path) in str(error), what
    assert not passed


def test_forged_programs_end_in_an_error_or_a_result(tmp_path):
    """Hashes fit, and one place of the program is another: sizes, names, kinds."""
    refused = 0
    for name in ("net", "sizes", "counting"):
        fn, args, kwargs = make(name)
        path = tmp_path / f"{name}.fg"
        dynamo.export(fn)(*args, **kwargs).save(path)
        for _, changed in forged(program_of(path), seed=0, count=60):
            try:
                program = loaded(forge(path, tmp_path / "forged.fg", changed))
            except ProgramError:
                refused += 1
                continue
            try:
                program(*args, **kwargs)
            except (RuntimeError, ValueError, TypeError, OverflowError, IndexError):
                pass  # torch's own, of a number that no shape depends on
    assert refused > 120


def first_call(program):
    return next(n for n in program["graphs"]["inference"]["nodes"] if "op" in n)


FORGERIES = {
    "an operator that writes files": lambda p: first_call(p).update(op="aten.save.default"),
    "an operator that reads files": lambda p: first_call(p).update(op="aten.from_file.default"),
    "an operator in place": lambda p: first_call(p).update(op="aten.add_.Tensor"),
    "a module's function": lambda p: first_call(p).update(op="os.system.default"),
    "a name with an underscore": lambda p: first_call(p).update(op="aten.__class__.default"),
    "a method": lambda p: first_call(p).update(op="aten.add.__init__"),
    "another namespace": lambda p: first_call(p).update(op="profiler._record_function_exit.x"),
    "a node's name with code": lambda p: first_call(p).update(name="x); import os  #"),
    "an unknown argument": lambda p: first_call(p)["args"].append({"pickle": "gASVIQ=="}),
    "a node that is not there": lambda p: first_call(p)["args"].append({"node": "later"}),
    "a result's class": lambda p: p["outputs"].update(
        nest={"record": "x", "fields": ["__class__ ("], "values": [{"leaf": 0}]}),
    "a weight beyond the file": lambda p: p["tensors"][0]["weights"].update(start=1 << 40),
    "a weight larger than its memory": lambda p: p["tensors"][0].update(size=[1 << 40, 1, 1, 1]),
    "a view out of memory": lambda p: p["graphs"]["inference"]["nodes"].insert(
        -1, {"name": "w", "op": "aten.as_strided.default", "args": [{"node": "x"}, [999999], [1]]}),
    "a smaller input": lambda p: p["signature"]["leaves"][0]["tensor"].update(size=[1, 3, 8, 8]),
    "no graph": lambda p: p["graphs"].clear(),
    "no end": lambda p: p["graphs"]["inference"]["nodes"].pop(),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGERIES)
def test_forgeries_are_refused(file, tmp_path, what):
    changed = edited(program_of(file), FORGERIES[what])
    for node in changed["graphs"].get("inference", {}).get("nodes", ()):
        if node.get("name") == "w":
            node["args"][0]["node"] = changed["graphs"]["inference"]["nodes"][0]["name"]
    with pytest.raises(ProgramError):
        loaded(forge(file, tmp_path / "forged.fg", changed))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_conditions_that_were_taken_out_hold_nevertheless(tmp_path, backend):
    """What reading assumes of sizes is checked in calls, whatever the file says of it."""
    x = torch.randn(8, 3)
    dynamo.mark_dynamic(x, 0)
    dynamo.export(fifth_row)(x).save(tmp_path / "whole.fg")
    program = program_of(tmp_path / "whole.fg")
    conditions = [guard["condition"][0] for guard in program["symbols"]["guards"]]
    del program["symbols"]["guards"][conditions.index("And")]
    program["symbols"]["symbols"][0]["low"] = 2
    loaded = dynamo.load(forge(tmp_path / "whole.fg", tmp_path / "f.fg", program), backend=backend)
    torch.testing.assert_close(loaded(x), x[4] + 1)
    with pytest.raises(IndexError, match="index 4 out of range"):
        loaded(x[:3])


def fifth_row(x):
    return x[4] + 1


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b'"xxx', b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}", b"\xff"],
)
def test_what_is_no_json_program_is_refused(file, tmp_path, text):
    with pytest.raises(ProgramError, match=r"forged\.fg"):
        loaded(forge(file, tmp_path / "forged.fg", text))


def test_a_newer_format_says_so(file, tmp_path):
    data = bytearray(file.read_bytes())
    data[8] = container.VERSION + 1
    (tmp_path / "newer.fg").write_bytes(data)
    with pytest.raises(ProgramError, match="newer framegraph"):
        loaded(tmp_path / "newer.fg")


@pytest.mark.parametrize("name", ["missing.fg", ".", "state.pt"])
def test_other_files_are_refused(tmp_path, name):
    torch.save({"x": torch.zeros(3)}, tmp_path / "state.pt")
    with pytest.raises(ProgramError, match=re.escape(str(tmp_path))):
        loaded(tmp_path / name)


def test_saving_is_whole_or_not_at_all(file, tmp_path, monkeypatch):
    target = tmp_path / "kept.fg"
    target.write_bytes(b"before")
    fn, args, kwargs = make("net")
    exported = dynamo.export(fn)(*args, **kwargs)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProgramError, match=r"kept\.fg cannot be written: No space left on device"):
        exported.save(target)
    monkeypatch.undo()
    assert target.read_bytes() == b"before" and os.listdir(tmp_path) == ["kept.fg"]
    exported.save(target)
    assert loaded(target)(*args).shape == (2, 5)
    with pytest.raises(ProgramError, match="cannot be written: No such file or directory"):
        exported.save(tmp_path / "nowhere" / "x.fg")


def test_a_program_does_not_write_its_file(tmp_path):
    path = tmp_path / "counting.fg"
    fn, args, kwargs = make("counting")
    dynamo.export(fn)(*args, **kwargs).save(path)
    before = path.read_bytes()
    program = loaded(path)
    program(*args)
    assert program.state_dict()["count"] == 2
    assert path.read_bytes() == before
    assert loaded(path).state_dict()["count"] == 1
