/* Saved programs without Python: load a file of dynamo.export(...).save(path, standalone=True), run it on DLPack
 * tensors. C and C++; needs no compiler at run time, and no torch but for files of standalone="libtorch"
 * (libtorch/framegraph_libtorch.h).
 *
 *     fg_program* program = fg_load("m.fg", NULL);
 *     DLTensor* inputs[] = {&x};
 *     DLManagedTensor* results[1];
 *     if (program == NULL || fg_run(program, inputs, 1, results, 1) != 0) puts(fg_error());
 *     ...
 *     results[0]->deleter(results[0]);
 *     fg_free(program);
 *
 * A file holds machine code, which fg_load loads into the process: load the files of those whom you trust. Hashes find
 * files that are damaged, not files that are forged.
 */
#ifndef FRAMEGRAPH_RUNNER_H
#define FRAMEGRAPH_RUNNER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack, as https://dmlc.github.io/dlpack defines it; a dlpack.h that is included first takes its place. */
#ifndef DLPACK_DLPACK_H_
typedef struct {
  int32_t device_type; /* 1: CPU memory, the only one here */
  int32_t device_id;
} DLDevice;

typedef struct {
  uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: contiguous */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
#endif

typedef struct fg_program fg_program;
typedef struct fg_operators fg_operators;

typedef struct {
  size_t size; /* sizeof(fg_options) */
  int threads; /* that one kernel may use, the caller's among them; 0 or 1: the caller's alone */
  const fg_operators* operators; /* those of a library: fg_libtorch(), which has threads of its own; NULL: none */
} fg_options;

/* The program in a file; NULL if it cannot be loaded. options: NULL for the defaults. */
fg_program* fg_load(const char* path, const fg_options* options);

/* Runs the program: 0, or -1 and no results. Any number of threads may run one program at once.
 *
 * inputs: the tensors among the arguments, in the order of the function's parameters; a number is an int64 tensor of no
 * dimensions. They are read where they lie, unless the program writes them as its Python original does.
 * results: gets a tensor for each, in memory of its own, which stays valid after fg_free. The caller ends its life with
 * its deleter. Results that share memory in Python do so here, but none shares that of an input or of a weight. */
int fg_run(const fg_program* program, DLTensor* const* inputs, int input_count, DLManagedTensor** results,
           int result_count);

/* What the last call that failed in this thread has to say; never NULL. */
const char* fg_error(void);

/* Of NULL, too. No thread may be running the program. */
void fg_free(fg_program* program);

int fg_input_count(const fg_program* program);
int fg_result_count(const fg_program* program);

/* The place in the arguments or in the result, such as "x" or "[0]"; NULL for an index out of range. */
const char* fg_input_name(const fg_program* program, int index);
const char* fg_result_name(const fg_program* program, int index);

#ifdef __cplusplus
}
#endif

#endif
