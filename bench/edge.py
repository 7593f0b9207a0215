"""`python -m bench serve --engine mock`: our edge beside a plain streaming response, in one run.

Owns the client, the contests and the table. Each server is a process of its own (`bench/mock.py`)
whose engine computes nothing, on the same rounds. The gate: every stream of every run has every
token, in its own event where the shape says so, and both servers say the same text. Bounded in
streams and rounds.

The contests:
- cost: a token a round, the next round when all are handed over;
- burst: four tokens a round, as with drafts: we write once a stream and round;
- flood: more tokens a second than the servers can say;
- held: 1,000 streams at a steady rate: gaps, dropped streams, bytes a stream;
- silent: a reader that takes nothing, and what it costs the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast

import uvloop
from rich.console import Console
from rich.table import Table

from bench.client import Address
from bench.record import Void, percentile

ROUTE = "/v1/completions"
FLOOD = 1_000_000
"""Tokens a second that a flood offers: more than either server can say, so what is said is what it
can say."""
DONE = b"data: [DONE]"
EVENT = b'"finish_reason":null'
"""Once in every chunk with text, of either server."""
TEXT = re.compile(rb'"text":"((?:[^"\\]|\\.)*)"')


class Stream(asyncio.Protocol):
    """One streamed request: counts events, and notes when bytes came. `silent` reads nothing."""

    def __init__(self, request: bytes, *, keep: bool, silent: bool = False) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.events = 0
        self.times = array("d")
        self.kept: list[bytes] | None = [] if keep else None
        self.whole = False
        self._request = request
        self._silent = silent
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)
        if self._silent:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.times.append(time.monotonic())
        both = self._tail + data
        self.events += both.count(EVENT)
        self.whole = self.whole or DONE in both
        self._tail = both[-(len(EVENT) - 1) :]
        if self.kept is not None:
            self.kept.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def text(self) -> bytes:
        """What was said, of a stream that is kept."""
        assert self.kept is not None
        return b"".join(TEXT.findall(b"".join(self.kept)))


@dataclass(slots=True)
class Result:
    """One server under one load."""

    tokens: int
    seconds: float
    cpu: float
    events: int
    gaps: list[float] = field(default_factory=list)
    stream_bytes: float = 0.0
    dropped: int = 0
    text: bytes = b""
    offered: int = 0

    @property
    def per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def cpu_micros(self) -> float:
        """CPU of the server for one token, those that nobody read included."""
        return 1e6 * self.cpu / (self.offered or self.tokens)


@dataclass(frozen=True, slots=True)
class Load:
    """`streams` replies of `rounds` rounds, `a_round` tokens in each; `rate` rounds a second, or 0
    for as fast as they are handed over."""

    streams: int
    rounds: int
    rate: float = 0.0
    a_round: int = 1
    silent: bool = False


@contextlib.contextmanager
def serving(kind: str, load: Load) -> Iterator[str]:
    """A server of `bench/mock.py`; its URL."""
    command = [sys.executable, "-m", "bench.mock", kind, *map(str, (load.streams, load.rate))]
    command.append(str(load.a_round))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            if found is None:
                raise Void(f"the {kind} server did not start")
            yield found[0]
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def run(kind: str, load: Load) -> Result:
    """One server, one load. Raises `Void` when a token is missing."""
    with serving(kind, load) as url:
        result: Result = uvloop.run(_run(url, load))
        return result


async def _run(url: str, load: Load) -> Result:
    address = Address.of(url)
    tokens = load.rounds * load.a_round
    body = {"prompt": [1], "max_tokens": tokens, "temperature": 0, "stream": True}
    content = json.dumps(body | {"ignore_eos": True}).encode()
    request = (
        f"POST {ROUTE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    ).encode() + content
    empty = await _figures(url)
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    for place in range(load.streams):
        made = Stream(request, keep=place == load.streams - 1, silent=load.silent and place == 0)
        await loop.create_connection(lambda made=made: made, address.host, address.port)  # type: ignore[misc]
        streams.append(made)
    before, start = await _figures(url), time.monotonic()
    readers = streams[1:] if load.silent else streams
    await asyncio.wait_for(asyncio.gather(*(one.done for one in readers)), 300)
    after = await _figures(url)
    if load.silent:
        streams[0].transport.abort()
    ends = [one.times[-1] for one in readers if one.times]
    result = Result(
        tokens=tokens * len(readers),
        seconds=max(ends) - start,
        cpu=after["cpu"] - before["cpu"],
        events=sum(one.events for one in readers),
        gaps=[b - a for one in readers for a, b in zip(one.times[2:], one.times[3:], strict=False)],
        stream_bytes=(before["resident"] - empty["resident"]) / load.streams,
        dropped=sum(not one.whole for one in readers),
        text=streams[-1].text(),
        offered=tokens * load.streams,
    )
    if result.dropped:
        raise Void(f"{result.dropped} of {len(readers)} streams were dropped")
    return result


async def _figures(url: str) -> dict[str, Any]:
    def ask() -> Any:
        with urllib.request.urlopen(url + "/bench", timeout=60) as answer:
            return json.load(answer)

    found = await asyncio.to_thread(ask)
    assert isinstance(found, dict)
    return found


def contest(load: Load, runs: int) -> dict[str, list[Result]]:
    """Both servers in turns, so that a machine that slows down slows both. Raises `Void`."""
    found: dict[str, list[Result]] = {"plain": [], "ours": []}
    for _ in range(runs):
        for kind, results in found.items():
            results.append(run(kind, load))
    texts = {one.text for results in found.values() for one in results}
    if len(texts) != 1:
        raise Void("the two servers did not say the same")
    return found


def ratio(found: Mapping[str, Sequence[Result]], name: str) -> float:
    """Ours by plain: of medians; above 1 is better for us, whatever the figure."""
    ours, plain = (median(getattr(one, name) for one in found[kind]) for kind in ("ours", "plain"))
    return float(plain / ours if name == "cpu_micros" else ours / plain)


def measure(streams: int, runs: int) -> dict[str, Any]:
    """The contests at one number of streams."""
    rounds = max(20, 40_000 // streams)
    cost = contest(Load(streams, rounds), runs)
    for results in cost.values():
        for one in results:
            if one.events != one.tokens:
                raise Void(f"{one.tokens} tokens came in {one.events} events")
    burst = contest(Load(streams, rounds // 2, a_round=4), runs)
    flood = contest(Load(streams, 2 * rounds, rate=FLOOD / streams), runs)
    return {
        name: {
            **{kind: _shown(results) for kind, results in found.items()},
            "ratio_cpu": ratio(found, "cpu_micros"),
            "ratio_rate": ratio(found, "per_second"),
        }
        for name, found in (("cost", cost), ("burst", burst), ("flood", flood))
    }


def _shown(results: Sequence[Result]) -> dict[str, float]:
    return {
        "tokens_per_second": median(one.per_second for one in results),
        "cpu_micros_a_token": median(one.cpu_micros for one in results),
        "events_a_token": median(one.events / one.tokens for one in results),
    }


def held(streams: int, runs: int) -> dict[str, Any]:
    """Many streams at a rate that a model would have."""
    results = [run("ours", Load(streams, 60, rate=6.0)) for _ in range(runs)]
    gaps = [gap for one in results for gap in one.gaps]
    p50, p99 = percentile(gaps, 50), percentile(gaps, 99)
    return {
        "dropped": sum(one.dropped for one in results),
        "gap_p50": p50,
        "gap_p99": p99,
        "gap_ratio": p99 / p50,
        "stream_bytes": median(one.stream_bytes for one in results),
    }


def silent(streams: int, runs: int) -> dict[str, Any]:
    """What a reader that takes nothing costs the others: CPU and time, in turns with one that
    reads."""
    found: dict[bool, list[Result]] = {False: [], True: []}
    for _ in range(runs):
        for mute, results in found.items():
            results.append(run("ours", Load(streams, 1500, rate=250.0, silent=mute)))
    seconds = {mute: median(one.seconds for one in all_) for mute, all_ in found.items()}
    cpu = {mute: median(one.cpu_micros for one in all_) for mute, all_ in found.items()}
    return {
        "rate_lost": seconds[True] / seconds[False] - 1,
        "cpu_lost": cpu[True] / cpu[False] - 1,
    }


def measure_all(runs: int) -> dict[str, Any]:
    """Everything, with the load of the machine before and after."""
    numbers: dict[str, Any] = {"load_before": os.getloadavg()[0]}
    for streams in (256, 1000):
        numbers[f"streams_{streams}"] = measure(streams, runs)
    numbers["held"] = held(1000, runs)
    numbers["silent"] = silent(16, 2 * runs + 1)
    return numbers | {"load_after": os.getloadavg()[0]}


def show(numbers: Mapping[str, Any], console: Console) -> None:
    """The numbers for a person."""
    shown = Table(
        "streams", "contest", "plain tokens/s", "ours", "ratio", "plain µs CPU", "ours", "ratio"
    )
    for streams in (256, 1000):
        for name, found in numbers[f"streams_{streams}"].items():
            first, second = "tokens_per_second", "cpu_micros_a_token"
            row = [(found["plain"][key], found["ours"][key]) for key in (first, second)]
            shown.add_row(
                f"{streams:,}", name,
                f"{row[0][0]:,.0f}", f"{row[0][1]:,.0f}", f"{found['ratio_rate']:.2f}",
                f"{row[1][0]:.1f}", f"{row[1][1]:.1f}", f"{found['ratio_cpu']:.2f}",
            )  # fmt: skip
    one, mute = numbers["held"], numbers["silent"]
    kept = f"{one['stream_bytes'] / 1e3:.0f} kB a stream"
    gaps = f"gap p50 {1e3 * one['gap_p50']:.0f} ms, p99 {1e3 * one['gap_p99']:.0f} ms"
    shown.caption = (
        f"1,000 held: {one['dropped']} dropped, {gaps} ({one['gap_ratio']:.2f} times), {kept}; "
        f"a silent reader costs {mute['rate_lost']:+.1%} of the others' rate and "
        f"{mute['cpu_lost']:+.1%} of CPU; "
        f"load {numbers['load_before']:.1f} to {numbers['load_after']:.1f}"
    )
    console.print(shown)
