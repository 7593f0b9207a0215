"""Windows of one width on a GPU: what a step takes, what its graph takes, and where the host is.

Owns the runs of one width. Knows no gate and no table. Seconds of a step are by the host's clock
with the draw on the device and nothing else in it. Seconds of the graph, by events, and of the
host's parts are of as many steps behind them. Every row goes on with a random token, as rows of
different texts do: random weights lead all lanes to the same few tokens, and so to the same
experts. Which experts a window reads is counted, in one more step.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Any
from unittest import mock

import torch

from bench.gpu import Model, choices, expected, floor_bytes
from streamglm.model.device.graphs import Captured
from streamglm.model.device.index import WindowBuffers

PARTS = ("prepare", "copy", "launch", "wait", "after")
"""Of a step: up to the copy to the device, the copy, the launch of the graph, what is behind it up
to the tokens, and the rest."""
_WARM = 4


def measure(
    model: Model, width: int, context: int, steps: int, peak: Mapping[str, float]
) -> dict[str, Any]:
    """One width at one context."""
    at = context - model.spec.rows.page
    model.stand(width, at)
    draw = random.Random(width)

    def tokens() -> list[int]:
        return [draw.randrange(model.spec.vocab_size) for _ in range(width)]

    def run(count: int) -> list[tuple[float, float]]:
        """So many steps: when each began and ended."""
        nonlocal at
        found = []
        for ids in [tokens() for _ in range(count)]:
            began = time.perf_counter()
            model.step(width, at, ids)
            found.append((began, time.perf_counter()))
            at += 1
        return found

    run(_WARM)
    seconds = median(ended - began for began, ended in run(steps))
    with _marked(steps) as (marks, replays):
        spans = run(steps)
    graph = median(start.elapsed_time(end) / 1e3 for start, end in replays)
    passes = model.passes
    graphs, passes.graphs = passes.graphs, None
    with choices(width) as chosen:
        run(1)
    passes.graphs = graphs
    bytes_of = floor_bytes(model, width, context, chosen)
    floor = bytes_of / peak["copy_bytes_per_second"]
    return {
        "width": width,
        "context": context,
        "step_ms": 1e3 * seconds,
        "graph_ms": 1e3 * graph,
        "host_us": parts(spans, marks),
        "tokens_per_second": width / seconds,
        "experts": mean(chosen) if chosen else 0.0,
        "experts_expected": expected(model.spec, width),
        "floor_bytes": bytes_of,
        "floor_ms": 1e3 * floor,
        "of_byte_floor": floor / graph,
    }


def parts(
    spans: Sequence[tuple[float, float]], marks: Sequence[tuple[str, float]]
) -> dict[str, float]:
    """Median microseconds of each of `PARTS`; a step's marks are the ends of all but the last."""
    inner = len(PARTS) - 1
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    for step, (began, ended) in enumerate(spans):
        mine = [*marks[step * inner : (step + 1) * inner], (PARTS[-1], ended)]
        for part, (name, until) in zip(PARTS, mine, strict=True):
            assert name == part, mine
            found[part].append(1e6 * (until - began))
            began = until
    return {part: median(values) for part, values in found.items()}


def host_line(row: Mapping[str, Any]) -> str:
    """One window's parts for a person."""
    shown = ", ".join(f"{part} {us:,.0f}" for part, us in row["host_us"].items())
    return f"host, {row['width']} rows at {row['context']:,}: {shown} us"


Events = list[tuple[Any, Any]]


@contextlib.contextmanager
def _marked(steps: int) -> Iterator[tuple[list[tuple[str, float]], Events]]:
    """When the parts of so many steps end, and events before and behind every replay."""
    events: Events = []
    for _ in range(steps):
        pair = tuple(torch.Event(device="cuda", enable_timing=True) for _ in range(2))
        for event in pair:
            event.record()  # which makes it, so that no step has to
        events.append((pair[0], pair[1]))
    torch.cuda.synchronize()
    left = iter(events)

    def within(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def replay(self: Any) -> Any:
            start, end = next(left)
            start.record()
            out = own(self)
            end.record()
            return out

        return replay

    with marking(within(Captured.replay)) as marks:
        yield marks, events


@contextlib.contextmanager
def marking(replay: Callable[[Any], Any]) -> Iterator[list[tuple[str, float]]]:
    """When the parts of every step end, in order; a graph is replayed by `replay`."""
    marks: list[tuple[str, float]] = []

    def ends(part: str, own: Callable[[Any], Any], before: str | None = None) -> Any:
        def call(self: Any) -> Any:
            if before is not None:
                marks.append((before, time.perf_counter()))
            out = own(self)
            marks.append((part, time.perf_counter()))
            return out

        return call

    with (
        mock.patch.object(WindowBuffers, "load", ends("copy", WindowBuffers.load, "prepare")),
        mock.patch.object(Captured, "replay", ends("launch", replay)),
        mock.patch.object(WindowBuffers, "told", ends("wait", WindowBuffers.told)),
    ):
        yield marks
