"""Damaged and forged files of saved programs."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dynamo.saved import container
from dynamo.saved.container import Container


def sections_of(path: Path) -> dict[str, list[bytes]]:
    found = Container(path)
    return {name: [bytes(found.section(name))] for name in found.names}


def program_of(path: Path) -> Any:
    return json.loads(sections_of(path)["program"][0])


def forge(path: Path, target: Path, program: Any, **sections: bytes) -> Path:
    """The file with another program, and hashes that fit."""
    text = program if isinstance(program, bytes) else json.dumps(program).encode()
    others = {name: [data] for name, data in sections.items()}
    container.write(target, {**sections_of(path), "program": [text], **others})
    return target


def damaged(data: bytes, seed: int) -> Iterator[tuple[str, bytes]]:
    """(what was done, the bytes)"""
    draw = random.Random(seed)
    tables = data.index(b"{")
    places = [*range(0, 48, 3), *(draw.randrange(tables, tables + 300) for _ in range(20))]
    places += [draw.randrange(len(data)) for _ in range(130)]
    for place in places:
        bit = draw.randrange(8)
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place}", bytes(changed)
    lengths = [0, 1, 7, 8, 12, 47, 48, 100, 4095, 4096, len(data) - 1, len(data) // 2]
    for length in [*lengths, *(draw.randrange(len(data)) for _ in range(12))]:
        yield f"the first {length} bytes", data[:length]
    yield "bytes behind the end", data + b"\0"
    yield "zeros", bytes(len(data))
    yield "text", b"import os\nos.system('true')\n" * 20
    for _ in range(12):
        start, length = draw.randrange(len(data) - 64), draw.randrange(2, 64)
        changed = bytearray(data)
        changed[start : start + length] = draw.randbytes(length)
        yield f"{length} other bytes at {start}", bytes(changed)


def swapped(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Sections in each other's place, in the table and in the file."""
    for one, other in ((b'"weights"', b'"program"'), (b'"program"', b'"weights"')):
        changed = data.replace(one, b'"\1"', 1).replace(other, one, 1).replace(b'"\1"', other, 1)
        yield f"{one!r} named {other!r}", changed
    page = 4096
    changed = bytearray(data)
    changed[page : 2 * page], changed[-page:] = changed[-page:], changed[page : 2 * page]
    yield "pages in each other's place", bytes(changed)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything below a JSON value."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, item in value.items() if isinstance(value, dict) else ():
        yield (*path, key)
        yield from places_in(item, (*path, key))


ABSURD = [-1, 0, 1, 2**31, 2**62, 2**63, 2**64, 10**30, 1.5, True, None, "", "x", "s0", [], {}, [0],
          ["Add", "s0"], {"node": "x"}, {"expr": "s0"}, {"float": "nan"}, {"tensor": 10**9},
          [[[[0]]]], {"value": 1}, "aten.save.default"]  # fmt: skip


def forged(program: Any, seed: int, count: int) -> Iterator[tuple[str, Any]]:
    """(what was done, the program) with one place changed each, or left out."""
    draw = random.Random(seed)
    places = list(places_in(program))
    for _ in range(count):
        path = draw.choice(places)
        changed = copy.deepcopy(program)
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        if draw.random() < 0.15:
            del inner[path[-1]]
            yield f"without {path}", changed
            continue
        value = draw.choice(ABSURD)
        if draw.random() < 0.3:
            other = draw.choice(places)
            value = program
            for key in other:
                value = value[key]
        inner[path[-1]] = copy.deepcopy(value)
        yield f"{path} is {str(value)[:60]}", changed


def edited(program: Any, edit: Callable[[Any], Any]) -> Any:
    """A copy after `edit`."""
    changed = copy.deepcopy(program)
    edit(changed)
    return changed
