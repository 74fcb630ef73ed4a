// softmax(q k^T scale + mask) v, for each head of each sequence. Defined in attention.cpp, which is compiled once for a
// machine.
#pragma once
#include "product.h"

namespace fg {

constexpr int64_t QUERIES = 48;        // of a block: whole tiles of every processor
constexpr int64_t MOST_QUERIES = 60;   // of the last block: no few are left to another one
constexpr int64_t UNIT_QUERIES = 768;  // of a unit of work, at most
constexpr int64_t HEAD = 128;          // elements of a head, at most
constexpr int64_t TOGETHER = 4;        // few queries that read keys and values together

struct Attention {
  const float *q, *k, *v, *mask;  // mask: null if there is none
  float* out;
  int64_t heads, group, queries, keys, size;  // group: heads for each one of keys; size: elements of a head
  int64_t q_step[3], k_step[3], v_step[3], out_step[3];  // of a sequence, a head, a row
  int64_t mask_step[4];                                  // and of a key
  int64_t unit_queries;  // 0: those of all heads of a group
  float scale;
  bool causal;
};

// Units [begin, end): of each head of each sequence, blocks of unit_queries queries; or of each group of heads, which is for
// few queries.
INTERNAL void attention(const Attention& a, int64_t begin, int64_t end);

}  // namespace fg
