"""What a check says of sizes holds behind it: no kernel that relies on one runs before, and no
memory is read beyond a tensor's end.
"""

from __future__ import annotations

import ctypes
import mmap
import operator
import sys

import pytest
import torch

import dynamo
from fxgraph.aot.early_checks import check_early
from fxgraph.graph import Graph
from tests.children import run_script

BOTH = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
NUMBERS = (3, 0, 1, 4, 8, 9, -1, -3, -100, 4096, 2_000_000, -2_000_000, 2**62, 2**63 - 1, -(2**63))


def bounded_later(x, n):
    k = n.item()
    y = x[:, :k].exp()
    z = y.sum(1)
    torch._check(k >= 0)
    torch._check(k <= x.shape[1])
    return y, z, x[:, :k] * 2


def added_to_a_range(x, n):
    k = n.item()
    y = x[:, :k] * 2
    z = y.sum(1)
    return y + torch.arange(k), z


def added_to_a_tail(x, n):
    y = x.flatten()[n.item() :]
    z = y.softmax(0)
    return y * 2 + torch.arange(n.item()), z


def equal_later(x, n):
    k = n.item()
    y = x[:k].exp()
    z = torch.softmax(y, 0)
    torch._check(k == 4096)
    return y + z


def tail_of_a_size(x, n):
    y = x[n.item() :].exp()
    z = torch.softmax(y, 0)
    return y + torch.ones(3, 8), z


def both_ends_later(x, n):
    k, last = n.item(), n.item() + 2
    y = x[:, k:].exp()
    z = y.sum(0)
    torch._check((k >= 0) & (k <= last))
    torch._check(last <= x.shape[1])
    return z, x[:, k:last] + 1


PROGRAMS = [
    bounded_later, added_to_a_range, added_to_a_tail, equal_later, tail_of_a_size, both_ends_later
]  # fmt: skip


def outcome(function, x, n):
    try:
        result = function(x, torch.tensor(n))
    except Exception as error:
        return type(error)
    return result if isinstance(result, tuple) else (result,)


def same(one, other):
    if isinstance(one, type) or isinstance(other, type):
        assert one is other
        return
    for expected, got in zip(one, other, strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


def between_guards(values):
    """A tensor with these values, behind whose last element there is no memory to be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    page, nbytes = mmap.PAGESIZE, values.numel() * values.element_size()
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = libc.mmap(None, 3 * page, mmap.PROT_READ | mmap.PROT_WRITE, private, -1, 0)
    assert libc.mprotect(base, page, 0) == libc.mprotect(base + 2 * page, page, 0) == 0
    memory = (ctypes.c_char * nbytes).from_address(base + 2 * page - nbytes)
    made = torch.frombuffer(memory, dtype=values.dtype).view(values.shape)
    return made.copy_(values)


def run_between_guards():
    for function in PROGRAMS:
        for grad in (False, True):
            compiled = dynamo.compile(function)
            for n in NUMBERS:
                x = between_guards(torch.linspace(-1, 1, 32).view(4, 8)).requires_grad_(grad)
                same(outcome(function, x, n), outcome(compiled, x, n))


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux's calls")
def test_nothing_beyond_a_tensor_is_read():
    """In a process of its own, which a wrong read ends."""
    code = (
        "import warnings; warnings.simplefilter('ignore'); import dynamo\n"
        "from tests.inductor.test_checked_sizes import BOTH, run_between_guards\n"
        "with dynamo.config.patch(**BOTH): run_between_guards()"
    )
    found = run_script(code)
    assert found.returncode == 0, found.stderr[-2000:]


def kept(x, lengths):
    n = lengths.max().item()
    return x[:, :n] * (torch.arange(n) < lengths[:, None])


def from_behind(x, lengths):
    n = lengths.min().item()
    return x[:, n:].exp().sum(1) + x[:, -n:].sum(1)


def steps(x, lengths):
    return x[:, lengths.min().item() :: 3].cos()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", [kept, from_behind, steps], ids=lambda f: f.__name__)
def test_slices_are_generated(function, grad):
    with dynamo.config.patch(**BOTH):
        compiled = dynamo.compile(function, fullgraph=True)
        for numbers in ([2, 5, 1, 8], [0, 0, 0, 0], [8, 8, 8, 8], [1, 1, 1, 1], [9, 9, 9, 2]):
            found = []
            for run in (function, compiled):
                x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_(grad)
                results = outcome(lambda x, n, run=run: run(x, n), x, numbers)
                if grad and not isinstance(results, type):
                    sum(t.sum() for t in results).backward()
                    results = (*(t.detach() for t in results), x.grad)
                found.append(results)
            same(*found)
        (record,) = compiled.context.records
        report = record.graphs[0].report
    assert [n for n in report["notes"] if "operator by operator" in n or "op by op" in n] == []
    assert "slice.Tensor" not in report["fallback_ops"]


def test_checks_stand_where_their_numbers_are_known():
    aten, graph = torch.ops.aten, Graph()
    t, x = graph.placeholder("t"), graph.placeholder("x")
    item = graph.call_function(aten._local_scalar_dense.default, (t,))
    exp = graph.call_function(aten.exp.default, (x,))
    double = graph.call_function(operator.mul, (item, 2))
    le = graph.call_function(operator.le, (double, 8))
    check = graph.call_function(aten._assert_scalar.default, (le, "no"))
    graph.output((exp,))
    for node in (t, x, exp):
        node.meta["val"] = torch.ones(2, device="meta")
    check_early(graph)
    assert [n for n in graph.nodes if n.op != "output"] == [t, x, item, double, le, check, exp]
