// Included by one file of every extension that uses torch: the torch that the extension was built against.
// fxgraph/extensions.py reads the text from the extension's file before loading it.
#pragma once

#include <torch/version.h>

extern "C" __attribute__((used, visibility("default"))) const char framegraph_torch_version[];
const char framegraph_torch_version[] = "framegraph, built against torch " TORCH_VERSION;
