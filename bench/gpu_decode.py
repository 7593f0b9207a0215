"""`python -m bench decode --model random:glm-5.3-flash`: windows of 1 to 32 lanes on one GPU.

Owns the gate, the runs and the table. Gate first: a graph gives the bits of the same launches one
by one, a row alone those that it has among others, and a verify window those of windows of one row.
What one window takes is `gpu_window`'s. No time is printed when the gate fails.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from bench.gpu import Model, ceilings, launches, library_products, released, spec_of, timed
from bench.gpu_window import host_line, measure
from bench.record import Void, record
from streamglm.model.device.passes import WIDTHS
from streamglm.step import Row, Step

_TOKENS = list(range(100, 100 + WIDTHS[-1]))
_SHORT = 2048
"""Tokens of a prompt that transformers has memory for."""


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the record. Raises `Void`."""
    spec = spec_of(args.model, args.layers)
    peak = ceilings()
    peer = _peer(args, spec) if args.peer == "transformers" else {}
    model = Model(spec, args.expert_format, context=max(args.contexts))
    gate(model, min(args.contexts))
    numbers: dict[str, Any] = {"ceilings": peak, "windows": [], "peer": peer}
    for context in args.contexts:
        for width in args.widths:
            numbers["windows"].append(measure(model, width, context, args.steps, peak))
    numbers["tax"] = tax(model, args.widths, min(args.contexts))
    numbers["kernels"] = _kernels(model, min(args.contexts))
    shapes = {
        "model": args.model,
        "layers": len(spec.layers),
        "experts": args.expert_format,
        "gpu": torch.cuda.get_device_name(),
        "memory": torch.cuda.max_memory_allocated(),
    }
    path = record("decode", shapes, numbers, folder=args.results)
    console = Console(width=150)
    console.print(table(shapes, numbers))
    for line in _notes(numbers):
        console.print(line, highlight=False)
    console.print(f"recorded in {path.name}", style="dim")
    return 0


def gate(model: Model, context: int) -> None:
    """Raises `Void` where bits differ that must not."""
    passes, page = model.passes, model.spec.rows.page
    at = context - page // 2

    def told(lanes: int) -> list[str]:
        """Digests of each lane's logits and state after two windows."""
        model.stand(WIDTHS[-1], context - page)
        found: list[list[bytes]] = [[] for _ in range(lanes)]
        for step in range(2):
            rows = tuple(Row(lane, at + step, _TOKENS[lane]) for lane in range(lanes))
            _, tap = model.executor.logits(Step(rows=rows))
            for lane in range(lanes):
                found[lane].append(tap[lane, at + step].tobytes())
        return [_digest([*found[lane], *_state(model, lane)]) for lane in range(lanes)]

    together = told(WIDTHS[-1])
    for width in WIDTHS[:-1]:
        if told(width) != together[:width]:
            raise Void(f"rows of a window of {width} have other bits than among {WIDTHS[-1]}")
    graphs, passes.graphs = passes.graphs, None
    for width in WIDTHS:
        if told(width) != together[:width]:
            raise Void(f"a graph of {width} rows has other bits than its launches one by one")
    passes.graphs = graphs
    _verify_gate(model, context)


def _verify_gate(model: Model, context: int) -> None:
    page = model.spec.rows.page
    at = context - page // 2
    model.stand(2, context - page)
    tokens, serial = [_TOKENS[0]], []
    for step in range(4):
        rows = (Row(0, at + step, tokens[-1]), Row(1, at + step, 7))
        result, tap = model.executor.logits(Step(rows=rows))
        tokens.append(result.drawn[0].tokens[0])
        serial.append(tap[0, at + step].tobytes())
        if step == 2:
            state = _digest(_state(model, 0))
    model.stand(2, context - page)
    wrong = (tokens[3] + 1) % model.spec.vocab_size
    rows = (Row(0, at, tokens[0], (tokens[1], tokens[2], wrong)), Row(1, at, 7))
    result, tap = model.executor.logits(Step(rows=rows))
    drawn = list(result.drawn[0].tokens)
    if drawn != tokens[1:4]:
        raise Void(f"a verify window draws {drawn}, and windows of one row {tokens[1:4]}")
    if [tap[0, at + row].tobytes() for row in range(3)] != serial[:3]:
        raise Void("rows of a verify window have other bits than windows of one row")
    if _digest(_state(model, 0)) != state:
        raise Void("the state behind a verify window is not that of windows of one row")


def _state(model: Model, lane: int) -> list[bytes]:
    states = model.executor.states
    parts = (states.kda[:, lane], states.conv[:, lane])
    return [one.contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes() for one in parts]


def _digest(parts: list[bytes]) -> str:
    digest = hashlib.sha256()
    for one in parts:
        digest.update(one)
    return digest.hexdigest()


def tax(model: Model, widths: list[int], context: int) -> list[dict[str, float]]:
    """The same windows with the library's linear layers, graph against graph."""
    passes, page = model.passes, model.spec.rows.page
    own = passes.graphs
    found = []
    for width in widths:
        seconds = []
        for library in (False, True, False, True):
            passes.graphs = {} if library else own
            with library_products() if library else _nothing():
                model.stand(width, context - page)
                model.step(width, context - page, _TOKENS[:width])
                assert passes.last is not None
                assert passes.graphs is not None
                seconds.append(timed(passes.graphs[passes.last[0]].replay, 20))
        ours, theirs = min(seconds[0], seconds[2]), min(seconds[1], seconds[3])
        found.append({"width": width, "ours_ms": 1e3 * ours, "library_ms": 1e3 * theirs,
                      "tax": ours / theirs - 1.0})  # fmt: skip
    passes.graphs = own
    return found


def _nothing() -> Any:
    return contextlib.nullcontext()


def _kernels(model: Model, context: int) -> dict[str, Any]:
    """Launches of a window of one row and of eight, and where their time goes."""
    page, passes = model.spec.rows.page, model.passes
    found: dict[str, Any] = {}
    own, passes.graphs = passes.graphs, None
    for width in (1, 8):
        model.stand(width, context - page)
        model.step(width, context - page, _TOKENS[:width])
        count, dearest = launches(lambda: model.step(width, context - page + 1, _TOKENS[:width]))  # noqa: B023
        found[str(width)] = {"launches": count, "dearest": dearest}
    passes.graphs = own
    return found


def _peer(args: argparse.Namespace, spec: Any) -> dict[str, Any]:
    """Of the longest context that it gets through: ours, or a short one."""
    from bench.gpu_peer import decode

    found = decode(spec, sorted({_SHORT, min(args.contexts)}))
    released()
    return found[max(found)] if found else {}


def table(shapes: Mapping[str, Any], numbers: Mapping[str, Any]) -> Table:
    """The numbers for a person."""
    shown = Table(
        "context", "rows", "step, ms", "graph, ms", "tokens/s", "experts", "were expected",
        "floor, ms", "of the byte floor",
        title=f"{shapes['model']}, {shapes['layers']} layers, {shapes['experts']} experts, "
        f"{shapes['gpu']}; bits equal",
    )  # fmt: skip
    for row in numbers["windows"]:
        shown.add_row(
            f"{row['context']:,}",
            str(row["width"]),
            f"{row['step_ms']:.3f}",
            f"{row['graph_ms']:.3f}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['experts']:.1f}",
            f"{row['experts_expected']:.1f}",
            f"{row['floor_ms']:.3f}",
            f"{row['of_byte_floor']:.2f}",
        )
    return shown


def _notes(numbers: Mapping[str, Any]) -> list[str]:
    lines = [f"{name}: {value:.4g}" for name, value in numbers["ceilings"].items()]
    node = numbers["ceilings"]["node_seconds"]
    for width, one in numbers["kernels"].items():
        lines.append(
            f"{width} rows: {one['launches']} launches, {1e3 * node * one['launches']:.3f} ms"
        )
        for row in numbers["windows"]:
            if str(row["width"]) == width:
                least = row["floor_ms"] + 1e3 * node * one["launches"]
                lines.append(f"  {row['context']:,}: {least / row['graph_ms']:.2f} of both floors")
        lines += [f"  {us:9.1f} us {count:5d} {name}" for name, count, us in one["dearest"]]
    lines += [host_line(row) for row in numbers["windows"]]
    for one in numbers["tax"]:
        lines.append(f"tax at {one['width']} rows: {100 * one['tax']:.1f} %")
    peer = numbers["peer"]
    if peer:
        lines.append(f"transformers: {peer}")
        first = numbers["windows"][0]["step_ms"]
        lines.append(f"transformers / ours, 1 row: {peer['step_ms'] / first:.1f}")
    return lines
