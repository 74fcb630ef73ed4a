// The kernels for any processor: vectors of 16 bytes.
#define ISA plain
#define BYTES 16
#include "steps.h"
