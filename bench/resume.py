"""`python -m bench resume`: the first token of a prompt that is kept, beside the same prompt cold.

Owns the run: for each length and round a prompt that the server has never seen, sent twice. The
gate: both replies have the same `token_sha`, the first found nothing and the second all but its
last page; otherwise the run is void.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.client import Address, Reply, exchange, read
from bench.record import RESULTS, Void, record
from bench.server import serving

ROUTE = "/v1/completions"
LENGTHS = (500, 2000, 8000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench resume`."""
    parser.add_argument("--model", default="nano", help="what is served (default nano)")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of a prompt"
    )
    parser.add_argument("--rounds", type=int, default=3, help="prompts of each length (default 3)")
    parser.add_argument(
        "--copied", action="store_true", help="kept states have their own rows (--kv-share 0)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the record. Raises `Void`."""
    flags = ("--kv-share", "0") if args.copied else ()
    with serving(args.model, flags) as url:
        address = Address.of(url)
        rows = [asyncio.run(_length(address, length, args.rounds)) for length in args.lengths]
    shapes = {"model": args.model, "rounds": args.rounds, "copied": args.copied}
    path = record("resume", shapes, {"lengths": rows}, folder=args.results)
    console = Console()
    console.print(table(rows, copied=args.copied))
    console.print(f"recorded in {path.name}", style="dim")
    return 0


async def _length(address: Address, length: int, rounds: int) -> dict[str, Any]:
    """The medians over `rounds` prompts of `length` tokens."""
    pairs = [await _pair(address, length, seed) for seed in range(rounds)]
    cold = median(first.first_seconds for first, _ in pairs)
    kept = median(second.first_seconds for _, second in pairs)
    return {"tokens": length, "cold_seconds": cold, "kept_seconds": kept, "ratio": cold / kept}


async def _pair(address: Address, length: int, seed: int) -> tuple[Reply, Reply]:
    """One prompt, cold and kept."""
    draw = random.Random(f"{length} {seed}")
    body = {
        "prompt": [draw.randrange(300) for _ in range(length)],
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    cold, kept = [read(await exchange(address, ROUTE, body)) for _ in range(2)]
    if cold.token_sha != kept.token_sha:
        raise Void(f"a prompt of {length} tokens has another reply when it is kept")
    if cold.cached_tokens or kept.cached_tokens < length - length // 8:
        raise Void(
            f"of {length} tokens {cold.cached_tokens} were kept at first, and "
            f"{kept.cached_tokens} the second time"
        )
    return cold, kept


def table(rows: list[dict[str, Any]], *, copied: bool) -> Table:
    """One line a length."""
    where = "a copy of its rows" if copied else "shared pages"
    found = Table(title=f"first token, cold and from a kept state ({where})")
    for name in ("prompt tokens", "cold, ms", "kept, ms", "sooner"):
        found.add_column(name, justify="right")
    for row in rows:
        found.add_row(
            f"{row['tokens']:,}",
            f"{1e3 * row['cold_seconds']:,.1f}",
            f"{1e3 * row['kept_seconds']:,.1f}",
            f"{row['ratio']:.1f}x",
        )
    return found
