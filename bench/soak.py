"""`python -m bench soak`: many requests whose clients leave at random points.

Owns the run and its verdict, which is no time but five facts: every request that stayed has the
reply it has alone, the server ends idle, no page and no slot of a kept state is lost, every lane
runs again, and the resident size is flat. A fact that fails makes the run void.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from bench.client import Address, exchange, read
from bench.load import closed_loop
from bench.record import RESULTS, Void, record
from bench.server import serving_process

ROUTE = "/v1/completions"
LANES = 8
FLAGS = ("--parallel", str(LANES), "--pool-tokens", "65536", "--host-cache-gib", "0.02")
IDLE_SECONDS = 20.0
FLAT_BYTES = 32 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench soak`."""
    parser.add_argument("--requests", type=int, default=10_000, help="in all (default 10000)")
    parser.add_argument("--streams", type=int, default=12, help="at a time (default 12)")
    parser.add_argument("--leave", type=float, default=0.3, help="share that leaves (default 0.3)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Run, print the facts, append the record. Raises `Void`."""
    with serving_process("nano", FLAGS) as (url, process):
        soak = Soak(Address.of(url), url, psutil.Process(process.pid), args.leave, args.seed)
        asyncio.run(soak.run(args.requests, args.streams))
    shapes = {"requests": args.requests, "streams": args.streams, "leave": args.leave}
    path = record("soak", shapes, soak.numbers, folder=args.results)
    found = Table(title=f"{args.requests:,} requests, {args.leave:.0%} of the clients leave")
    found.add_column("fact")
    found.add_column("value", justify="right")
    for name, value in soak.numbers.items():
        found.add_row(name.replace("_", " "), f"{value:,}")
    console = Console()
    console.print(found)
    console.print(f"recorded in {path.name}", style="dim")
    return 0


@dataclass(slots=True)
class Soak:
    """One run against one server. `numbers` are the facts that were found."""

    address: Address
    url: str
    process: psutil.Process
    leave: float
    seed: int
    numbers: dict[str, int] = field(default_factory=dict)
    alone: dict[int, str] = field(default_factory=dict)
    left: int = 0
    wrong: int = 0

    async def run(self, requests: int, streams: int) -> None:
        """A twentieth of the requests to warm up, then the rest."""
        for kind in range(64):
            self.alone[kind] = read(
                await exchange(self.address, ROUTE, body(kind)), timed=False
            ).token_sha
        jobs = list(range(requests))
        warm = max(streams, requests // 20)
        await closed_loop(jobs[:warm], self._one, streams=streams)
        await self._idle()
        before = self._resident()
        began = time.monotonic()
        await closed_loop(jobs[warm:], self._one, streams=streams)
        seconds = time.monotonic() - began
        await self._idle()
        grown = self._resident() - before
        await self._all_lanes()
        pool = await self._get("/v1/pool")
        self._facts(pool, grown)
        self.numbers |= {
            "clients_that_left": self.left,
            "states_kept_at_the_end": len(pool["kept"]),
            "resident_bytes_grown": grown,
            "seconds": round(seconds),
        }

    def _facts(self, pool: dict[str, Any], grown: int) -> None:
        shared = sum(state["tier"] == "shared" for state in pool["kept"])
        if self.wrong:
            raise Void(f"{self.wrong} replies differ from the same request alone")
        if pool["slots_free"] + shared != pool["slots"]:
            raise Void(f"{pool['slots_free']} slots are free and {shared} held of {pool['slots']}")
        if any(state["borrowed"] for state in pool["kept"]):
            raise Void("a kept state is borrowed by nobody")
        if grown > FLAT_BYTES:
            raise Void(f"the server has grown by {grown:,} bytes, and {FLAT_BYTES:,} are allowed")

    async def _one(self, index: int) -> None:
        draw = random.Random(f"{self.seed} {index}")
        kind = draw.randrange(64)
        job = exchange(self.address, ROUTE, body(kind))
        if draw.random() >= self.leave:
            self.wrong += read(await job, timed=False).token_sha != self.alone[kind]
            return
        try:
            await asyncio.wait_for(job, draw.uniform(0.0, 0.3))
        except TimeoutError:
            self.left += 1

    async def _all_lanes(self) -> None:
        """As many requests as there are lanes run at once: no lane is lost."""
        asked = [exchange(self.address, ROUTE, body(1) | {"max_tokens": 400}) for _ in range(LANES)]
        running = [asyncio.ensure_future(one) for one in asked]
        deadline = time.monotonic() + IDLE_SECONDS
        while len((await self._get("/v1/pool"))["lanes"]) < LANES:
            if time.monotonic() > deadline or any(one.done() for one in running):
                raise Void(f"{LANES} requests do not run at once")
        await asyncio.gather(*running)
        await self._idle()

    async def _idle(self) -> None:
        """Nothing runs, and no page is leased, within a bounded time."""
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            pool = await self._get("/v1/pool")
            if not pool["lanes"] and not any(one["leased"] for one in pool["pages"]):
                return
            if time.monotonic() > deadline:
                raise Void(f"not idle after {IDLE_SECONDS:g} s: {len(pool['lanes'])} lanes run")
            await asyncio.sleep(0.05)

    async def _get(self, route: str) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            value = (await client.get(route)).raise_for_status().json()
        assert isinstance(value, dict)
        return value

    def _resident(self) -> int:
        family = [self.process, *self.process.children(recursive=True)]
        return sum(one.memory_info().rss for one in family)


def body(kind: int) -> dict[str, Any]:
    """One of 64 requests: eight conversations with a beginning in common, several lengths."""
    draw = random.Random(f"of {kind % 8}")
    prefix = [draw.randrange(300) for _ in range((0, 70, 150, 300)[kind % 4])]
    draw = random.Random(f"end {kind}")
    return {
        "prompt": prefix + [draw.randrange(300) for _ in range(1 + kind % 40)],
        "max_tokens": 1 + kind % 13,
        "temperature": kind % 2,
        "seed": kind,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
