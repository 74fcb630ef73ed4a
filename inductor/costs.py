"""The costs by which code for CPUs is fused, recomputed, tiled, split over threads and chosen.

Every constant that stands for a time, an amount of work or of memory is here, with what it was
measured by; sizes that kernels are written for (tiles, panels, lanes, rooms on the stack) stand
beside the code that has them. Costs are counted in

    work         elementary operations of one element, as kernels execute them in vectors: of a
                 value (`work` of inductor.ir.Tensor), of a loop, of a unit of a kernel
    reads        elements read for one element
    bytes        of memory that is moved or held
    rows, tiles  where the cost of a block is all that matters
    a share      of a time measured on this machine (measure.py), the limit for another way

Elsewhere: what is saved for a backward costs its bytes, and what is computed by element may be
computed again for it (fxgraph/aot/partition.py); the peaks of GPUs and what follows from them are
in devices.py and in the modules that are of GPUs alone; the steps of recurrent layers in
fxgraph/aot/csrc/recurrent/layer.cpp; one library's LSTM in fxgraph/aot/onednn_recurrent.py.

Each line names what it was measured with, by `python -m benchmarks.operators`, `benchmarks.peers`
or a sweep of the constant; "chosen" is one of those that no measurement has decided.
"""

from __future__ import annotations

import os
import sys

# --- work of one element --------------------------------------------------------------------------

# Arithmetic; division and square roots; transcendental functions; powers and their like. What each
# adds to a kernel of 65536 elements from the second cache, Zen 4 with AVX2, one thread, in
# kernels of one addition (0.12 ns of an element): another addition 0, division 0.3, square root
# 1.0, reciprocal root 2.2, erf, tanh, exp, sin and cos 2.9 to 3.8, sigmoid 5, log 5.9, log1p, expm1
# and asin 8 to 10, log2 12, erfc and hypot 15, sinh 20, atan2 23, acosh 34, powers 46, lgamma 71,
# digamma 200. (Chains of 16 in registers, each waiting for the one before, are no such measure: exp
# 1.6 to 2.7 ns.)
CHEAP, MEDIUM, HEAVY, HEAVIEST = 1, 3, 6, 40
# Multiplications of a product that take the time of one elementary operation: an instruction has a
# product and a sum, with loads in its shadow. Products of pairs by AMX do so many times as many
# (resnet18 in bfloat16: 1.56 times torch.compile, 0.88 before).
MULTIPLICATIONS = 2
PAIRS_FASTER = 8

# --- recomputing and fusing -----------------------------------------------------------------------

# A lazy value that costs more than this for one element is put in memory instead of being inlined
# further (chosen); scores of attention without memory take so many times as much.
MAX_WORK, MAX_READS = 64, 10
SCORES_SHARE = 4
# A lazy value with several readers is computed again by each only if it costs no more than this:
# about what an element takes to be stored and loaded.
TRIVIAL_WORK, TRIVIAL_READS = 4, 1
# A generated product that several operators read rounded is rounded first from this size on; of
# smaller ones, in the cache, each reader rounds what it reads (16x768 a step of a GRU in bfloat16:
# 1408 us a call, 1524 rounded first).
NARROWED_BYTES = 1 << 19
# An element of a result is worth this many elements of an operand that is computed for each of
# them, before computing it again matters (gradients of norms of 2048x1024, which wrote rows between
# their kernels).
BROADCAST_FACTOR = 8
# Of an attention mask, if it is larger and cheaper than this, each head computes its part (8 heads
# of 2048 keys, two threads of Emerald Rapids: a sliding window 11 ms, in eager 437); and rows of no
# less than so many keys, since each is a call (swin, windows of 49 keys: 30.6 ms, 18.6 with the
# mask read from memory).
MASK_BYTES, MASK_WORK = 1 << 20, 24
LEAST_KEYS = 256
# Of one kernel (chosen): beyond it the compiler takes longer than a pass over memory that is saved.
MAX_STEPS, MAX_VALUES = 48, 600
# The same of a loop that is cut where comparisons change (chosen): pieces, and values of the body.
MOST_CUTS, MOST_CUT_VALUES = 3, 64
# A kernel of rows runs its rows in parallel. Below this many rows, work this large, half of what is
# worth a thread's while, is not moved into it.
FEW_ROWS, SMALL_WORK = 8, 32768
# The early results of a kernel wait in memory for their readers. A step that comes after this many
# operators more than the kernel joins it only if it makes few bytes (peak memory of training).
NEAR_CALLS, FEW_BYTES = 2, 1 << 16
# Elements of a gradient that sum more terms than this, or inputs that are part of more results in
# one dimension, stay with aten (chosen).
MAX_TERMS, MAX_SPREAD = 27, 16
# A single row of more positions than this is as fast in aten, and faster the longer (sums into
# one row).
LONG_SERIAL = 1 << 15
# A table of half type with more than as many rows for each look is summed apart (peak of a step in
# bfloat16, MiB: bert 60 and 16, gpt2 80 and 16).
FEW_LOOKS = 2

# --- threads --------------------------------------------------------------------------------------

# Work that is worth a thread's while: so many elements of a kernel of one addition, from the second
# cache, take 7.3 us of one core (Zen 4 with AVX2), about what threads take to wake up and to meet;
# less has no team. One thread and two, us: x + 1 of 4096 1.9 and 3.9, of 65536 7.8 and 8.2; exp of
# 8192 6.2 and 7.8, of 16384 11.5 and 8.9; x ** 1.7 of 32768 188 and 99.
GRAIN_WORK = 65536
# The same in steps of loops: that kernel has four (load, constant, addition, store). A unit of
# HEAVY takes as long as so many; without vectors, or where elements are gathered, all take so many
# times as long.
GRAIN_STEPS = 4 * GRAIN_WORK
STEPS_OF_WORK, STEPS_ALONE = 3, 4
# Units of products for each thread, at least: threads finish at about the same time. Where units
# are fewer, uneven shares may take so many times as long. Of attention, whose units read all keys,
# fewer (chosen).
UNITS = 8
UNEVEN = 1.3
ATTENTION_UNITS = 2
# A reduction to fewer results than this, of more elements than that, is done in two steps, the
# first of so many pieces, to use all cores: as much work as is a thread's while (GRAIN_WORK).
FEW_RESULTS, MANY_ELEMENTS, PIECES = 4, 1 << 16, 64
# Kernels that touch less than this together are over before another thread could use the GIL: a
# switch takes some 5 us.
GIL_BYTES = 1 << 18

# --- tiling ---------------------------------------------------------------------------------------

# Columns that are reduced together where all are read row by row, the least number of them, and of
# elements (Zen 3, one thread: 1.3 times as fast at 2 MB, 2.9 times at 16 MB).
STREAM, STREAMED_COLUMNS, STREAMED = 1024, 256, 1 << 18
# Where several passes over columns are one kernel, columns are at least this long, and bodies at
# most so (batch norm of 2048x1024: 1.75 ms, 4.85 before).
LONG_COLUMN, GROUPED_VALUES = 32, 64
# Pixels of windows by pairs, of fewer of which products take no less time.
FEW_PIXELS = 32
# Tiles of a unit of Winograd's windows, of fewer of which reading the weight is too much.
FEW_TILES = 6
# Queries of all heads of a group, of fewer of which keys in panels do not pay (Zen 5, one
# thread, us: 12 heads 1x128x64 12, the library 20; 32 heads on 8, 1x1024x128 203, 513).
FEW_QUERIES = 8

# --- layouts and copies ---------------------------------------------------------------------------

# Elements of images that no longer lie in a core's own cache: the library's reorders are faster
# than copies then (layers of 112x112, Zen 4 with AVX2, eager's time over ours: 5x5 0.81 and 1.00,
# 1x1 0.75 and 0.94).
LARGE_IMAGES = 1 << 18
# Values besides weights are derived and kept if they have so many bytes, and at most so many more
# than their sources (chosen).
DERIVED_BYTES, DERIVED_SPARE = 1 << 14, 1 << 16
# The share of the machine's memory that copies of weights may take in one graph: those of products
# are as large as the weights or twice as large (chosen).
WEIGHTS_SHARE = 1 / 8


def room_for_copies() -> int:
    """Bytes that copies of weights may take in one graph."""
    try:
        return int(WEIGHTS_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not of this system
        return sys.maxsize


# --- choices by measurement -----------------------------------------------------------------------

# Multiplications of a product: below the first the call of a library costs more than the work;
# above the second, some ms of one thread, a smaller product is measured in its place, unless
# everything is to be measured.
LEAST_PRODUCT, LARGEST_PRODUCT = 1 << 20, 1 << 26
# Where there is no time to measure, generated products are taken up to these rows; for more of
# them, unless another was the fastest for most of the graph's that were measured.
UNMEASURED_ROWS = 48
# Rows up to which products of one matrix by several weights are one without a measurement, where
# there are several threads (benchmarks.joint, Zen 4 with AVX2, two threads: float32 1.05 to 1.4 up
# to 8 rows, bfloat16 0.97 to 1.21 for 2 to 8, and 0.7 to 1.2 for 16 and 32).
JOINT_ROWS = 8
# Tiles from which on Winograd's windows are ahead unmeasured: weights are read less often than
# multiplied (Zen 5). In training, of fewer the weight's transform takes as long as it saves
# (512x4x4 -> 512: 2.67 ms of 2.14 by the library).
MANY_TILES, TRAINED_TILES = 24, 24
# Queries of half precision for which generated attention is tried: copies of all keys are too much
# for fewer.
LEAST_QUERIES = 16
# Elements of an operand: with fewer in all of them an operator of half precision stays as it is.
WIDENED_ELEMENTS = 1 << 10
# Of the first candidate's time, the limit for another to be chosen. Generated products: readers of
# the result join them, which no measurement has; less for a sample of another size. Where nothing
# but time is at stake: about the spread of repeated measurements. Training's convolutions and
# operators in float32 bring copies with them.
PRODUCT_AHEAD, SAMPLE_AHEAD = 0.92, 0.8
LIBRARY_AHEAD = 0.96
JOINT_AHEAD = 0.98
# Of the time of a product that writes where the plan says, the limit for one with memory of its own
# (peak of a step of an LSTM in float32, MiB, eager 21 to 22: all products of the one kind 13.1, of
# the other 21.5).
PLANNED_MEMORY = 0.9
TRAINED_AHEAD = 0.85
FLOAT32_AHEAD = 0.8
HALF_ATTENTION_AHEAD = 0.8
# Seconds of measuring: products of a graph; windows of a graph; training's windows, once for a
# machine; operators of half precision of a graph, of which a kind takes about 10 ms, once for all;
# attention of half precision, once for all.
PRODUCT_SECONDS = 0.05
WINDOW_SECONDS = 0.05
TRAINED_SECONDS = 0.1
WIDEN_SECONDS = 0.25
ATTENTION_SECONDS = 0.05
