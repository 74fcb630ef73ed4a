"""Runs in a fresh process that has neither the tests nor their packages: loads programs, repeats
calls and prints, as JSON, what differs.

    python saved_reader.py FOLDER BACKEND BLOCKED...
"""

import json
import sys
from pathlib import Path


class Blocked:
    """A finder of modules that finds none of these."""

    def __init__(self, names):
        self.names = tuple(names)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ImportError(f"{name} is blocked")
        return None


def leaves(value):
    """Tensors and numbers, in order, whatever holds them."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def difference(torch, actual, expected):
    ours, theirs = leaves(actual), leaves(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} leaves instead of {len(theirs)}"
    for number, (one, other) in enumerate(zip(ours, theirs)):
        if type(one) is not type(other):
            return f"leaf {number}: {type(one)} instead of {type(other)}"
        if not isinstance(one, torch.Tensor):
            if one != other:
                return f"leaf {number}: {one} instead of {other}"
            continue
        about = [(t.dtype, tuple(t.shape), t.stride(), t.requires_grad) for t in (one, other)]
        if about[0] != about[1]:
            return f"leaf {number}: {about[0]} instead of {about[1]}"
        rtol, atol = 1e-4, 1e-5  # float32 rounding: other kernels
        if not torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True):
            return f"leaf {number}: off by {(one - other).abs().max().item()}"
    return None


def repeat(torch, dynamo, path, backend):
    call = torch.load(path.with_suffix(".call"), weights_only=False)
    program = dynamo.load(path, backend=backend)
    torch.manual_seed(1)
    args, kwargs = call["args"], call["kwargs"]
    with torch.set_grad_enabled(call["grad"]):
        result = program(*args, **kwargs)
    found = difference(torch, result, call["result"])
    found = found or difference(torch, [args, kwargs], call["after"])
    if call["gradients"] is not None:
        sum(
            leaf.sum() for leaf in leaves(result) if getattr(leaf, "requires_grad", False)
        ).backward()
        gradients = {name: p.grad for name, p in program.named_parameters()}
        names = list(call["gradients"])
        found = found or difference(
            torch, [gradients.get(name) for name in names], list(call["gradients"].values())
        )
    state = program.state_dict()
    return found or difference(
        torch, [state.get(n, t) for n, t in call["state"].items()], list(call["state"].values())
    )


def main():
    folder, backend, *blocked = sys.argv[1:]
    sys.meta_path.insert(0, Blocked(blocked))
    import torch

    import dynamo

    torch.set_num_threads(1)
    found = {}
    for path in sorted(Path(folder).glob("*.fg")):
        try:
            found[path.stem] = repeat(torch, dynamo, path, backend)
        except Exception as error:
            found[path.stem] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


main()
