"""Minimum cuts of directed networks (Dinic's algorithm)."""

from __future__ import annotations

from collections import deque

INFINITE = float("inf")


class Network:
    """Nodes are numbers from 0; arcs have capacities.

    The graphs to partition are wide and shallow: almost all nodes are next to the source or the
    sink, so that a few phases find the flow.
    """

    def __init__(self) -> None:
        self.arcs: list[list[int]] = []  # by node: the arcs that leave it, residual ones too
        self.head: list[int] = []  # by arc; arc ^ 1 is its reverse
        self.room: list[float] = []

    def add_node(self) -> int:
        self.arcs.append([])
        return len(self.arcs) - 1

    def add_arc(self, tail: int, head: int, capacity: float) -> None:
        for a, b, room in ((tail, head, capacity), (head, tail, 0.0)):
            self.arcs[a].append(len(self.head))
            self.head.append(b)
            self.room.append(room)

    def late_side(self, source: int, sink: int) -> set[int]:
        """Of the minimum cuts the one nearest to the sink: the nodes on the sink's side.

        Raises ValueError if no cut is finite.
        """
        while True:
            levels = self._levels(source, sink)
            if levels[sink] < 0:
                break
            places = [0] * len(self.arcs)
            while (pushed := self._push(source, sink, levels, places)) > 0:
                if pushed == INFINITE:
                    raise ValueError("no finite cut")
        return self._reaching(sink)

    def _levels(self, source: int, sink: int) -> list[int]:
        """By node: its distance from the source along arcs with room, -1 if there is no way."""
        levels = [-1] * len(self.arcs)
        levels[source] = 0
        todo = deque([source])
        while todo and levels[sink] < 0:
            node = todo.popleft()
            for arc in self.arcs[node]:
                if self.room[arc] > 0 and levels[self.head[arc]] < 0:
                    levels[self.head[arc]] = levels[node] + 1
                    todo.append(self.head[arc])
        return levels

    def _push(self, source: int, sink: int, levels: list[int], places: list[int]) -> float:
        """Sends flow along one shortest way; how much. `places`: arcs that are known to be dead."""
        way: list[int] = []
        node = source
        while node != sink:
            arcs = self.arcs[node]
            while places[node] < len(arcs):
                arc = arcs[places[node]]
                if self.room[arc] > 0 and levels[self.head[arc]] == levels[node] + 1:
                    way.append(arc)
                    node = self.head[arc]
                    break
                places[node] += 1
            else:
                if not way:
                    return 0.0
                node = self.head[way.pop() ^ 1]
                places[node] += 1
        amount = min(self.room[arc] for arc in way)
        for arc in way:
            self.room[arc] -= amount
            self.room[arc ^ 1] += amount
        return amount

    def _reaching(self, sink: int) -> set[int]:
        """The nodes with a way to the sink along arcs with room."""
        found = {sink}
        todo = [sink]
        while todo:
            for arc in self.arcs[todo.pop()]:
                tail = self.head[arc]
                if tail not in found and self.room[arc ^ 1] > 0:
                    found.add(tail)
                    todo.append(tail)
        return found
