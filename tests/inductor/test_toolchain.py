"""Finding and running the host compiler, and what happens when that goes wrong."""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from inductor.panels import in_panels
from inductor.runtime import cache, toolchain
from tests.inductor.plan_kernels import SOURCE


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_compiler(folder, name, script):
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text("#!/bin/sh\n" + script)
    file.chmod(0o755)
    return file


def entries(folder):
    return [p for p in (folder / cache.LAYOUT / "kernels").rglob("*") if p.is_file()]


def leftovers(folder):
    return list((folder / cache.LAYOUT / "tmp").iterdir())


def test_compile_load_and_call(own_cache):
    library = toolchain.load_library(SOURCE)
    x, out = torch.randn(5), torch.zeros(5)
    library.call("add1", (x.data_ptr(), out.data_ptr()), 1, 4)
    want = torch.zeros(5)
    want[1:4] = x[1:4] + 1
    assert torch.equal(out, want)
    assert len(entries(own_cache)) == 1 and not leftovers(own_cache)
    with pytest.raises(AttributeError):
        library.call("nowhere", (), 0, 1)


def test_second_compile_is_a_lookup(monkeypatch):
    path = toolchain.compile_library(SOURCE)
    monkeypatch.setattr(toolchain, "_start", lambda command: pytest.fail("compiled again"))
    assert toolchain.compile_library(SOURCE) == path


def test_key_depends_on_source_and_flags():
    compiler = toolchain.find_compiler()
    other = toolchain.Compiler(compiler.command, compiler.identity, ("-mtune=generic",))
    keys = {
        toolchain.library_key(["a"], compiler),
        toolchain.library_key(["a", ""], compiler),
        toolchain.library_key(["b"], compiler),
        toolchain.library_key(["a"], other),
    }
    assert len(keys) == 4


def test_several_units(own_cache):
    units = [f'extern "C" int f{i}() {{ return {i}; }}' for i in range(5)]
    library = toolchain.load_library(units)
    assert len({library.address(f"f{i}") for i in range(5)}) == 5
    assert not leftovers(own_cache)


MULTIPLY = """#include "product.h"
extern "C" void NAME(void* const* P, int64_t begin, int64_t end) {
  const fg::Product<float> p = {(float*)P[0], (float*)P[1], (float*)P[2], 2, 3, 4, 4, 2, 16};
  fg::product<float>(p, {}, begin, end);
}
"""


@pytest.mark.parametrize("damaged", [False, True])
def test_functions_of_our_own_are_compiled_once(damaged, own_cache, monkeypatch):
    """Two libraries call them: the second is linked with what the first has left, if whole."""
    commands = []
    start = toolchain._start
    monkeypatch.setattr(toolchain, "_start", lambda c: (commands.append(c), start(c))[1])
    monkeypatch.setattr(toolchain.ready, "find", lambda file, levels: None)
    weight = torch.randn(4, 3)
    x, packed, out = torch.randn(2, 4), in_panels(weight), torch.zeros(2, 3)
    for name in ("first", "second"):
        monkeypatch.setattr(toolchain, "_objects", {})  # another process
        library = toolchain.load_library(MULTIPLY.replace("NAME", name))
        library.call(name, (x.data_ptr(), packed.data_ptr(), out.data_ptr()), 0, 1)
        torch.testing.assert_close(out, x @ weight)
        (made,) = [entry for entry in entries(own_cache) if entry.suffix == ".o"]
        if damaged:
            made.write_bytes(made.read_bytes()[:-1])
    compiled = [part for command in commands for part in command if part.endswith("product.cpp")]
    assert len(compiled) == 1 + damaged


def test_a_library_that_was_started(own_cache, monkeypatch):
    started = toolchain.start_library([SOURCE, "int second;"])
    assert not entries(own_cache)
    started.finish()
    assert not leftovers(own_cache)
    monkeypatch.setattr(toolchain, "_start", lambda command: pytest.fail("compiled again"))
    assert toolchain.load_library([SOURCE, "int second;"]).address("add1")
    assert toolchain.start_library([SOURCE, "int second;"]) is None


def test_a_started_library_that_is_not_needed_leaves_nothing(tmp_path, monkeypatch, own_cache):
    pids = tmp_path / "pids"
    script = f'case "$*" in *-fsyntax-only*) exec g++ "$@";; esac\necho $$ >> {pids}\nsleep 60\n'
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path / "bin", "stuck++", script)))
    started = toolchain.start_library(SOURCE)
    deadline = time.time() + 60
    while not (pids.exists() and pids.read_text()) and time.time() < deadline:
        time.sleep(0.05)
    started.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)
    assert not entries(own_cache) and not leftovers(own_cache)
    started.stop()


def test_a_started_library_that_does_not_compile(own_cache):
    started = toolchain.start_library("int f() { return not_declared; }")
    with pytest.raises(toolchain.CompileError, match="not_declared"):
        started.finish()
    assert not entries(own_cache) and not leftovers(own_cache)


KERNEL = """#include "vec.h"
extern "C" int NAME() { return fg::wide::W; }
"""


@pytest.fixture
def commands(monkeypatch):
    """Of compilers that start, by a process that has made no header."""
    started = []
    start = toolchain._start
    monkeypatch.setattr(toolchain, "_start", lambda c: (started.append(c), start(c))[1])
    monkeypatch.setattr(toolchain, "_headers", {})
    monkeypatch.setattr(toolchain, "_refused", set())
    return started


def headers(folder):
    return list((folder / cache.LAYOUT / "headers").rglob("*.gch"))


needs_gnu = pytest.mark.skipif(
    not toolchain.find_compiler().quick, reason="precompiled headers are g++'s"
)


@needs_gnu
@pytest.mark.parametrize(
    "left", ["in the process", "in the cache", "elsewhere", "damaged", "removed", "of g++"]
)
def test_the_header_is_precompiled_once(left, own_cache, monkeypatch, commands):
    """By the first library; the others read it, or the text where there is none to be had."""
    ctypes.CDLL(str(toolchain.compile_library(KERNEL.replace("NAME", "first"))))
    (made,) = headers(own_cache)
    assert len(commands) == 2 and not leftovers(own_cache)
    if left == "damaged":
        made.write_bytes(made.read_bytes()[:-1])
    elif left == "elsewhere":
        monkeypatch.setattr(os, "link", _refuse)
    elif left == "removed":
        made.unlink()
    elif left == "of g++":  # of another one
        made.unlink()
        cache.store().write("headers", made.stem, ".gch", b"gpch of another g++")
    if left in ("in the cache", "damaged", "of g++"):
        toolchain._headers.clear()
    assert ctypes.CDLL(str(toolchain.compile_library(KERNEL.replace("NAME", "second")))).second()
    again = left in ("damaged", "removed")
    assert len(commands) == 3 + again
    assert headers(own_cache) and not leftovers(own_cache)


@needs_gnu
def test_a_kernel_reads_the_precompiled_header(own_cache, monkeypatch, commands):
    toolchain.compile_library(KERNEL.replace("NAME", "first"))
    vec = toolchain.INCLUDE / toolchain.HEADER
    read = []

    def start(command):
        with_names = subprocess.run([*command, "-H"], capture_output=True, text=True)
        read.extend(line for line in with_names.stderr.splitlines() if toolchain.HEADER in line)
        return subprocess.Popen(["true"], stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(toolchain, "_start", start)
    toolchain.compile_library(KERNEL.replace("NAME", "second"))
    assert [line[:2] for line in read] == ["! "] and str(vec) not in read[0]


@needs_gnu
def test_a_library_that_needs_more_is_compiled_without_haste(own_cache, commands):
    """A static that is initialized at its first use calls libstdc++, which kernels do without."""
    source = KERNEL.replace("return fg::wide::W", "static int made = NAME(); return made")
    for name in ("first", "second"):
        assert toolchain.load_library(source.replace("NAME", name)).address(name)
    assert len(commands) == 4 and "-nodefaultlibs" not in commands[-1]  # once in vain, header
    assert toolchain.find_compiler() in toolchain._refused


@pytest.mark.parametrize(
    ("name", "quick"), [("g++", True), ("x-g++-12", True), ("clang++", False), ("c++", False)]
)
def test_compilers_that_take_precompiled_headers(name, quick, tmp_path):
    compiler = toolchain.Compiler((str(tmp_path / name),), "")
    assert compiler.quick == (quick and sys.platform == "linux")
    assert not toolchain.Compiler((*compiler.command, "-DOTHER"), "").quick


@needs_gnu
def test_generated_code_is_compiled_with_fewer_passes(own_cache, monkeypatch, commands):
    """Functions of our own are not, nor is anything by other compilers."""
    monkeypatch.setattr(toolchain.ready, "find", lambda file, levels: None)
    monkeypatch.setattr(toolchain, "_objects", {})
    toolchain.load_library(MULTIPLY.replace("NAME", "multiplied"))
    level = {c[-3]: next(f for f in c if f.startswith("-O")) for c in commands if "-c" in c}
    assert {os.path.basename(file): flag for file, flag in level.items()} == {
        "unit0.cpp": "-O1",
        "product.cpp": "-O2",
    }
    other = toolchain.Compiler(("clang++",), "")
    assert other.kernel_flags == other.flags


READY = toolchain.ready.find("product.cpp", ["x86-64-v3"])


@pytest.mark.skipif(READY is None, reason="the package was built without x86-64's objects")
def test_functions_of_our_own_that_the_package_brings(own_cache, monkeypatch):
    """None of them is compiled, unless it is of other sources or for another compiler's flags."""
    commands = []
    start = toolchain._start
    monkeypatch.setattr(toolchain, "_start", lambda c: (commands.append(c), start(c))[1])
    monkeypatch.setattr(toolchain, "_objects", {})
    weight = torch.randn(4, 3)
    x, packed = torch.randn(2, 4), in_panels(weight)

    def product(name):
        commands.clear()
        out = torch.zeros(2, 3)
        library = toolchain.load_library(MULTIPLY.replace("NAME", name))
        library.call(name, (x.data_ptr(), packed.data_ptr(), out.data_ptr()), 0, 1)
        torch.testing.assert_close(out, x @ weight)
        return any("product.cpp" in part for command in commands for part in command)

    assert product("brought") == (torch.backends.cpu.get_cpu_capability() == "DEFAULT")
    monkeypatch.setenv("CXX", "g++ -DOTHER")
    assert product("otherwise")
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(toolchain.ready, "_digest", lambda: "of other sources")
    assert product("changed")


def test_objects_are_made_for_every_level(tmp_path, monkeypatch):
    ready = toolchain.ready
    levels = list(ready.LEVELS)
    monkeypatch.setattr(ready, "FILES", {"training.cpp": levels})
    (tmp_path / ready.FOLDER).mkdir()
    (tmp_path / ready.FOLDER / "training.x86-64-v4.stale.o").touch()
    monkeypatch.setattr(ready.platform, "machine", lambda: "aarch64")
    ready.build(tmp_path, ["g++"])
    assert len(list((tmp_path / ready.FOLDER).iterdir())) == 1
    monkeypatch.setattr(ready.platform, "machine", lambda: "x86_64")
    ready.build(tmp_path, ["no-such-compiler"])
    assert not list((tmp_path / ready.FOLDER).iterdir())
    if READY is not None:
        ready.build(tmp_path, ["g++"])
        names = sorted(path.name for path in (tmp_path / ready.FOLDER).iterdir())
        assert names == sorted(ready._path("training.cpp", level).name for level in levels)


def test_generated_code_that_does_not_compile(own_cache):
    with pytest.raises(toolchain.CompileError, match="not_declared"):
        toolchain.compile_library("int f() { return not_declared; }")
    with pytest.raises(toolchain.CompileError, match="not_declared"):
        toolchain.compile_library(["int g() { return 1; }", "int f() { return not_declared; }"])
    assert not entries(own_cache) and not leftovers(own_cache)


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(toolchain.NoCompiler, match="pip install ziglang"):
        toolchain.compile_library(SOURCE)


def test_cxx_that_names_nothing(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(toolchain.NoCompiler, match="CXX=no-such-compiler"):
        toolchain.find_compiler()


def test_cxx_wins_over_path(monkeypatch, tmp_path):
    wrapper = fake_compiler(tmp_path / "bin", "mycxx", 'exec g++ "$@"\n')
    monkeypatch.setenv("CXX", f"{wrapper} -DCHOSEN")
    source = "#ifndef CHOSEN\n#error not chosen\n#endif\n"
    assert toolchain.find_compiler().command == (str(wrapper), "-DCHOSEN")
    assert toolchain.compile_library(source).exists()


def test_compiler_on_path_that_is_broken(monkeypatch, tmp_path):
    fake_compiler(tmp_path / "bin", "g++", "echo 'no such license' >&2; exit 3\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(toolchain.NoCompiler, match="empty file"):
        toolchain.find_compiler()


def test_sources_that_are_edited_while_compilers_work(monkeypatch, tmp_path):
    """Neither objects nor libraries are kept under keys of sources that they are not of."""
    ours = tmp_path / "ours"
    ours.mkdir()
    text = 'extern "C" int number() { return %d; }'
    (ours / "number.cpp").write_text(text % 1)
    monkeypatch.setattr(toolchain, "INCLUDE", ours)
    monkeypatch.setattr(toolchain, "DEFINED_IN", {"number(": ("number.cpp",)})
    finish = toolchain._Commands.finish

    def edit(self):
        finish(self)
        (ours / "number.cpp").write_text(text % 2)

    monkeypatch.setattr(toolchain._Commands, "finish", edit)
    source = 'extern "C" int number(); extern "C" int twice() { return 2 * number(); }'
    library = ctypes.CDLL(str(toolchain.compile_library(source)))
    assert library.twice() == 4


def test_flags_that_the_compiler_lacks(monkeypatch, tmp_path):
    script = 'case "$*" in *march=native*) exit 1;; *) exec /usr/bin/env c++ "$@";; esac\n'
    wrapper = fake_compiler(tmp_path / "bin", "old++", script)
    monkeypatch.setenv("CXX", str(wrapper))
    assert "-march=native" not in toolchain.find_compiler().flags
    assert toolchain.load_library(SOURCE).address("add1")


def test_damaged_library_is_made_again(own_cache):
    path = toolchain.compile_library(SOURCE)
    for damage in (b"", b"\x7fELF", path.read_bytes()[:-100], b"x" + path.read_bytes()[1:]):
        path.write_bytes(damage)
        assert toolchain.load_library(SOURCE).address("add1")


def test_library_that_does_not_load_is_made_elsewhere(own_cache):
    compiler = toolchain.find_compiler()
    key = toolchain.library_key([SOURCE], compiler)
    cache.store().write("kernels", key, ".so", b"whole, but no library")
    cache.private_folder.cache_clear()
    with pytest.warns(cache.CacheWarning, match="does not load"):
        assert toolchain.load_library(SOURCE).address("add1")


@pytest.mark.parametrize("how", ["file", "no permission", "foreign"])
def test_unusable_cache_folder(how, tmp_path, monkeypatch):
    folder = tmp_path / "bad"
    if how == "file":
        folder.write_text("a file")
    else:
        (folder / cache.LAYOUT).mkdir(parents=True)
        if how == "foreign":
            monkeypatch.setattr(os, "getuid", lambda: 12345)
        else:
            monkeypatch.setattr(cache.tempfile, "TemporaryFile", _refuse)
    monkeypatch.setenv("DYNAMO_CACHE_DIR", str(folder))
    cache.private_folder.cache_clear()
    with pytest.warns(cache.CacheWarning, match="DYNAMO_CACHE_DIR") as record:
        path = toolchain.compile_library(SOURCE)
        toolchain.compile_library(SOURCE + "\n")
    assert len(record) == 1 and folder not in path.parents


def _refuse(*args, **kwargs):
    raise PermissionError("read-only")


def test_disk_that_fills_up(monkeypatch, own_cache):
    cache.private_folder.cache_clear()
    real = cache.Store.write

    def full(self, kind, key, *args):
        if own_cache in self.root.parents:
            raise OSError(28, "No space left on device", key)
        return real(self, kind, key, *args)

    monkeypatch.setattr(cache.Store, "write", full)
    with pytest.warns(cache.CacheWarning, match="No space left on device; it is in") as record:
        assert toolchain.load_library(SOURCE).address("add1")
        assert toolchain.load_library(SOURCE + "\n").address("add1")
    assert len(record) == 1


def test_cache_folder_is_private(own_cache):
    toolchain.compile_library(SOURCE)
    assert stat.S_IMODE((own_cache / cache.LAYOUT).stat().st_mode) == 0o700


CHILD = textwrap.dedent("""
    import signal, sys
    from inductor.runtime import toolchain
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background processes
    from tests.inductor.plan_kernels import SOURCE
    print("ready", flush=True)
    sys.stdin.readline()
    library = toolchain.load_library(SOURCE)
    print(library.address("add1") != 0, flush=True)
""")


def start_child(script, **env):
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


def test_two_processes_compile_once(tmp_path, own_cache):
    log = tmp_path / "runs"
    script = (
        f'case "$*" in *-fsyntax-only*) ;; *) echo x >> {log}; sleep 0.3;; esac\nexec g++ "$@"\n'
    )
    wrapper = fake_compiler(tmp_path / "bin", "slow++", script)
    children = [start_child(CHILD, CXX=str(wrapper)) for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        out, err = child.communicate(timeout=120)
        assert out.strip() == "True", err
    assert log.read_text() == "x\n"
    assert len(entries(own_cache)) == 1


def test_ctrl_c_kills_the_compiler_and_leaves_nothing(tmp_path, own_cache):
    pids = tmp_path / "pids"
    script = f'case "$*" in *-fsyntax-only*) exec g++ "$@";; esac\necho $$ >> {pids}\nsleep 60\n'
    wrapper = fake_compiler(tmp_path / "bin", "stuck++", script)
    child = start_child(CHILD, CXX=str(wrapper))
    assert child.stdout.readline() == "ready\n"
    child.stdin.write("go\n")
    child.stdin.flush()
    deadline = time.time() + 60
    while not (pids.exists() and pids.read_text()) and time.time() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)
    assert not entries(own_cache) and not leftovers(own_cache)
