"""`python -m bench split`: ranks of the latent split beside as many without it, in one run.

Owns the run: what the plans hold of the same memory, and two servers that take turns, one of each
kind. The gate: every reply has the same `token_sha` on both; otherwise the run is void. Bytes are
the servers' own count of what their ranks sent.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.client import Address, Reply, exchange, read
from bench.record import RESULTS, Void, record
from bench.server import serving
from streamglm.commands.planning import planned, spec_of
from streamglm.config import Settings
from streamglm.model.shapes import GLM_5_3_FLASH
from streamglm.pool.carve import GIB
from streamglm.pool.plan import Plan

ROUTE = "/v1/completions"
ROOM_GIB = 30.0
KINDS = ("unsplit", "split")
WHATS = ("add", "join", "exchange", "fetch", "carry")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench split`."""
    parser.add_argument("--model", default="nano", help="what is served (default nano)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of each server (default 2)")
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[1, 4], help="replies side by side (1 4)"
    )
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[500, 2000], help="tokens of a prompt (500 2000)"
    )
    parser.add_argument("--new-tokens", type=int, default=64, help="of each reply (default 64)")
    parser.add_argument("--runs", type=int, default=3, help="of which medians are taken")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Measure, print the tables, append the record. Raises `Void`."""
    capacity = [held(model, args.ranks) for model in dict.fromkeys((args.model, GLM_5_3_FLASH))]
    flags = ["--ranks", str(args.ranks), "--threads", "1", "--drafts", "0"]
    flags += ["--parallel", str(max(args.streams)), "--context", "8192", "--pool-tokens", "65536"]
    with serving(args.model, flags) as whole, serving(args.model, [*flags, "--kv-split"]) as split:
        servers = dict(zip(KINDS, (Server(whole), Server(split)), strict=True))
        rows = asyncio.run(measure(servers, args))
    shapes = {
        name: getattr(args, name)
        for name in ("model", "ranks", "streams", "prompts", "new_tokens", "runs")
    }
    path = record("split", shapes, {"capacity": capacity, "speed": rows}, folder=args.results)
    console = Console()
    console.print(capacity_table(capacity, args.ranks))
    console.print(speed_table(rows, args.ranks))
    console.print(bytes_table(rows))
    console.print(f"recorded in {path.name}", style="dim")
    return 0


# -- capacity


def held(model: str, ranks: int) -> dict[str, Any]:
    """What plans of one room hold, split and not: tokens of the pool, and of each of its bytes."""
    spec, plans = spec_of(Settings(model=model)), {}
    for kind in KINDS:
        settings = Settings(
            device="cpu" if model != GLM_5_3_FLASH else "auto",
            ranks=ranks,
            kv_split=kind == "split",
            prompt_cache_gib=0.0,
        )
        plans[kind] = planned(spec, settings, int(ROOM_GIB * GIB), world=ranks)
        if plans[kind].refused is not None:
            raise Void(f"{model}, {kind}: {plans[kind].refused}")
    tokens = {kind: plan.pool_tokens for kind, plan in plans.items()}
    return {"model": model, **tokens, "ratio": _held(plans["split"]) / _held(plans["unsplit"])}


def _held(plan: Plan) -> float:
    """Tokens of a byte of one rank's pool."""
    return plan.pool_tokens / plan.pool_bytes


# -- speed


@dataclass
class Server:
    """A server, and the replies that it gave."""

    url: str
    hashes: list[str] = field(default_factory=list)

    def sent(self) -> dict[str, float]:
        """Bytes that its ranks have sent, by what."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = re.findall(
            r'^streamglm_rank_sent_bytes_total\{what="(\w+)"\} ([0-9.e+]+)$', text, re.MULTILINE
        )
        return {what: float(value) for what, value in found}


@dataclass(frozen=True)
class Shape:
    """One measurement: so many replies side by side, with prompts of so many tokens each."""

    what: str
    streams: int
    prompt: int
    new: int

    @property
    def rows(self) -> int:
        """Of prompts and replies, as many as are computed."""
        return self.streams * (self.prompt + self.new - 1)

    def seconds(self, replies: list[Reply]) -> float:
        """Of the prompt until the first token; of decode from there to the last."""
        if self.what == "prompt":
            return max(reply.first_seconds for reply in replies)
        first = min(reply.times[0] for reply in replies)
        return max(reply.times[-1] for reply in replies) - first


def shapes_of(args: argparse.Namespace) -> Iterator[Shape]:
    """Replies behind short prompts, then prompts alone."""
    for streams in args.streams:
        yield Shape("decode", streams, 140, args.new_tokens)
    for tokens in args.prompts:
        yield Shape("prompt", 1, tokens, 1)


async def measure(servers: dict[str, Server], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every shape on both servers in turns; the first run of each warms up."""
    rows = []
    for shape in shapes_of(args):
        seconds: dict[str, list[float]] = {kind: [] for kind in servers}
        before = {kind: server.sent() for kind, server in servers.items()}
        for number in range(args.runs + 1):
            for kind, server in servers.items():
                replies = await _side_by_side(server, shape, number)
                seconds[kind] += [shape.seconds(replies)] if number else []
            if servers["split"].hashes != servers["unsplit"].hashes:
                raise Void(f"{shape}: the split gives other tokens than no split")
        row: dict[str, Any] = {"what": shape.what, "streams": shape.streams, "prompt": shape.prompt}
        for kind, server in servers.items():
            row[kind] = median(seconds[kind])
            row[f"{kind} bytes"] = {
                what: (now - before[kind].get(what, 0.0)) / (shape.rows * (args.runs + 1))
                for what, now in server.sent().items()
                if now > before[kind].get(what, 0.0)
            }
        row["ratio"] = row["unsplit"] / row["split"]
        rows.append(row)
    return rows


async def _side_by_side(server: Server, shape: Shape, number: int) -> list[Reply]:
    """Replies to prompts that no run had before."""
    bodies = []
    for stream in range(shape.streams):
        draw = random.Random(f"{shape.what} {shape.streams} {shape.prompt} {number} {stream}")
        bodies.append(
            {
                "prompt": [draw.randrange(300) for _ in range(shape.prompt)],
                "max_tokens": shape.new,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
    address = Address.of(server.url)
    answers = await asyncio.gather(*(exchange(address, ROUTE, body) for body in bodies))
    replies = [read(answer) for answer in answers]
    server.hashes += [reply.token_sha for reply in replies]
    return replies


# -- tables


def capacity_table(rows: list[dict[str, Any]], ranks: int) -> Table:
    """One line a model."""
    shown = Table(title=f"{ranks} ranks of {ROOM_GIB:g} GiB each: tokens of the pool")
    for name in ("model", "unsplit", "split", "of the same pool bytes"):
        shown.add_column(name, justify="left" if name == "model" else "right")
    for row in rows:
        shown.add_row(
            row["model"], f"{row['unsplit']:,}", f"{row['split']:,}", f"{row['ratio']:.3f}x"
        )
    return shown


def speed_table(rows: list[dict[str, Any]], ranks: int) -> Table:
    """One line a shape; ratios of speed, above 1 where the split is faster."""
    shown = Table(title=f"{ranks} ranks, split beside unsplit; equal token_sha")
    for name in ("what", "streams", "prompt", "unsplit, ms", "split, ms", "split / unsplit"):
        shown.add_column(name, justify="left" if name == "what" else "right")
    for row in rows:
        shown.add_row(
            *_named(row),
            f"{1e3 * row['unsplit']:,.1f}",
            f"{1e3 * row['split']:,.1f}",
            f"{row['ratio']:.2f}x",
        )
    return shown


def bytes_table(rows: list[dict[str, Any]]) -> Table:
    """One line a shape and kind of server."""
    shown = Table(title="bytes that all ranks together sent, a row of prompt or reply")
    for name in ("what", "streams", "prompt", "server", *WHATS):
        shown.add_column(name, justify="left" if name in ("what", "server") else "right")
    for row in rows:
        for kind in KINDS:
            sent = row[f"{kind} bytes"]
            shown.add_row(*_named(row), kind, *(f"{sent.get(what, 0.0):,.0f}" for what in WHATS))
    return shown


def _named(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["what"], str(row["streams"]), f"{row['prompt']:,}"
