"""Windows as CUDA graphs: the launches of one pass, made once and replayed.

Owns capture and replay. Knows no model: it is handed a pass over buffers that stay where they are.
All graphs share one pool of memory; what a pass gives out stays valid until it is replayed. What a
pass exchanges with other ranks is in its graph: they all capture, and replay, in one order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")
_WARM = 2
"""Passes before a capture: the first compiles, and libraries allocate on the second at latest."""


class Captured(Generic[T]):
    """One pass, captured when this is made: its buffers then hold rows that move nothing. `sent` is
    where a pass counts the bytes that it sends; each replay counts as many."""

    _memory: Any = None

    def __init__(self, run: Callable[[], T], sent: Counter[str]) -> None:
        before = sent.copy()
        self._graph, self._out = _captured(run)
        passes = _WARM + 1
        self._each = {call: (sent[call] - before[call]) // passes for call in sent}
        self._sent = sent
        sent.clear()  # while nobody's rows were computed
        sent.update(before)
        self._table: torch.Tensor | None = None
        self._then: torch.cuda.CUDAGraph | None = None

    def replay(self) -> T:
        """The pass over what its buffers hold now."""
        self._graph.replay()
        self._sent.update(self._each)
        return self._out

    def then(self, table: torch.Tensor, run: Callable[[torch.Tensor], None]) -> None:
        """What follows a replay, with a table of its own: zeros in it move nothing."""
        if self._table is None or self._then is None:
            there = torch.zeros_like(table, device=torch.device("cuda"))
            self._table = there
            self._then, _ = _captured(lambda: run(there))
        self._table.copy_(table)
        self._then.replay()


def _captured(run: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    current = torch.cuda.current_stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(_WARM):
            run()
    current.wait_stream(side)
    if Captured._memory is None:
        Captured._memory = torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    # other threads (NCCL's, which look after its work) may ask the device something meanwhile
    with torch.cuda.graph(graph, pool=Captured._memory, capture_error_mode="thread_local"):
        out = run()
    return graph, out
