// Linked into every extension that uses torch: the torch that it was built against. fxgraph/extensions.py reads the text
// from the file, before the file is loaded.
#include <torch/version.h>

extern "C" __attribute__((used, visibility("default"))) const char framegraph_torch_version[];
const char framegraph_torch_version[] = "framegraph, built against torch " TORCH_VERSION;
