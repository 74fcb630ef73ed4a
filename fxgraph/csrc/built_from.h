// Included by one file of every extension that uses torch: the torch that the extension was built against, and a hash
// of its sources. fxgraph/extensions.py reads the texts from the extension's file before loading it.
#pragma once

#include <torch/version.h>

__attribute__((used)) static const char framegraph_torch_version[] = "framegraph, built against torch " TORCH_VERSION;
__attribute__((used)) static const char framegraph_sources[] = "framegraph, built from sources " FRAMEGRAPH_SOURCES;
