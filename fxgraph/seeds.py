"""The operator that seeds torch's generators inside of a graph, between the draws around it."""

from __future__ import annotations

import torch

_library = torch.library.Library("framegraph", "FRAGMENT")
_library.define("manual_seed(SymInt seed) -> ()", tags=(torch.Tag.nondeterministic_seeded,))


def _seed(seed: int) -> None:
    torch.random.manual_seed(seed)


_library.impl("manual_seed", _seed, "CompositeExplicitAutograd")
torch.library.register_fake("framegraph::manual_seed", lambda seed: None, lib=_library)
manual_seed = torch.ops.framegraph.manual_seed.default
