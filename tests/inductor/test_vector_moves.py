"""Loads and stores of part of a vector, on every path of the vector header: neither lanes nor
memory beyond; gathers that are loads of neighbours; copies that need not round.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import dynamo
from inductor.runtime import toolchain
from tests.inductor.compiling import check, staged

# The number of wrong lanes, of every mask and every number of lanes. One array of W elements begins
# where memory before it may not be touched, another ends before such.
HARNESS = """
#include "vec.h"
#include <string.h>
#include <sys/mman.h>

namespace fg {
static char* fenced() {
  char* room = (char*)mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(room, 4096, PROT_NONE);
  mprotect(room + 2 * 4096, 4096, PROT_NONE);
  return room + 4096;
}
static void number(bf16* p, int k) { p->bits = bf16_bits(k * 1.5f - 3); }
static void number(f16* p, int k) { p->bits = f16_bits(k * 1.5f - 3); }
static void number(bool* p, int k) { *p = k % 3 != 1; }
template <class T> static void number(T* p, int k) { *p = (T)(k * 5 - 7); }
template <class T> static double value(T x) { return (double)get(x); }
static double value(bool x) { return x ? -1 : 0; }

namespace NAMESPACE_UNDER_TEST {
template <class T, class V> static int64_t differing(V x, const T* p, uint32_t lanes, int step) {
  int64_t wrong = 0;
  __asm__("" : "+r"(lanes));  // of a constant, GCC 12 makes a blend, which reads on
  LANES wrong += (double)x[l] != (lanes >> l & 1 ? value(p[l * step]) : 0.0);
  return wrong;
}
template <int K, class T> static int64_t every(const T* end) {
  const T* const p = end - (K * (W - 1) + 1);
  return differing(load_every<K>(p, Full{}), p, (1u << W) - 1, K);
}
template <class T> static int64_t run() {
  char* const room = fenced();
  T* const low = (T*)room;
  T* const high = (T*)(room + 4096) - W;
  for (int k = 0; k < W; ++k) number(low + k, k), number(high + k, k + 1);
  int64_t wrong = 0;
  for (uint32_t bits = 0; bits < (1u << W); ++bits) {
    mask m{};
    LANES m[l] = bits >> l & 1 ? -1 : 0;
    const int first = bits ? __builtin_ctz(bits) : 0, last = bits ? 31 - __builtin_clz(bits) : 0;
    wrong += any_lanes(m) != (bits != 0);
    wrong += all_lanes(m) != (bits == (1u << W) - 1);
    const T* const p = low - first;            // nothing before the first lane may be read
    const T* const q = high + (W - 1 - last);  // nothing after the last
    wrong += differing(load_if(m, p, Full{}), p, bits, 1);
    wrong += differing(load_if(m, q, Full{}), q, bits, 1);
    wrong += differing(load_reversed_if(m, low + last, Full{}), low + last, bits, -1);
    const T* const s = high + W - 1 + first;
    wrong += differing(load_reversed_if(m, s, Full{}), s, bits, -1);
    wrong += differing(gather_if(m, p, Full{}, [](int64_t l) { return l; }), p, bits, 1);
    wrong += differing(load_same_if(m, bits ? low : high + W, Full{}), low, bits, 0);
    for (int64_t n = 1; n < W; ++n) {
      const uint32_t part = bits & ((1u << n) - 1);
      const int end = part ? 31 - __builtin_clz(part) : 0;
      const T* const r = high + (W - 1 - end);
      if (part) wrong += differing(load_if(m, r, Part{n}), r, part, 1);
    }
  }
  for (int64_t n = 1; n < W; ++n) {
    const uint32_t lanes = (1u << n) - 1;
    wrong += differing(load(low, Part{n}), low, lanes, 1);
    wrong += differing(load(high + W - n, Part{n}), high + W - n, lanes, 1);
    wrong += differing(load_reversed(low + n - 1, Part{n}), low + n - 1, lanes, -1);
    T* const to = high + W - n;
    char before[64];
    memcpy(before, high, sizeof(T) * (W - n));
    const auto x = load(low, Full{});
    store(to, x, Part{n});
    for (int l = 0; l < n; ++l) wrong += value(to[l]) != value(low[l]);
    wrong += memcmp(before, high, sizeof(T) * (W - n)) != 0;
    T copy[2 * W];
    memcpy(copy, high - W, 2 * sizeof(T) * W);
    store(high - W, x, Part{n});
    wrong += memcmp(copy + n, high - W + n, sizeof(T) * (2 * W - n)) != 0;
    for (int k = 0; k < W; ++k) number(high + k, k + 1);
  }
  T* const room_end = high + W;
  for (int k = 0; k < 4 * W; ++k) number(room_end - 1 - k, k);
  wrong += every<2>(room_end) + every<3>(room_end) + every<4>(room_end);
  wrong += differing(load_reversed(high + W - 1, Full{}), high + W - 1, (1u << W) - 1, -1);
  for (int step = -1; step <= 1; ++step) {
    const auto at = [&](int64_t l) { return step < 0 ? W - 1 - l : step * l; };
    const auto x = step < 0    ? load_run<-1>(true, low, Full{}, at)
                   : step == 0 ? load_run<0>(true, low, Full{}, at)
                               : load_run<1>(true, low, Full{}, at);
    wrong += differing(x, low + at(0), (1u << W) - 1, step);
    wrong += differing(load_run<1>(false, low, Full{}, at), low + at(0), (1u << W) - 1, step);
  }
  munmap(room - 4096, 3 * 4096);
  return wrong;
}
}  // namespace NAMESPACE_UNDER_TEST
}  // namespace fg
"""
ONE = """
extern "C" int64_t {space}_{name}() {{ return fg::{space}::run<{type}>(); }}
"""
KINDS = {
    "wide": ["float", "int32_t", "int16_t", "int8_t", "uint8_t", "bool", "fg::bf16", "fg::f16"],
    "half": ["float", "double", "int64_t", "int32_t", "int8_t", "bool", "fg::bf16", "fg::f16"],
}
FLAGS = {
    "native": ["-march=native"],
    "avx2": ["-march=x86-64-v3"],
    "avx512": ["-march=x86-64-v4"],
    "plain": [],
}


@pytest.mark.parametrize("flags", FLAGS)
def test_parts_of_vectors(flags: str, tmp_path: Path) -> None:
    """Where this machine cannot run the instructions, they are compiled."""
    if flags in ("avx2", "avx512") and os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    shared = HARNESS.split("namespace NAMESPACE_UNDER_TEST {")
    text, names = shared[0] + "}\n", []
    for space, types in KINDS.items():
        body = shared[1].replace("}  // namespace fg\n", "").replace("NAMESPACE_UNDER_TEST", space)
        text += f"namespace fg {{ namespace {space} {{{body}}}\n"
        for kind in types:
            names.append(f"{space}_{kind.split(':')[-1]}")
            text += ONE.format(space=space, name=names[-1].split("_", 1)[1], type=kind)
    source, library = tmp_path / "unit.cpp", tmp_path / "unit.so"
    source.write_text(text)
    command = [*toolchain.find_compiler().command, *toolchain.FLAGS, *FLAGS[flags]]
    include = ["-I", str(toolchain.INCLUDE)]
    subprocess.run([*command, *include, str(source), "-o", str(library)], check=True)
    if flags == "avx512" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        return
    run = ctypes.CDLL(str(library))
    for name in names:
        function = getattr(run, name)
        function.restype = ctypes.c_int64
        assert function() == 0, name


def special(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(size) * 40
    flat = x.view(-1)
    flat[::7], flat[3::11], flat[5::13], flat[1::17] = -0.0, math.nan, math.inf, -math.inf
    return x.to(dtype) if dtype.is_floating_point else torch.randint(-90, 90, size).to(dtype)


TYPES = [torch.float32, torch.bfloat16, torch.float64, torch.uint8]


@pytest.mark.parametrize("dtype", [*TYPES, torch.bool], ids=str)
def test_moved_rows(dtype: torch.dtype) -> None:
    """Turned, rolled, repeated and padded by zeros, of whole vectors and of a few elements."""

    def fn(x):
        turned = x.flip(-1), x.flip(0, 1), x.flip(-1)[..., 1:]
        rolled = x.roll((1, -2), (-2, -1)), x.roll(3), x.roll(19, -1), x.roll(0, 0)
        repeated = x.repeat(2, 3), x.repeat_interleave(20, -1), x.repeat_interleave(3, -1)
        padded = F.pad(x, (1, 2, 1, 0)), F.pad(x, (-1, 40, 1, -1), value=1)
        return *turned, *rolled, *repeated, *padded, x.unflatten(-1, (1, -1)).mT.reshape(-1)

    x = special(5, 35, dtype=dtype)
    check(fn, x, rtol=0, atol=0)
    if dtype == torch.float32:
        check(fn, special(3, 257), rtol=0, atol=0)
        check(fn, x.mT.contiguous().mT, rtol=0, atol=0)


def test_runs_are_loads_of_neighbours() -> None:
    text = staged(lambda x: (x.roll(5, -1), x.flip(-1)), [torch.zeros(3, 64)]).spec.source
    assert "load_reversed(" in text and "load_run" not in text and "gather(" not in text
    text = staged(lambda x: (x.roll(5) + x[0],), [torch.zeros(3, 64)]).spec.source
    assert "load_run<1>(" in text  # at another place in each row
    text = staged(lambda x: (x.roll(2) + x[0],), [torch.zeros(2, 3)]).spec.source
    assert "load_run" not in text  # hardly a vector lies in one run


@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 33, 64])
def test_loops_are_cut_where_comparisons_change(n: int) -> None:
    """Comparisons of every slope, at the ends, beyond them and in between."""

    def fn(x):
        k, (high, low) = torch.arange(n), (n - 1, 0)
        compared = k < 3, 3 >= k, n - k > 4, 2 * k <= n, 7 - 3 * k < 0, k >= n, k < 0, high > k
        either = (k < 2) | (k >= n - 2), (k >= 1) & (k < high), ~(k > low)
        return (*(torch.where(c, x, -x) for c in (*compared, *either)), (k - 5) // 3 + x)

    check(fn, special(3, n), rtol=0, atol=0)


def test_cut_loops_have_no_masks() -> None:
    for pad in (
        lambda x: (F.pad(x, (1, 2)),),
        lambda x: (F.pad(x, (1, 2), mode="reflect"),),
        lambda x: (F.pad(x, (2, 0), mode="replicate") * 2,),
        lambda x: (F.pad(x, (1, 1), mode="circular"),),
    ):
        text = staged(pad, [torch.zeros(2, 3, 50)]).spec.source
        assert "mask" not in text and "_if(" not in text and text.count("each_vector<") in (2, 3)
    many = staged(lambda x: (x + torch.arange(50) // 7,), [torch.zeros(3, 50)]).spec.source
    assert many.count("each_vector<") == 1


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_borders_of_copies(dtype: torch.dtype, mode: str) -> None:
    def pad(x, *amounts):
        return F.pad(x, amounts, mode=mode)

    def fn(x, y, z):
        rows = pad(x, 1, 2), pad(x, 0, 3), pad(x, 4, 0), pad(x[:, 1:] + 1, 2, 2)
        images = pad(y, 2, 1, 3, 0), pad(y, 1, 1, 1, 1) * 2, pad(y.mT, 0, 1, 2, 2)
        return *rows, *images, pad(z, 1, 1, 0, 1, 1, 0), pad(y, -1, 2, 1, -1)

    shapes = [(3, 2, 5), (2, 3, 5, 41), (1, 2, 3, 4, 16)]
    x, y, z = (special(*s, dtype=dtype) for s in shapes)
    check(fn, x, y, z, rtol=0, atol=0)
    if dtype == torch.float32:
        check(fn, x, y.contiguous(memory_format=torch.channels_last), z, rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_borders_that_eager_refuses(mode: str) -> None:
    """Of no elements, of bools, wider than what they mirror: eager's exceptions."""
    cases = [
        (torch.zeros(2, 3, 0), (1, 1)),
        (torch.zeros(2, 3, 4, dtype=torch.bool), (1, 1)),
        (torch.zeros(2, 3), (4, 4)),
        (torch.zeros(0, 3, 4), (1, 1)),
    ]
    for x, amounts in cases:
        try:
            expected = F.pad(x, amounts, mode=mode)
        except Exception as error:
            with pytest.raises(type(error)):
                dynamo.compile(lambda x: F.pad(x, amounts, mode=mode))(x)
        else:
            got = dynamo.compile(lambda x: F.pad(x, amounts, mode=mode))(x)
            assert torch.equal(got, expected) and got.dtype == expected.dtype


def test_copies_of_halves_keep_their_bits() -> None:
    """Nothing is rounded that a half type holds already, not even a NaN's payload."""
    bits = torch.tensor([0x7F81, 0x7FFF, -0x7F, 0x0001, 0x7F80, 0x3F80], dtype=torch.int16)
    x = bits.repeat(40).view(torch.bfloat16).view(6, 40)

    def fn(x):
        return x.flip(-1), x.roll(3, -1), F.pad(x, (2, 1)), torch.where(x.isnan(), x, -x)

    c = staged(fn, [x])
    for got, expected in zip(c.compiled(x), fn(x), strict=True):
        assert torch.equal(got.view(torch.int16), expected.view(torch.int16))
    sums = staged(lambda x, y: (torch.maximum(x, y) + y,), [x, x]).spec.source
    assert "store_rounded" in c.spec.source and "store_rounded" not in sums


SHORT = [2, 3, 7]


@pytest.mark.parametrize("n", SHORT)
@pytest.mark.parametrize("dtype", [*TYPES, torch.int64], ids=str)
def test_short_rows(dtype: torch.dtype, n: int) -> None:
    """Vectors are of neighbouring rows where a row is short: elements apart are picked from whole
    loads, of which the last ends where the tensor does.
    """

    def fn(x, y, m):
        moved = x.flip(-1), x.mT.contiguous(), torch.where(x > y, x, y), F.pad(x, (1, 0))
        by_row = x.amax(-1), x.argmax(-1), (x > 0).any(-1), x[:, None] - y[:20], x + m
        parts = x[:, 0] + x[:, -1], torch.maximum(x[:, :1], y), torch.cat([x, y[:, :1]], -1)
        return *moved, *by_row, *parts

    for rows in (15, 64):
        x, y, m = (special(size, n, dtype=dtype) for size in (rows, rows, 1))
        check(fn, x, y, m, rtol=0, atol=0)
    check(fn, x.mT.contiguous().mT, special(64, n + 2, dtype=dtype)[:, 1:-1], m, rtol=0, atol=0)
    check(fn, *(torch.empty(0, n).to(dtype) for _ in range(2)), m, rtol=0, atol=0)


@pytest.mark.parametrize("n", SHORT)
def test_functions_of_short_rows(n: int) -> None:
    def fn(x, y):
        sums = x.sum(-1), x.norm(dim=-1), x.softmax(-1), F.layer_norm(x, (n,)), x.log_softmax(-1)
        lengths = x.square().sum(-1, keepdim=True).sqrt()
        apart = (x[:, None] - y[:20]).square().sum(-1), x / lengths, x.unflatten(0, (4, -1)).sum(1)
        return *sums, *apart

    x, y = torch.randn(76, n), torch.randn(76, n)
    c = check(fn, x, y, rtol=1e-5, atol=1e-5)
    assert f"load_every<{n}>(" in c.spec.source
    check(fn, x.mT.contiguous().mT, y, rtol=1e-5, atol=1e-5)
    check(fn, special(76, n), y, rtol=1e-4, atol=1e-4)
