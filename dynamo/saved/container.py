"""A file of named sections, each with its hash.

    offset  bytes
    0       8      magic: b"\\x93FGPROG\\n"
    8       4      version of the format, little-endian, as all numbers here
    12      4      length of the table in bytes
    16      32     SHA-256 of the table
    48      ...    the table: JSON, {"sections": {name: {"offset", "size", "sha256"}}}
    ...     ...    the sections, in the order of the table, each at a multiple of 4096 bytes (zeros
                   in between); the file ends with the last

Reading maps the file privately: nothing is read twice, and what a program writes into its buffers
does not reach the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dynamo.errors import ProgramError

MAGIC = b"\x93FGPROG\n"
VERSION = 1
ALIGNMENT = 4096
_HEAD = struct.Struct("<8sII32s")
_LARGEST_TABLE = 1 << 20
_CHUNK = 1 << 24
_GAP = 1 << 16  # between sections

Chunks = Iterable[bytes | memoryview]


# -- writing --------------------------------------------------------------------------------------
def write(path: str | os.PathLike[str], sections: Mapping[str, Chunks]) -> None:
    """Write the file whole or not at all: under another name first, then renamed.

    Raises ProgramError where that is not possible.
    """
    target = Path(os.fspath(path))
    laid_out = {name: [memoryview(chunk) for chunk in chunks] for name, chunks in sections.items()}
    table, head = _table(laid_out)
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(head)
            for name, chunks in laid_out.items():
                file.write(bytes(table[name]["offset"] - file.tell()))
                file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise ProgramError(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _table(sections: Mapping[str, list[memoryview]]) -> tuple[dict[str, Any], bytes]:
    """The table, and the file's bytes up to the first section. Offsets stand in the table, whose
    length they depend on: the sections are laid out behind a room that is large enough.
    """
    rows: dict[str, dict[str, Any]] = {
        name: {"size": sum(chunk.nbytes for chunk in chunks), "sha256": _digest(chunks)}
        for name, chunks in sections.items()
    }
    start = _HEAD.size + 256 + 256 * len(rows)
    for row in rows.values():
        start = -(-start // ALIGNMENT) * ALIGNMENT
        row["offset"] = start
        start += row["size"]
    text = json.dumps({"sections": rows}).encode()
    return rows, _HEAD.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest()) + text


def _digest(chunks: Iterable[memoryview]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


# -- reading --------------------------------------------------------------------------------------
class Container:
    """A file that was mapped and whose table was checked."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._map = self._mapped()
        self.size = len(self._map)
        self._view = memoryview(self._map)
        self._sections = self._read_table()
        self._whole: set[str] = set()  # sections whose hash was checked

    def fail(self, text: str) -> ProgramError:
        return ProgramError(f"{self.path}: {text}")

    @property
    def names(self) -> list[str]:
        return list(self._sections)

    def section(self, name: str) -> memoryview:
        """The bytes of a section, whose hash was checked."""
        if name not in self._sections:
            raise self.fail(f"not a whole program: it has no section {name!r}")
        offset, size, sha256 = self._sections[name]
        view = self._view[offset : offset + size]
        if name in self._whole:
            return view
        digest = hashlib.sha256()
        for start in range(0, size, _CHUNK):
            digest.update(view[start : start + _CHUNK])
        if digest.hexdigest() != sha256:
            raise self.fail(
                f"damaged: the section {name!r} has another hash than when it was saved"
            )
        self._whole.add(name)
        return view

    def digest(self, name: str) -> str:
        """The hash of a section, which was checked."""
        self.section(name)
        return self._sections[name][2]

    def bytes_of(self, name: str) -> int:
        """The size of a section."""
        return self._sections[name][1]

    def _mapped(self) -> mmap.mmap:
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < _HEAD.size:
                    raise self.fail("not a saved program, or cut off: it is too short")
                return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            text = getattr(error, "strerror", None) or str(error)
            raise self.fail(f"cannot be read: {text}") from error

    def _read_table(self) -> dict[str, tuple[int, int, str]]:
        magic, version, length, sha256 = _HEAD.unpack_from(self._view)
        if magic != MAGIC:
            raise self.fail("not a saved program")
        if version != VERSION:
            newer = " (a newer framegraph wrote it)" if version > VERSION else ""
            raise self.fail(f"format {version}; this framegraph reads {VERSION}{newer}")
        if length > min(_LARGEST_TABLE, self.size - _HEAD.size):
            raise self.fail("damaged or cut off: its table does not end")
        text = bytes(self._view[_HEAD.size : _HEAD.size + length])
        if hashlib.sha256(text).digest() != sha256:
            raise self.fail("damaged: its table has another hash than when it was saved")
        try:
            rows = json.loads(text)["sections"]
            return self._checked(rows, _HEAD.size + length)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self.fail("damaged: its table is none") from error

    def _checked(self, rows: Any, end: int) -> dict[str, tuple[int, int, str]]:
        """Sections follow each other, and fill the file."""
        found = {}
        for name, row in rows.items():
            offset, size, sha256 = row["offset"], row["size"], row["sha256"]
            plain = type(offset) is int and type(size) is int and isinstance(sha256, str)
            near = plain and size >= 0 and end <= offset <= min(end + _GAP, self.size)
            if not near or offset % ALIGNMENT or any(self._view[end:offset]):
                raise self.fail(f"damaged: the section {str(name)[:80]!r} is in no place")
            end = offset + size
            found[name] = offset, size, sha256
        if end != self.size:
            raise self.fail(f"damaged or cut off: it has {self.size} bytes instead of {end}")
        return found
