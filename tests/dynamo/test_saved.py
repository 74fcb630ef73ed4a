"""Programs saved here and loaded by a process that has none of the modules' code."""

from __future__ import annotations

import pytest

from tests.dynamo.saved_cases import CASES, make
from tests.dynamo.saving_calls import differences, save_call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name in CASES:
        fn, args, kwargs = make(name)
        save_call(fn, args, kwargs, folder / f"{name}.fg")
    return folder


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_fresh_process_repeats_eager(folder, backend):
    assert differences(folder, backend) == dict.fromkeys(CASES)


def test_so_does_one_that_finds_its_plans_in_the_cache(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        assert differences(folder, "inductor") == dict.fromkeys(CASES)
    with_backwards = ("net", "net in training", "recurrent")
    assert len(list(tmp_path.rglob("*.program"))) == len(CASES) - len(with_backwards)
