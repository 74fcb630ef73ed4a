"""The on-disk store: wholeness, bounds, plans."""

from __future__ import annotations

import os
import threading
import time

import pytest

from inductor.runtime import cache
from inductor.runtime.plan import CallStep
from tests.inductor.plan_kernels import add1_plan


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path))
    return cache.store()


def test_write_read_replace(store):
    assert store.read("plans", "abc", ".json") is None
    for data in (b"one", b"", b"three\n" * 1000):
        path = store.write("plans", "abc", ".json", data)
        assert store.read("plans", "abc", ".json") == data
        assert store.find("plans", "abc", ".json") == path
    assert not list((store.root / "tmp").iterdir())


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"y" + b[1:]])
def test_damage_is_absence(store, damage):
    path = store.write("plans", "abc", ".json", b"x" * 100)
    path.write_bytes(damage(path.read_bytes()))
    assert store.read("plans", "abc", ".json") is None
    assert not path.exists()


def test_least_recently_used_goes_first(store):
    store.limit_bytes = 10_000
    for i in range(20):
        path = store.write("kernels", f"{i:03}", ".so", b"x" * 900)
        os.utime(path, (1000 + i, 1000 + i))
    assert store.read("kernels", "000", ".so")  # used just now
    store.clean()
    left = {p.stem for p in (store.root / "kernels").rglob("*.so")}
    assert "000" in left and "019" in left and "001" not in left
    assert sum(p.stat().st_size for p in (store.root / "kernels").rglob("*.so")) <= 10_000


def test_leftovers_of_killed_processes_go(store):
    store.write("plans", "abc", ".json", b"x")
    old, new = store.root / "tmp" / "old", store.root / "tmp" / "new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (1, 1))
    store.clean()
    assert not old.exists() and new.exists()


def test_many_writers_of_one_key(store):
    seen = []

    def work(data):
        for _ in range(30):
            store.write("plans", "abc", ".json", data)
            seen.append(store.read("plans", "abc", ".json"))

    threads = [threading.Thread(target=work, args=(bytes([65 + i]) * 5000,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(data and len(set(data)) == 1 for data in seen)


def test_lock_keeps_others_out(store):
    order = []

    def work():
        with store.lock("abc"):
            order.append("in")
            time.sleep(0.02)
            order.append("out")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order == ["in", "out"] * 3


def test_plans(store):
    key = cache.plan_key("def forward(x): ...", [("float32", (3,))], {"mode": None})
    assert cache.load_plan(key) is None
    spec = add1_plan(3)
    cache.save_plan(key, spec)
    assert cache.load_plan(key) == spec
    assert cache.plan_key("def forward(x): ...", [("float32", (4,))], {"mode": None}) != key
    store.write("plans", key, ".json", b'{"format": 0}')
    assert cache.load_plan(key) is None


def test_plans_with_python_steps_are_not_stored(store):
    spec = add1_plan(3)
    spec.steps.append(CallStep("f", [], []))
    cache.save_plan("abc", spec)
    assert cache.load_plan("abc") is None


def test_digest_delimits():
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    assert len(cache.machine()) == len(cache.fingerprint()) == 64
