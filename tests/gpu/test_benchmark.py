"""benchmarks.gpu where no GPU is: what it measures with, replaced."""

from __future__ import annotations

import argparse
import fcntl
import threading
import time

import pytest
import torch

from benchmarks import gpu, gpu_subjects


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at)


@pytest.fixture
def cuda(monkeypatch):
    replaced = {
        "Event": Event,
        "synchronize": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "max_memory_allocated": lambda: 3 << 20,
        "is_available": lambda: True,
        "get_device_name": lambda: "some GPU",
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)


def options(**more):
    given = {"training": False, "dtype": "float32", "batch": 0, "device": "cpu"}
    given |= {"lock": "", "profile": ""}
    return argparse.Namespace(**given | more)


@pytest.mark.parametrize("training", [False, True])
def test_a_process(cuda, training):
    found = gpu.child("eager", "chain", options(training=training, batch=8))
    assert found["memory"] == 3 and 0 < found["call"] and 0 < found["host"] and 0 < found["cold"]
    fn, inputs = gpu.made("chain", options(training=training, batch=8, dtype="bfloat16"))
    assert inputs["x"].shape == (8, 1024) and inputs["x"].dtype == torch.bfloat16
    assert {p.dtype for p in gpu.parameters_of(fn)} == {torch.bfloat16}


def test_a_process_waits_for_the_lock(cuda, tmp_path):
    """It measures when another has; it compiles before."""
    found = []
    work = threading.Thread(
        target=lambda: found.append(gpu.child("eager", "chain", options(batch=8, lock=str(file))))
    )
    file = tmp_path / "lock"
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        work.start()
        work.join(2)
        assert work.is_alive() and not found
    work.join(60)
    assert found[0]["call"] > 0


def test_times_of_kernels(cuda, monkeypatch, tmp_path):
    """Of three calls; what ran on the CPU is left out."""
    cpu, device = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA
    times = [("fused_add", 2.0, device), ("gemm", 9.0, device), ("call", 99.0, cpu)]
    events = [argparse.Namespace(name=n, device_time=t, device_type=d) for n, t, d in times] * 3

    class Profile:
        def __init__(self, **about):
            pass

        def __enter__(self):
            return argparse.Namespace(events=lambda: events)

        def __exit__(self, *about):
            pass

    monkeypatch.setattr(torch.profiler, "profile", Profile)
    gpu.child("eager", "chain", options(batch=8, profile=str(tmp_path)))
    (file,) = tmp_path.iterdir()
    assert file.name == "chain-inference-float32-eager.txt"
    lines = [line.split() for line in file.read_text().splitlines()]
    assert lines[0] == ["11.0", "us", "2.0"]
    assert [line[-1] for line in lines[1:]] == ["gemm", "fused_add"]


# Parameters in millions.
LARGE = {
    "resnet50": 25.6, "vit_base": 86.4, "bert_base": 109.5, "gpt2_small": 124.4,
    "llama_1b": 1235.8, "sdxl_unet": 388.6,
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_sizes_of_subjects(name):
    """Without memory: on a device that has none."""
    assert name in gpu.DEFAULT and LARGE.keys() == gpu_subjects.LARGE.keys()
    fn, inputs = gpu.made(name, options(device="meta"))
    count = sum(parameter.numel() for parameter in fn.parameters())
    assert round(count / 1e6, 1) == LARGE[name]
    if name == "sdxl_unet":
        assert fn(**inputs).shape == inputs["x"].shape


def test_the_table(cuda, monkeypatch, capsys):
    """One row for each system that is asked for; failures are told with what they say."""
    asked = []

    def run(command, **how):
        system = command[command.index("--child") + 1]
        asked.append(system)
        if system == "torch.compile reduce-overhead":
            return argparse.Namespace(returncode=1, stdout="", stderr="first\nlast line")
        speed = 2.0 if system == "eager" else 1.0
        text = f'noise\n{{"cold": 3, "call": {speed}, "host": 1, "memory": 5}}'
        return argparse.Namespace(returncode=0, stdout=text, stderr="")

    monkeypatch.setattr(gpu.subprocess, "run", run)
    systems = ["eager", "framegraph reduce", "torch.compile reduce"]
    gpu.main(["chain", "--once", "--parallel", "2", "--systems", *systems])
    assert sorted(asked) == ["eager", "framegraph reduce-overhead", "torch.compile reduce-overhead"]
    shown = capsys.readouterr()
    rows = [line.split(" | ") for line in shown.out.splitlines() if line.startswith("| chain")]
    assert [row[1] for row in rows] == sorted(asked) and rows[1][3] == "2.00"
    assert rows[2][2] == "last line"
    assert "first" in shown.err
    asked.clear()
    gpu.main(["chain", "--once", "--systems", *systems])
    assert asked == ["eager", "framegraph reduce-overhead", "torch.compile reduce-overhead"]
    asked.clear()
    gpu.main(["chain", "--systems", "framegraph default"])
    assert asked == ["framegraph default"] * 2
