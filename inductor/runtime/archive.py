"""Entries of the cache as one archive, for another machine's cache folder.

A zip file; each member is an entry under its path in the store, with the checksum at its end
(cache.py). Measured choices stay at home: another machine measures itself.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from inductor.runtime.cache import Store, store, whole

_KINDS = ("kernels", "plans")
_NAME = re.compile(
    rf"(?P<kind>{'|'.join(_KINDS)})/[0-9a-f]{{2}}/(?P<key>[0-9a-f]+)(?P<suffix>\.[a-z]+)"
)
_LARGEST = 1 << 30  # bytes of one entry


def save_used() -> tuple[bytes, list[str]] | None:
    """The entries that this process made or used, and their names; None if there are none."""
    found = store()
    entries = {name: data for name, data in _used(found) if data is not None}
    if not entries:
        return None
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file.getvalue(), list(entries)


def _used(found: Store) -> list[tuple[str, bytes | None]]:
    paths = sorted(found.used)
    names = [path.relative_to(found.root).as_posix() for path in paths]
    return [(name, _read(path)) for name, path in zip(names, paths) if _NAME.fullmatch(name)]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # dropped meanwhile
        return None


def load_archive(data: bytes) -> list[str] | None:
    """Write the entries into the store; their names, or None for an empty archive.

    Raises ValueError, before anything is written, for bytes that are no archive of entries.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if any(member.file_size > _LARGEST for member in members):
                raise ValueError("an entry of the archive is too large")
            raw = {member.filename: archive.read(member) for member in members}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"no archive of cache entries: {error}") from None
    entries = []
    for name, stored in raw.items():
        match, content = _NAME.fullmatch(name), whole(stored)
        if match is None or content is None:
            raise ValueError(f"the archive's entry {name!r} is damaged, or none of the cache")
        entries.append((match["kind"], match["key"], match["suffix"], content))
    for entry in entries:
        store().write(*entry)
    return list(raw) or None
