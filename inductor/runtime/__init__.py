"""Running compiled graphs: the plan and its executor, the host compiler, the cache on disk."""

from fxgraph.extensions import require

require("inductor.runtime._plan")
