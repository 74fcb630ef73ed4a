"""The cache on disk: a content-addressed store of kernel libraries and of whole compiled plans.

Every entry is one file that carries its own checksum at its end (ELF and JSON readers ignore or
never see it), so one atomic rename publishes it whole, and a damaged or half-copied file is
recognised and made again. Nothing is unpickled. The folder belongs to the user alone (0700, owner
checked); where there is no such folder to be had, one warning is given and a private temporary
folder takes its place until the process ends.

    <cache folder>/v1/kernels/ab/abcdef....so      a compiled library (toolchain.py)
    <cache folder>/v1/kernels/ab/abcdef....o       functions of ours that libraries call
    <cache folder>/v1/kernels/ab/abcdef....cubin   a kernel for a GPU, and its figures (cubin.py)
    <cache folder>/v1/headers/ab/abcdef....gch     the header of kernels, precompiled
    <cache folder>/v1/plans/ab/abcdef....json      a PlanSpec
    <cache folder>/v1/choices/ab/abcdef....json    which library is fastest (measure.py)
    <cache folder>/v1/locks/ab.lock                held while an entry of that prefix is being made
    <cache folder>/v1/tmp/                         work in progress

DYNAMO_CACHE_DIR names another folder. Entries not used for longest are dropped when the store
outgrows its limit.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import platform
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fxgraph.notices import notify
from inductor.runtime.plan import FORMAT, PlanError, PlanSpec

log = logging.getLogger(__name__)

LAYOUT = "v1"
LIMIT_BYTES = 2 << 30
CLEAN_EVERY = 3600  # seconds between looks at the store's size
STALE_AFTER = 86400  # seconds after which leftovers of killed processes are removed
_MARK = b"\nframegraph sha256 "
_TRAILER = len(_MARK) + 64


class CacheWarning(UserWarning):
    """The cache folder cannot be used as it is; results are right, but not kept."""


class Store:
    """A folder of cache entries. Safe between threads and processes."""

    def __init__(self, root: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self.used: set[Path] = set()  # entries that this process read or wrote

    def path(self, kind: str, key: str, suffix: str) -> Path:
        return self.root / kind / key[:2] / f"{key}{suffix}"

    def find(self, kind: str, key: str, suffix: str) -> Path | None:
        """The entry's file if it is there and whole. A damaged one is removed, as if absent."""
        path = self.path(kind, key, suffix)
        return path if self._load(path) is not None else None

    def read(self, kind: str, key: str, suffix: str) -> bytes | None:
        """The entry's content, or None."""
        return self._load(self.path(kind, key, suffix))

    def _load(self, path: Path) -> bytes | None:
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        data = whole(raw)
        if data is None:
            log.warning("removing a damaged cache entry: %s", path)
            self.remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # marks it as used
        self.used.add(path)
        return data

    def write(self, kind: str, key: str, suffix: str, data: bytes) -> Path:
        """Publish an entry whole, replacing one of that key. OSError when it cannot be written."""
        path = self.path(kind, key, suffix)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.workspace() as folder:
            draft = folder / path.name
            draft.write_bytes(data + _trailer(data))
            draft.chmod(0o700)
            os.replace(draft, path)
        self.used.add(path)
        self._clean_sometimes()
        return path

    def remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A private folder on the store's file system, gone afterwards whatever happens."""
        parent = self.root / "tmp"
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = tempfile.mkdtemp(dir=parent)
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def lock(self, key: str) -> contextlib.AbstractContextManager:
        """Held by the one process that makes an entry, while others wait for it."""
        from filelock import FileLock  # not needed when everything is found in the cache

        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return FileLock(folder / f"{key[:2]}.lock")

    def _clean_sometimes(self) -> None:
        stamp = self.root / "cleaned"
        try:
            if time.time() - stamp.stat().st_mtime < CLEAN_EVERY:
                return
        except OSError:
            pass
        with contextlib.suppress(OSError):
            stamp.touch()
            # Looks at 100,000 files took two minutes where the disk had to be asked.
            threading.Thread(target=self._clean_quietly, daemon=True).start()

    def _clean_quietly(self) -> None:
        with contextlib.suppress(OSError):
            self.clean()

    def clean(self) -> None:
        """Drop the entries unused for longest until the store is well within its limit."""
        entries = []
        for kind in ("kernels", "headers", "plans", "choices"):
            for path in (self.root / kind).glob("*/*"):
                with contextlib.suppress(OSError):
                    info = path.stat()
                    entries.append((info.st_mtime, info.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total > self.limit_bytes:
            for _, size, path in sorted(entries):
                if total <= self.limit_bytes * 3 // 4:
                    break
                self.remove(path)
                total -= size
        for leftover in (self.root / "tmp").glob("*"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > STALE_AFTER:
                    shutil.rmtree(leftover, ignore_errors=True)


def content(path: Path) -> bytes:
    """Of an entry's file."""
    return path.read_bytes()[:-_TRAILER]


def whole(raw: bytes) -> bytes | None:
    """The content of an entry's file that is not damaged, else None."""
    data, trailer = raw[:-_TRAILER], raw[-_TRAILER:]
    return data if trailer == _trailer(data) else None


def _trailer(data: bytes) -> bytes:
    return _MARK + hashlib.sha256(data).hexdigest().encode()


# --- which folder ---------------------------------------------------------------------------------


def store() -> Store:
    """The store: in DYNAMO_CACHE_DIR, else in the user's cache folder, else in a private one."""
    return _store_in(os.environ.get("DYNAMO_CACHE_DIR", ""))


@functools.cache
def _store_in(folder: str) -> Store:
    if not folder:
        import platformdirs

        folder = platformdirs.user_cache_dir("framegraph")
    root = Path(folder).expanduser() / LAYOUT
    try:
        return Store(_private(root))
    except OSError as error:
        return Store(private_folder(f"the cache folder {folder} cannot be used ({error})"))


def _private(root: Path) -> Path:
    """`root`, made if need be, belonging to this user alone; OSError if that cannot be."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    info = root.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(f"{root} is not a folder")
    if hasattr(os, "getuid") and info.st_uid != os.getuid():
        raise PermissionError(f"{root} belongs to another user")
    if stat.S_IMODE(info.st_mode) != 0o700:
        root.chmod(0o700)
    with tempfile.TemporaryFile(dir=root):
        return root


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="framegraph-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def private_folder(why: str) -> Path:
    """A temporary folder for this process, with one warning per reason."""
    notify(
        f"framegraph: {why}. Compiled kernels will not be kept after this process. "
        "Set DYNAMO_CACHE_DIR to a folder of yours that can be written.",
        CacheWarning,
        stacklevel=2,
    )
    return _temporary()


def fall_back(why: str, error: OSError) -> Store:
    """A store that works, after the chosen one failed in use (a full disk, say)."""
    # Without the entry's name, which would be another reason for each entry.
    return Store(private_folder(f"{why} ({error.strerror or error}; it is in {store().root})"))


# --- whole plans ----------------------------------------------------------------------------------


def plan_key(graph_text: str, inputs: Any, options: Any) -> str:
    """Key of a compiled functional graph: its serialized text, the known facts about its inputs,
    and the options.

    `inputs` and `options` need a faithful repr. The versions of torch and of this package, and the
    machine, are part of the key.
    """
    return digest(graph_text, repr(inputs), repr(options), fingerprint(), machine())


def load_plan(key: str) -> PlanSpec | None:
    """The stored plan, or None. Its library is found, or made again, from `spec.source`."""
    data = store().read("plans", key, ".json")
    if data is None:
        return None
    try:
        return PlanSpec.from_json(data.decode())
    except (PlanError, UnicodeDecodeError):
        return None


def save_plan(key: str, spec: PlanSpec) -> None:
    """Store a plan, unless it has Python steps: their callables live in this process."""
    if any(step.kind == "call" for step in spec.steps):
        return
    try:
        store().write("plans", key, ".json", spec.to_json().encode())
    except OSError as error:
        log.warning("a plan could not be stored: %s", error)


def digest(*parts: str) -> str:
    """Hash of texts, each delimited from the next."""
    whole = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        whole.update(f"{len(raw)}:".encode())
        whole.update(raw)
    return whole.hexdigest()


@functools.cache
def fingerprint() -> str:
    """Identifies the code that compiles: the version of torch, and our own files."""
    package = Path(__file__).resolve().parents[2]
    files = [
        path
        for room in ("fxgraph", "inductor")
        for pattern in ("**/*.py", "**/*.h")
        for path in (package / room).glob(pattern)
    ]
    state = [(str(p.relative_to(package)), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    return digest(torch.__version__, str(FORMAT), repr(sorted(state)))


@functools.cache
def machine() -> str:
    """Identifies the processor that code is compiled for."""
    features = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features", "model name", "CPU part"):
                features += " ".join(sorted(value.split())) + "\n"
            elif not line and features:
                break
    return digest(platform.machine(), platform.system(), features or platform.processor())
