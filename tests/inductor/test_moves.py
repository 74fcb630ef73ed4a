"""Kernels that only move 16-bit elements: vectors of 16-bit integers, bits kept as they are."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from inductor.runtime import toolchain
from tests.inductor.compiling import check, staged
from tests.inductor.test_vector_moves import FLAGS

# The number of wrong elements, of every length. Both arrays end, or begin, where no memory may be
# touched.
HARNESS = """
#include "vec_pairs.h"
#include <sys/mman.h>

static int16_t* fenced() {
  char* room = (char*)mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(room, 4096, PROT_NONE);
  mprotect(room + 2 * 4096, 4096, PROT_NONE);
  return (int16_t*)(room + 4096);
}
using namespace fg;
using namespace fg::pairs;
template <class F> static int64_t wrong(int16_t* to, int64_t n, int64_t room, F expected) {
  int64_t count = 0;
  for (int64_t l = 0; l < room; ++l) count += to[l] != (l < n ? expected(l) : -1);
  for (int64_t l = 0; l < room; ++l) to[l] = -1;
  return count;
}
template <int K> static int64_t every(int16_t* end, int16_t* to, int64_t n, bool given) {
  int16_t* const p = end - (n ? K * (n - 1) + 1 : 0);
  each_move(0, n, [&](int64_t j, auto lanes, auto) {
    store(to + j, load_every_if<K>(given, p + K * j, lanes), lanes);
  });
  return wrong(to, n, 2048, [&](int64_t l) { return given ? p[K * l] : 0; });
}
extern "C" int64_t run() {
  int64_t count = 0;
  int16_t *const from = fenced(), *const to = fenced();
  const int64_t room = 2048;
  for (int64_t k = 0; k < room; ++k) from[k] = (int16_t)(k * 37 + 1), to[k] = -1;
  for (int64_t n = 0; n <= 4 * pairs::W + 1; ++n) {
    int16_t *const low = from, *const high = from + room - n, *const end = to + room - n;
    each_move(0, n, [&](int64_t j, auto lanes, auto) {
      store(to + j, load(high + j, lanes), lanes);
    });
    count += wrong(to, n, room, [&](int64_t l) { return high[l]; });
    each_move(0, n, [&](int64_t j, auto lanes, auto) {
      store(end + j, load(low + j, lanes), lanes);
    });
    count += wrong(end, n, n, [&](int64_t l) { return low[l]; });
    count += wrong(to, 0, room - n, [](int64_t) { return 0; });
    for (int once = 0; once < 2; ++once) {
      const bool given = once == 0;
      each_move(0, n, [&](int64_t j, auto lanes, auto) {
        store(to + j, load_reversed_if(given, low + n - 1 - j, lanes), lanes);
      });
      count += wrong(to, n, room, [&](int64_t l) { return given ? low[n - 1 - l] : 0; });
      count += every<2>(from + room, to, n, given) + every<3>(from + room, to, n, given);
      count += every<4>(from + room, to, n, given);
    }
    each_move(0, n, [&](int64_t j, auto lanes, auto) {
      scatter(to, splat(7), lanes, [&](int64_t l) { return 3 * (j + l); });
    });
    count += wrong(to, 3 * n, room, [&](int64_t l) { return l % 3 ? -1 : 7; });
    each_move(0, n, [&](int64_t j, auto lanes, auto) {
      const auto at = [&](int64_t l) { return j + l; };
      store(to + j, load_run<1>(j % 3 == 0, high, lanes, at), lanes);
    });
    count += wrong(to, n, room, [&](int64_t l) { return high[l]; });
  }
  return count;
}
"""


@pytest.mark.parametrize("flags", FLAGS)
def test_lengths_of_moves(flags: str, tmp_path: Path) -> None:
    """Where this machine cannot run the instructions, they are compiled."""
    if flags in ("avx2", "avx512") and os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    source, library = tmp_path / "unit.cpp", tmp_path / "unit.so"
    source.write_text(HARNESS)
    command = [*toolchain.find_compiler().command, *toolchain.FLAGS, *FLAGS[flags]]
    include = ["-I", str(toolchain.INCLUDE)]
    subprocess.run([*command, *include, str(source), "-o", str(library)], check=True)
    if flags == "avx512" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        return
    function = ctypes.CDLL(str(library)).run
    function.restype = ctypes.c_int64
    assert function() == 0


HALVES = [torch.bfloat16, torch.float16]


def every(dtype: torch.dtype, *size: int) -> torch.Tensor:
    """Bits of every kind: NaNs, quiet and signalling, with payloads, infinities, zeros, tiny."""
    bits = [0x7F81, 0x7FFF, -0x7F, 0x0001, 0x7F80, 0x3F80, 0x7C01, 0x7C00, -0x8000, 0, 0x1234]
    count = torch.Size(size).numel()
    return torch.tensor(bits, dtype=torch.int16).repeat(count)[:count].view(dtype).view(size)


def bits_of(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int16) if x.dtype in HALVES else x


def same_bits(fn, *args: torch.Tensor) -> str:
    """The text of the kernels, of which the results are eager's to the bit."""
    c = staged(fn, args)
    with torch.no_grad():
        for got, expected in zip(c.compiled(*args), fn(*args), strict=True):
            assert got.stride() == expected.stride()
            assert torch.equal(bits_of(got), bits_of(expected))
    return c.spec.source


@pytest.mark.parametrize("width", [1, 7, 33, 70])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_bits_of_moved_halves(dtype: torch.dtype, width: int) -> None:
    def moves(x, y):
        padded = F.pad(x, (1, 2)), F.pad(x, (2, 0, 1, 1), value=0.1), F.pad(x, (-1, 3), value=6e4)
        turned = x.roll(1, -1), x.flip(-1), x.flip(0), x.t().contiguous(), x.repeat(2, 3)
        joined = torch.cat([x, y], -1), torch.cat([x, x]), torch.stack([x, y], -1)
        return *padded, *turned, *joined, x[:, ::2].clone(), x.tril(), x.new_full((3, 5), 0.3)

    x, y = every(dtype, 5, width), every(dtype, 5, width + 3)[:, :width]
    assert "float" not in same_bits(moves, x, y)
    same_bits(moves, y, x)
    same_bits(moves, x.t().contiguous().t(), y)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_chosen_halves(dtype: torch.dtype) -> None:
    """By masks, by indices that are loaded, into places that are."""

    def chosen(x, y, i, m):
        picked = x[i], x.index_select(1, i), x.gather(1, i[:, None].expand(-1, 4))
        by_mask = torch.where(m, x, y), x.masked_fill(m, -6e4), torch.where(m, x, 0.5)
        written = x.index_copy(0, i, y[:3]), x.index_fill(0, i, 2.5)
        return *picked, *by_mask, *written, x.narrow(0, 1, 2).clone()

    x, y = every(dtype, 6, 40), every(dtype, 6, 43)[:, 3:]
    i, m = torch.tensor([3, 0, 5]), torch.arange(40) % 3 == 1
    assert "store_rounded" not in same_bits(chosen, x, y, i, m)
    same_bits(chosen, x[:, :8], y[:, :8], i, m[:8])


def test_halves_that_are_more_than_moved() -> None:
    """Integers of the program's own, sums, and conversions are computed as ever."""
    x, k = torch.randn(5, 40).bfloat16(), torch.arange(-20, 20, dtype=torch.int16)

    def fn(x, k):
        made = k.bfloat16() + 0, torch.where(k > 3, k, 7).to(torch.bfloat16), x.to(torch.int16)
        mixed = torch.where(k > 3, x, k), x.half(), x.roll(1, -1) + x, x.float().roll(2, -1)
        return *made, *mixed, F.pad(x, (1, 1)).relu(), torch.where(x > 0, x, x.float()), -x

    check(fn, x, k, rtol=0, atol=0)
    check(lambda k: (k // 3, k.sign(), k % 7, k + k), k, rtol=0, atol=0)  # integers that compute
    text = staged(lambda x: (x.roll(1, -1), x * 2), [x]).spec.source
    assert "float" in text


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_moves_of_nothing(dtype: torch.dtype) -> None:
    def fn(x):
        return F.pad(x, (1, 2), value=3.0), torch.cat([x, x], 0), x.flip(-1), x.new_zeros(0)

    same_bits(fn, torch.empty(4, 0, dtype=dtype))
    same_bits(fn, torch.empty(0, 40, dtype=dtype))


def test_borders_take_no_vectors_of_64_bits() -> None:
    """Positions whose comparisons are decided are no reason for narrow vectors."""
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.zeros(2, 3, 50, 50, dtype=dtype)
        text = staged(lambda x: (F.pad(x, (1, 2, 2, 1), mode="reflect"),), [x]).spec.source
        assert "namespace half" not in text


def test_a_store_rounds_once() -> None:
    def fn(x):
        return x.half(), (x * 2).half(), x.half() + 1, x.half().relu()

    x = torch.cat([every(torch.float16, 3, 40).float(), torch.randn(3, 40) * 3e4])
    check(fn, x, rtol=0, atol=0)
    assert "store(p1 + i0, t0, lanes)" in staged(lambda x: (x.half(),), [x]).spec.source


def test_chosen_numbers_are_of_their_type() -> None:
    """No vector of 64-bit integers for `where` of two of them."""

    def fn(x):
        return torch.where(x < 0, 1, -1) * x, torch.where(x > 0, 3, 2**40).half() * x

    x = every(torch.float16, 5, 40)
    check(fn, x, rtol=0, atol=0)
    assert "namespace half" not in staged(fn, [x]).spec.source
