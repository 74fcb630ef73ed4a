"""Operators that seed torch's generators, and read and write the state of the CPU's, inside of a
graph, between the draws around them.
"""

from __future__ import annotations

import torch

_library = torch.library.Library("framegraph", "FRAGMENT")
_ORDERED = (torch.Tag.nondeterministic_seeded,)
_library.define("manual_seed(SymInt seed) -> ()", tags=_ORDERED)
_library.define("get_rng_state() -> Tensor", tags=_ORDERED)
_library.define("set_rng_state(Tensor state) -> ()", tags=_ORDERED)


def _seed(seed: int) -> None:
    torch.random.manual_seed(seed)


def _empty_state() -> torch.Tensor:
    return torch.empty(RNG_STATE_SIZE, dtype=torch.uint8)


RNG_STATE_SIZE = torch.get_rng_state().numel()
_DISPATCH = "CompositeExplicitAutograd"
_library.impl("manual_seed", _seed, _DISPATCH)
_library.impl("get_rng_state", torch.get_rng_state, _DISPATCH)
_library.impl("set_rng_state", torch.set_rng_state, _DISPATCH)
torch.library.register_fake("framegraph::manual_seed", lambda seed: None, lib=_library)
torch.library.register_fake("framegraph::get_rng_state", _empty_state, lib=_library)
torch.library.register_fake("framegraph::set_rng_state", lambda state: None, lib=_library)
manual_seed = torch.ops.framegraph.manual_seed.default
get_rng_state = torch.ops.framegraph.get_rng_state.default
set_rng_state = torch.ops.framegraph.set_rng_state.default
