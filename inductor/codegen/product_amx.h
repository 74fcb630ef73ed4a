// Products of pairs of bf16 by AMX, where the processor has it and the system lets the process use it: a tile of the
// result, 16 rows of a panel, is summed from tiles of 32 elements of each row and of 16 pairs of rows of the panel.
#pragma once
#include "product.h"

#if defined(__x86_64__) && defined(__linux__) && FG_WIDE == 16 && (defined(__clang__) || __GNUC__ >= 11) && \
    !defined(FG_NO_AMX)
#define FG_AMX 1

namespace fg {

constexpr int64_t AMX_HEIGHT = 16, AMX_DEPTH = 32;  // rows of a tile, and elements of each
constexpr int64_t AMX_ROWS = 128;                   // that read a panel while it is in the first cache
constexpr int64_t AMX_LEAST_ROWS = 3;               // fewer take no longer by vectors

// Asks the system once: it keeps room for the tiles of each thread from then on.
INLINE bool asks_for_amx() {
  uint32_t a, b, c, d;
  asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(0), "c"(0));
  if (a < 7) return false;
  asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  if ((d >> 22 & 1) == 0 || (d >> 24 & 1) == 0) return false;  // products of bf16, tiles
  int64_t answer;
  const int64_t arch_prctl = 158, request = 0x1023, tile_data = 18;
  asm volatile("syscall" : "=a"(answer) : "a"(arch_prctl), "D"(request), "S"(tile_data) : "rcx", "r11", "memory");
  return answer == 0;
}

INLINE bool has_amx() {
  static char known = 0;  // 0: not asked yet
  char found = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (found == 0) {
    found = asks_for_amx() ? 2 : 1;
    __atomic_store_n(&known, found, __ATOMIC_RELAXED);
  }
  return found == 2;
}

#define FG_TILE_LOAD(T, P, STEP) asm volatile("tileloadd (%0,%1,1), %%tmm" #T : : "r"(P), "r"((int64_t)(STEP)) : "memory")
#define FG_TILE_STORE(T, P, STEP) asm volatile("tilestored %%tmm" #T ", (%0,%1,1)" : : "r"(P), "r"((int64_t)(STEP)) : "memory")
#define FG_TILE_MULTIPLY(C, A, B) asm volatile("tdpbf16ps %%tmm" #B ", %%tmm" #A ", %%tmm" #C ::)

// Tiles 0 to 3: of the result, two below two; 4 and 5: of rows; 6 and 7: of panels. One of no rows cannot even be cleared.
INLINE void shape_tiles(int64_t upper, int64_t lower) {
  struct {
    uint8_t palette, start, unused[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape = {1};
  const int64_t rows[8] = {upper, upper, lower, lower, upper, lower, AMX_HEIGHT, AMX_HEIGHT};
  for (int t = 0; t < 8; ++t) shape.rows[t] = (uint8_t)rows[t], shape.bytes[t] = 64;
  asm volatile("ldtilecfg %0" : : "m"(shape) : "memory");
}
INLINE void release_tiles() { asm volatile("tilerelease" ::); }

// shaped: rows of the tiles as they are shaped; x and w: the elements of a depth that fill no tile, filled up with zeros.
struct AmxState {
  int64_t shaped = 0;
  alignas(64) bf16 x[AMX_ROWS * AMX_DEPTH];
  alignas(64) bf16_pair w[2 * AMX_HEIGHT * PANEL];
};

struct AmxFactors {
  const bf16* x;
  int64_t x_row;
  const bf16_pair* w;
  int64_t panel, depth;  // depth: of whole tiles
  Terms terms;
  const bf16* x_rest;    // null if there is none
  const bf16_pair* w_rest;
};

template <int R, int P>
INLINE void multiply_tiles(const bf16* x, int64_t x_row, const bf16_pair* w, int64_t panel) {
  FG_TILE_LOAD(6, w, 64);
  FG_TILE_LOAD(4, x, x_row * 2);
  FG_TILE_MULTIPLY(0, 4, 6);
  if constexpr (P == 2) {
    FG_TILE_LOAD(7, w + panel, 64);
    FG_TILE_MULTIPLY(1, 4, 7);
  }
  if constexpr (R == 2) {
    FG_TILE_LOAD(5, x + AMX_HEIGHT * x_row, x_row * 2);
    FG_TILE_MULTIPLY(2, 5, 6);
    if constexpr (P == 2) FG_TILE_MULTIPLY(3, 5, 7);
  }
}

// R tiles below one another, of P panels, as shape_tiles has them.
template <int R, int P> __attribute__((noinline)) void amx_tile(const AmxFactors& f, float* out, int64_t out_row, bool first) {
  const int64_t step = out_row * 4;
  float* const lower = out + AMX_HEIGHT * out_row;
  if (first) {
    asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" ::);
  } else {
    FG_TILE_LOAD(0, out, step);
    if constexpr (P == 2) FG_TILE_LOAD(1, out + PANEL, step);
    if constexpr (R == 2) FG_TILE_LOAD(2, lower, step);
    if constexpr (R == 2 && P == 2) FG_TILE_LOAD(3, lower + PANEL, step);
  }
  for (int64_t t = 0; t < f.terms.count; ++t) {
    const bf16* const x = f.x + f.terms.x[t];
    const bf16_pair* const w = f.w + t * f.terms.w;
    for (int64_t k = 0; k < f.depth; k += AMX_DEPTH) multiply_tiles<R, P>(x + k, f.x_row, w + k / 2 * PANEL, f.panel);
  }
  if (f.x_rest != nullptr) multiply_tiles<R, P>(f.x_rest, AMX_DEPTH, f.w_rest, AMX_HEIGHT * PANEL);
  FG_TILE_STORE(0, out, step);
  if constexpr (P == 2) FG_TILE_STORE(1, out + PANEL, step);
  if constexpr (R == 2) FG_TILE_STORE(2, lower, step);
  if constexpr (R == 2 && P == 2) FG_TILE_STORE(3, lower + PANEL, step);
}

template <int R>
INLINE void amx_panels(const AmxFactors& f, float* out, int64_t out_row, int64_t rows, int64_t columns, bool first) {
  if (columns >= 2 * PANEL) {
    amx_tile<R, 2>(f, out, out_row, first);
  } else if (columns == PANEL) {
    amx_tile<R, 1>(f, out, out_row, first);
  } else {  // the last panel, of which only some columns are the result's
    alignas(64) float tile[2 * AMX_HEIGHT * PANEL];
    for (int64_t r = 0; r < rows && !first; ++r) {
      for (int64_t c = 0; c < PANEL; ++c) tile[r * PANEL + c] = c < columns ? out[r * out_row + c] : 0;
    }
    amx_tile<R, 1>(f, tile, PANEL, first);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) out[r * out_row + c] = tile[r * PANEL + c];
    }
  }
}

// As product_rows, of rows that pairs of tiles hold, all of one height. The caller releases the tiles. Several terms are of
// whole tiles.
static void amx_rows_alike(int64_t rows, const bf16* x, int64_t x_row, const bf16_pair* w, int64_t panel, float* out,
                           int64_t out_row, int64_t depth, int64_t columns, bool first, AmxState& state, Terms terms) {
  const int64_t whole = depth / AMX_DEPTH * AMX_DEPTH, left = depth - whole;
  const int64_t high = min(2 * AMX_HEIGHT, rows);
  if (state.shaped != high) shape_tiles(min(AMX_HEIGHT, high), max(high - AMX_HEIGHT, (int64_t)1)), state.shaped = high;
  for (int64_t r0 = 0; r0 < rows; r0 += AMX_ROWS) {
    const int64_t here = min(AMX_ROWS, rows - r0);
    for (int64_t r = 0; left > 0 && r < here; ++r) {
      bf16* const to = state.x + r * AMX_DEPTH;
      __builtin_memset(to + left, 0, (AMX_DEPTH - left) * sizeof(bf16));
      __builtin_memcpy(to, x + (r0 + r) * x_row + whole, left * sizeof(bf16));
    }
    for (int64_t c = 0, next; c < columns; c += next) {
      const int64_t wide = columns - c;
      next = wide >= 2 * PANEL ? 2 * PANEL : PANEL;
      const bf16_pair* const from = w + c / PANEL * panel;
      for (int64_t p = 0; left > 0 && p < next / PANEL; ++p) {
        const int64_t pairs = (left + 1) / 2 * PANEL;
        bf16_pair* const to = state.w + p * AMX_HEIGHT * PANEL;
        __builtin_memset(to + pairs, 0, (AMX_HEIGHT * PANEL - pairs) * sizeof(bf16_pair));
        __builtin_memcpy(to, from + p * panel + whole / 2 * PANEL, pairs * sizeof(bf16_pair));
      }
      for (int64_t r = 0; r < here; r += 2 * AMX_HEIGHT) {
        const bf16* const x_rest = left > 0 ? state.x + r * AMX_DEPTH : nullptr;
        const AmxFactors f = {x + (r0 + r) * x_row, x_row, from, panel, whole, terms, x_rest, state.w};
        float* const to = out + (r0 + r) * out_row + c;
        if (high > AMX_HEIGHT) amx_panels<2>(f, to, out_row, high, min(next, wide), first);
        else amx_panels<1>(f, to, out_row, high, min(next, wide), first);
      }
    }
  }
}

static void amx_rows(int64_t rows, const bf16* x, int64_t x_row, const bf16_pair* w, int64_t panel, float* out,
                     int64_t out_row, int64_t depth, int64_t columns, bool first, AmxState& state,
                     Terms terms = ONCE) {
  const int64_t whole = rows / (2 * AMX_HEIGHT) * (2 * AMX_HEIGHT), left = rows - whole;
  if (whole > 0) amx_rows_alike(whole, x, x_row, w, panel, out, out_row, depth, columns, first, state, terms);
  if (left > 0) {
    amx_rows_alike(left, x + whole * x_row, x_row, w, panel, out + whole * out_row, out_row, depth, columns, first, state,
                   terms);
  }
}

}  // namespace fg
#endif
