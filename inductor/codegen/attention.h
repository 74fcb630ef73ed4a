// softmax(q k^T scale + mask) v, for each head of each sequence, of float or of bf16. Defined in attention_tiles.h, which is
// compiled once for a machine, for each type.
#pragma once
#include "product.h"

namespace fg {

template <class T> constexpr int64_t QUERIES = 48;            // of a block: whole tiles of every processor
template <> constexpr int64_t QUERIES<bf16> = 64;
template <class T> constexpr int64_t MOST_QUERIES = 60;       // of the last block: no few are left to another one
template <> constexpr int64_t MOST_QUERIES<bf16> = 80;
template <class T> constexpr int64_t UNIT_QUERIES = 768;      // of a unit of work, at most
template <> constexpr int64_t UNIT_QUERIES<bf16> = 256;
constexpr int64_t HEAD = 128;          // elements of a head, at most
constexpr int64_t TOGETHER = 4;        // few queries that read keys and values together

// A generated function over a row of scores, those of one query with keys that follow one another: it reads and writes a
// tensor of all scores at positions [begin, end), of which only the row is in memory. `slot`: that tensor among its
// pointers.
struct RowFunction {
  void (*run)(void* const*, int64_t, int64_t, const int64_t*);
  void* const* pointers;
  const int64_t* sizes;
  int count, slot;
};
constexpr int MOST_POINTERS = 32;  // of a function

template <class T> struct Attention {
  const T *q, *k, *v;
  const float* mask;  // null if there is none
  T* out;
  int64_t heads, group, queries, keys, size;  // group: heads for each one of keys; size: elements of a head
  int64_t q_step[3], k_step[3], v_step[3], out_step[3];  // of a sequence, a head, a row
  int64_t mask_step[4];                                  // and of a key
  int64_t unit_queries;  // 0: those of all heads of a group
  float scale;
  bool causal;
  RowFunction scores;   // in place of scale and mask, if there is one
  RowFunction visible;  // writes, for each key, whether its weight may be other than 0 (bool); perhaps there is none
  float bound;          // the largest factor of the scores, before the mask is added
  bool alike;           // the same keys are visible to all heads
  bool exact;           // an invisible key stays so whatever its score, NaN too
  bool nothing_is_nan;  // a query that sees no key has NaN as its result, not 0
};

// Units [begin, end): of each head of each sequence, blocks of unit_queries queries; or of each group of heads, which is for
// few queries.
template <class T> INTERNAL void attention(const Attention<T>& a, int64_t begin, int64_t end);

}  // namespace fg
