"""`python -m bench streamed`: the same replies, streamed and whole, from one server in turns.

Owns the order and the table. The gate: every reply of every run has the `token_sha` that the same
prompt had first. What streaming costs is the ratio of the two rates, both by the client's clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.client import Address, Answer, exchange, read
from bench.record import RESULTS, Void, record
from bench.server import serving

ROUTE = "/v1/completions"
MODES = ("streamed", "whole")

Seconds = dict[int, dict[str, list[float]]]
"""By streams and mode: seconds of each run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench streamed`."""
    parser.add_argument("--model", default="nano", help="checkpoint folder, or nano (default)")
    parser.add_argument("--prompt-tokens", type=int, default=64, help="a prompt (default 64)")
    parser.add_argument("--new-tokens", type=int, default=128, help="a reply (default 128)")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8], help="at once (1 8)")
    parser.add_argument("--runs", type=int, default=9, help="median of this many (default 9)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the record. Raises `Void`."""
    flags = ["--threads", "1", "--parallel", str(max(args.streams)), "--drafts", "0"]
    with serving(args.model, flags) as url:
        seconds = measure(url, args.streams, args.runs, args.prompt_tokens, args.new_tokens)
    numbers = summary(seconds, args.new_tokens)
    shapes = {name: vars(args)[name] for name in ("model", "prompt_tokens", "new_tokens", "runs")}
    path = record("streamed", shapes, numbers, folder=args.results)
    console = Console()
    console.print(table(numbers))
    console.print(f"recorded in {path.name}", style="dim")
    return 0


def measure(url: str, streams: Sequence[int], runs: int, prompt: int, new: int) -> Seconds:
    """One run to warm up, then `runs` of each mode in turns. Raises `Void`."""
    address, known = Address.of(url), dict[int, str]()
    found: Seconds = {count: {mode: [] for mode in MODES} for count in streams}
    for number in range(runs + 1):
        for count, by_mode in found.items():
            for mode, all_ in by_mode.items():
                began = time.monotonic()
                answers = asyncio.run(_ask(address, count, prompt, new, mode == "streamed"))
                took = time.monotonic() - began
                gate(known, [sha_of(answer, mode) for answer in answers])
                if number:
                    all_.append(took)
    return found


def gate(known: dict[int, str], hashes: Sequence[str]) -> None:
    """Raise `Void` unless each prompt has the hash that it had first."""
    for place, sha in enumerate(hashes):
        if known.setdefault(place, sha) != sha:
            raise Void(f"reply {place} has token_sha {sha[:12]}, before {known[place][:12]}")


def sha_of(answer: Answer, mode: str) -> str:
    """The reply's hash. Raises `Void` for an answer that is none."""
    if mode == "streamed":
        return read(answer).token_sha
    text = b"".join(piece for _, piece in answer.pieces)
    if not answer.whole or answer.status != 200:
        raise Void(f"a request was answered {answer.status}: {text[:200].decode(errors='replace')}")
    return str(json.loads(text)["streamglm"]["token_sha"])


async def _ask(address: Address, count: int, prompt: int, new: int, streamed: bool) -> list[Answer]:
    def body(place: int) -> dict[str, Any]:
        ids = [2 + (place * 131 + at * 7) % 500 for at in range(prompt)]
        more = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
        return {"prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True, **more}

    return await asyncio.gather(*(exchange(address, ROUTE, body(one)) for one in range(count)))


def summary(seconds: Seconds, new: int) -> dict[str, Any]:
    """Tokens a second by streams and mode, and streamed by whole: of medians."""
    return {
        str(count): {
            **{mode: count * new / median(all_) for mode, all_ in by_mode.items()},
            "ratio": median(by_mode["whole"]) / median(by_mode["streamed"]),
        }
        for count, by_mode in seconds.items()
    }


def table(numbers: Mapping[str, Mapping[str, float]]) -> Table:
    """The numbers for a person."""
    shown = Table("streams", "streamed, tokens/s", "whole", "streamed / whole")
    for count, found in numbers.items():
        row = (f"{found[mode]:,.1f}" for mode in MODES)
        shown.add_row(count, *row, f"{found['ratio']:.2f}")
    return shown
