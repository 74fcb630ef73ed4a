"""Minimum cuts against all cuts of small random networks."""

from __future__ import annotations

import random
from itertools import product

import pytest

from fxgraph.aot.min_cut import INFINITE, Network


def every_cut(size, arcs):
    """(capacity, nodes on the sink's side) of each cut between node 0 and node 1."""
    for sides in product((False, True), repeat=size - 2):
        late = [False, True, *sides]
        capacity = sum(c for tail, head, c in arcs if late[head] and not late[tail])
        yield capacity, {node for node in range(size) if late[node]}


@pytest.mark.parametrize("seed", range(40))
def test_of_the_least_cuts_the_nearest_to_the_sink(seed):
    draw = random.Random(seed)
    size = draw.randint(3, 8)
    capacities = [1, 2, 3, 5, INFINITE]
    arcs = [
        (draw.randrange(size), draw.randrange(size), draw.choice(capacities))
        for _ in range(draw.randint(2, 20))
    ]
    arcs = [(tail, head, c) for tail, head, c in arcs if tail != head]
    network = Network()
    for _ in range(size):
        network.add_node()
    for arc in arcs:
        network.add_arc(*arc)
    least = min(capacity for capacity, _ in every_cut(size, arcs))
    if least == INFINITE:
        with pytest.raises(ValueError, match="no finite cut"):
            network.late_side(0, 1)
        return
    late = [nodes for capacity, nodes in every_cut(size, arcs) if capacity == least]
    assert network.late_side(0, 1) == min(late, key=len)
