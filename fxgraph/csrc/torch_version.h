// Included by one file of every extension that uses torch: the torch that the extension was built against.
// fxgraph/extensions.py reads the text from the extension's file before loading it.
#pragma once

#include <torch/version.h>

__attribute__((used)) static const char framegraph_torch_version[] = "framegraph, built against torch " TORCH_VERSION;
