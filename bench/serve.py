"""`python -m bench serve`: load over HTTP, open loop or closed, on this machine only.

Owns the run: which requests, the gate, the times, the table. The gate: every distinct request is
first answered alone, and each later reply to it must have the same `token_sha`; otherwise the
run is void and no time is printed. Bounded in requests and in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import edge
from bench.client import Address, Answer, Reply, exchange, read
from bench.load import closed_loop, open_loop
from bench.record import RESULTS, Void, record, spread
from bench.server import serving
from streamglm.clock import SystemClock

ROUTE = "/v1/completions"
MOST_REQUESTS = 20_000
MOST_SECONDS = 3_600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench serve`."""
    parser.add_argument(
        "--engine",
        choices=("real", "mock"),
        default="real",
        help="mock: our edge beside a plain streaming response; takes --runs alone",
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="of each contest of the mock (default 3)"
    )
    parser.add_argument(
        "--url", help="a running server on this machine; default starts one for the run"
    )
    parser.add_argument("--api-key", metavar="KEY", help="key of that server")
    parser.add_argument("--model", default="nano", help="what its own server serves (default nano)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--rate", type=float, default=2.0, help="open loop: requests a second (default 2)"
    )
    how.add_argument("--streams", type=int, help="closed loop: this many replies at a time")
    parser.add_argument("--requests", type=int, default=64, help="in all (default 64)")
    parser.add_argument("--distinct", type=int, default=8, help="different ones (default 8)")
    parser.add_argument("--prompt-words", type=int, default=40, help="words a prompt (default 40)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens a reply (default 64)")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit (default 300)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the record. Raises `Void`."""
    if args.engine == "mock":
        return _run_mock(args)
    plan = Plan.of(args)
    with contextlib.ExitStack() as stack:
        url = args.url or stack.enter_context(serving(args.model))
        try:
            address = Address.of(url)
        except ValueError as error:
            raise Void(str(error)) from None
        load = Load(address, plan, args.api_key)
        asyncio.run(load.run())
    numbers = load.numbers()
    shapes = plan.shapes() | {"model": url if args.url else args.model}
    path = record("serve", shapes, numbers, folder=args.results)
    console = Console()
    console.print(table(plan, numbers))
    console.print(f"recorded in {path.name}", style="dim")
    return 0


def _run_mock(args: argparse.Namespace) -> int:
    if not 1 <= args.runs <= 20:
        raise Void(f"--runs is {args.runs}; it may be 1 to 20")
    numbers = edge.measure_all(args.runs)
    path = record("edge", {"runs": args.runs}, numbers, folder=args.results)
    console = Console()
    edge.show(numbers, console)
    console.print(f"recorded in {path.name}", style="dim")
    return 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent, and when."""

    requests: int
    distinct: int
    prompt_words: int
    max_tokens: int
    seconds: float
    rate: float | None
    streams: int | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Plan:
        """From the flags. Raises `Void` naming the flag that is out of bounds."""
        for name, most in (
            ("requests", MOST_REQUESTS),
            ("distinct", args.requests),
            ("prompt_words", 100_000),
            ("max_tokens", 100_000),
            ("seconds", MOST_SECONDS),
            ("rate", 1_000.0),
            ("streams", 2_000),
        ):
            value = getattr(args, name)
            if value is not None and not 0 < value <= most:
                flag = "--" + name.replace("_", "-")
                raise Void(f"{flag} is {value}; it may be above 0 and at most {most}")
        return cls(
            args.requests,
            args.distinct,
            args.prompt_words,
            args.max_tokens,
            args.seconds,
            None if args.streams else args.rate,
            args.streams,
        )

    def body(self, index: int) -> dict[str, Any]:
        """The distinct request `index`: its own words, its own seed, drawn at temperature 1."""
        words = random.Random(index).choices(range(10_000), k=self.prompt_words)
        return {
            "prompt": " ".join(f"w{word:04}" for word in words),
            "max_tokens": self.max_tokens,
            "temperature": 1.0,
            "seed": index,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def shapes(self) -> dict[str, Any]:
        """The plan as the record keeps it."""
        return {
            "loop": f"open, {self.rate:g} a second" if self.rate else f"closed, {self.streams}",
            "requests": self.requests,
            "distinct": self.distinct,
            "prompt_words": self.prompt_words,
            "max_tokens": self.max_tokens,
        }


@dataclass(slots=True)
class Load:
    """One run against one server."""

    address: Address
    plan: Plan
    api_key: str | None = None
    answers: list[tuple[int, Answer]] = field(default_factory=list)
    alone: dict[int, str] = field(default_factory=dict)
    late_seconds: float = 0.0
    seconds: float = 0.0
    client_cpu_seconds: float = 0.0

    async def run(self) -> None:
        """Each distinct request alone, then the load. Raises `Void`."""
        with _bar("alone", self.plan.distinct) as bar:
            for index in range(self.plan.distinct):
                answer = await exchange(self.address, ROUTE, self.plan.body(index), self.api_key)
                self.alone[index] = read(answer).token_sha
                bar.advance()
        jobs = [index % self.plan.distinct for index in range(self.plan.requests)]
        with _bar("load", len(jobs)) as bar:
            cpu, start = _cpu_seconds(), time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.plan.seconds):
                    await self._send_all(jobs, bar)
            self.seconds = time.monotonic() - start
            self.client_cpu_seconds = _cpu_seconds() - cpu

    async def _send_all(self, jobs: Sequence[int], bar: Bar) -> None:
        async def send(index: int) -> None:
            answer = await exchange(self.address, ROUTE, self.plan.body(index), self.api_key)
            self.answers.append((index, answer))
            bar.advance()

        if self.plan.streams:
            await closed_loop(jobs, send, streams=self.plan.streams)
        else:
            assert self.plan.rate is not None
            self.late_seconds = await open_loop(
                jobs, send, rate=self.plan.rate, clock=SystemClock()
            )

    def numbers(self) -> dict[str, Any]:
        """The gate, then the statistics. Raises `Void`, and then there are no numbers."""
        refused = [answer for _, answer in self.answers if answer.status == 503]
        read_ = [(index, read(answer)) for index, answer in self.answers if answer.status != 503]
        gate(self.alone, read_)
        replies = [reply for _, reply in read_]
        return statistics(replies, self.seconds) | {
            "refused": len(refused),
            "unfinished": self.plan.requests - len(self.answers),
            "late_seconds": self.late_seconds,
            "client_cpu_share": self.client_cpu_seconds / self.seconds,
        }


def gate(alone: Mapping[int, str], replies: Sequence[tuple[int, Reply]]) -> None:
    """Raise `Void` unless every reply has the hash that its request had alone."""
    if not replies:
        raise Void("no reply ended within the time limit")
    for index, reply in replies:
        if reply.token_sha != alone[index]:
            raise Void(
                f"request {index} gave token_sha {reply.token_sha[:12]} under load and "
                f"{alone[index][:12]} alone: a reply depended on its neighbours"
            )


def statistics(replies: Sequence[Reply], seconds: float) -> dict[str, Any]:
    """Times in seconds; tokens a second over the whole load, from its start to its end."""
    tokens = sum(reply.completion_tokens for reply in replies)
    return {
        "replies": len(replies),
        "prompt_tokens": max(reply.prompt_tokens for reply in replies),
        "tokens_per_second": tokens / seconds,
        "first_seconds": spread([reply.first_seconds for reply in replies]),
        "gap_seconds": spread([gap for reply in replies for gap in reply.gaps]),
        "request_seconds": spread([reply.seconds for reply in replies]),
    }


def table(plan: Plan, numbers: Mapping[str, Any]) -> Table:
    """The numbers for a person, in milliseconds."""
    title = ", ".join(f"{name} {value}" for name, value in plan.shapes().items())
    shown = Table("ms", "p50", "p95", "p99", title=title)
    for name, label in (
        ("first_seconds", "first token"),
        ("gap_seconds", "gap between tokens"),
        ("request_seconds", "whole request"),
    ):
        shown.add_row(label, *(f"{1e3 * value:,.1f}" for value in numbers[name].values()))
    shown.caption = (
        f"{numbers['tokens_per_second']:,.1f} tokens/s; {numbers['replies']} replies, "
        f"{numbers['refused']} refused, {numbers['unfinished']} unfinished; sent at most "
        f"{1e3 * numbers['late_seconds']:.1f} ms late; the client took "
        f"{numbers['client_cpu_share']:.0%} of a core"
    )
    return shown


@dataclass(frozen=True, slots=True)
class Bar:
    """A progress bar that is drawn twice a second, so that drawing costs nothing measurable."""

    progress: Progress
    task: Any

    def advance(self) -> None:
        """One more is done."""
        self.progress.advance(self.task)


@contextlib.contextmanager
def _bar(name: str, total: int) -> Iterator[Bar]:
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, refresh_per_second=2, transient=True) as progress:
        yield Bar(progress, progress.add_task(name, total=total))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
