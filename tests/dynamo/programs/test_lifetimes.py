"""When objects end (programs/lifetimes), also while a graph runs, and with fullgraph=True."""

import weakref

import pytest
import torch

import dynamo
from tests.dynamo.programs import all_programs

test_program = all_programs("lifetimes")


class Node:
    pass


def test_what_a_reference_leads_to_is_loaded_by_a_way_that_stays():
    """A member leaves its set while the graph runs, and its callback was seen there first."""

    def gone(ref):
        node.refs.discard(ref)

    def ends(graph_module, inputs):
        def graph(*args):
            held.clear()
            return graph_module(*args)

        return graph

    @dynamo.compile(backend=ends)
    def add(x, other, node):
        node.refs.add(weakref.ref(other, node.gone))
        return x + 1

    held, node, other = [Node()], Node(), Node()
    node.refs, node.gone = {weakref.ref(held[0], gone)}, gone
    assert add(torch.ones(1), other, node).tolist() == [2.0]
    (left,) = node.refs
    assert left() is other and left.__callback__ is gone


class Noticed:
    def __del__(self):
        pass


class Holder:
    held = None


@pytest.mark.parametrize("noticed", [False, True])
def test_with_fullgraph_what_ends_noticed_is_an_error(noticed):
    holder = Holder()

    @dynamo.compile(backend="eager", fullgraph=True)
    def overwrites(x):
        y = x + 1
        holder.held = None
        return y * 2

    holder.held = [1]
    overwrites(torch.ones(2))
    holder.held = Noticed() if noticed else [2]
    if noticed:
        with pytest.raises(dynamo.errors.Unsupported):
            overwrites(torch.ones(2))
    else:
        overwrites(torch.ones(2))
