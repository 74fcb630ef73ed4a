"""Running compiled graphs: the plan and its executor, the host compiler, the cache on disk."""

import torch  # noqa: F401  loads the libraries that _plan is linked against
