#include "attention_tiles.h"

namespace fg {

template void attention<float>(const Attention<float>&, int64_t, int64_t);

}  // namespace fg
