#include "attention_tiles.h"

namespace fg {

template void attention<bf16>(const Attention<bf16>&, int64_t, int64_t);

}  // namespace fg
