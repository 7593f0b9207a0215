"""`python -m bench disk`: reading back, writing behind, and resuming from the disk.

Owns three measurements, each a ratio inside one run. `read`: records through the reader beside a
plain read of the same files, page cache dropped before each. `write`: a running stream while other
prompts are written behind it, beside the same prompts with `learn: false`. `resume`: the first
token after a restart, from the disk and cold. The gate: what was read is what was written, and a
resumed reply has the cold one's `token_sha`; otherwise the run is void.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.client import Address, Reply, exchange, read
from bench.record import RESULTS, Void, record
from bench.server import serving
from streamglm.disk.reader import THREADS, Progress, Reader, Wanted
from streamglm.disk.record import Kind, Label, Raw, Section
from streamglm.disk.writer import Job, write

ROUTE = "/v1/completions"
SHAPES = {
    "nano page, fp32": (49_152, 6_144, 4),
    "GLM-5.3-Flash page, bf16": (6_291_456, 393_216, 2),
    "GLM-5.3-Flash state, fp32": (142_606_336, 0, 4),
}
"""Bytes of two sections, and of one of their values."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench disk`."""
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--mib", type=int, default=256, help="of each shape to read (default 256)")
    parser.add_argument(
        "--tokens", type=int, default=2000, help="of a resumed prompt (default 2000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (default 3)")
    parser.add_argument("--no-server", action="store_true", help="only read and write files")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the record. Raises `Void`."""
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        numbers: dict[str, Any] = {
            "read": [_read_shape(folder, shape, args) for shape in SHAPES],
        }
        if not args.no_server:
            numbers |= _served(folder / "learned", args)
    shapes = {"mib": args.mib, "tokens": args.tokens, "rounds": args.rounds, "threads": THREADS}
    path = record("disk", shapes, numbers, folder=args.results)
    console = Console()
    for one in _tables(numbers):
        console.print(one)
    console.print(f"recorded in {path.name}", style="dim")
    return 0


# -- files


def _read_shape(folder: Path, shape: str, args: argparse.Namespace) -> dict[str, Any]:
    """Plain reads and verified ones of the same files."""
    first, second, item = SHAPES[shape]
    layout = tuple(Section(size, item) for size in (first, second) if size)
    raw = first + second
    count = max(2, (args.mib << 20) // raw)
    sections = [_values(one.size, item, seed) for seed, one in enumerate(layout)]
    wanted, sizes = [], []
    began = time.perf_counter()
    for number in range(count):
        label = Label(Kind.PAGE, b"i" * 16, number.to_bytes(16), b"p" * 16, number + 1, 0, 1)
        job = Job(number, f"{number}.0", label, b"t" * 256, sections, [item] * len(layout))
        sizes.append(write(job, folder))
        wanted.append(Wanted(folder / job.name, label, b"t" * 256, layout))
    written = time.perf_counter() - began
    plain, verified = [], []
    for _ in range(args.rounds):
        plain.append(_timed(wanted, _plain))
        verified.append(_timed(wanted, lambda files: _verified(files, sections)))
    for one in wanted:
        one.path.unlink()
    return {
        "shape": shape,
        "records": count,
        "ratio": raw * count / sum(sizes),
        "write_gbps": raw * count / written / 1e9,
        "plain_gbps": sum(sizes) / median(plain) / 1e9,
        "read_gbps": sum(sizes) / median(verified) / 1e9,
        "raw_gbps": raw * count / median(verified) / 1e9,
        "of_plain": median(plain) / median(verified),
    }


def _values(size: int, item: int, seed: int) -> Raw:
    """Bytes of normal values, as caches hold them."""
    values = np.random.default_rng(seed).standard_normal(size // item).astype(np.float32)
    if item == 4:
        return values.view(np.uint8)
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def _timed(wanted: Sequence[Wanted], work: Any) -> float:
    for one in wanted:
        file = os.open(one.path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    began = time.perf_counter()
    work(wanted)
    return time.perf_counter() - began


def _plain(wanted: Sequence[Wanted]) -> None:
    """The files' bytes into memory, by as many threads as the reader has."""

    def one(file: Wanted) -> int:
        size = file.path.stat().st_size
        with file.path.open("rb", buffering=0) as stream:
            return stream.readinto(np.empty(size, np.uint8).data) or 0

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, wanted))


def _verified(wanted: Sequence[Wanted], sections: Sequence[Raw]) -> None:
    """The records through the reader, taken as they come."""
    arrived: list[Progress] = []
    bell = threading.Condition()

    def told(progress: Progress) -> None:
        with bell:
            arrived.append(progress)
            bell.notify()

    reader = Reader(told)
    reader.fetch(1, wanted)
    taken = 0
    last: list[Raw] = []
    while taken < len(wanted):
        with bell:
            bell.wait_for(lambda: arrived)
            progress = arrived.pop(0)
        if progress.lost >= 0:
            raise Void(f"a record cannot be read: {progress.error}")
        if progress.count > taken:
            last = reader.take(1, progress.count - taken)[-1]
            taken = progress.count
    reader.close()
    if not all(np.array_equal(a, b) for a, b in zip(last, sections, strict=True)):
        raise Void("what was read is not what was written")


# -- a server


def _served(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    flags = ("--learn-conversations", str(folder))
    prompts = [_prompt(args.tokens, seed) for seed in range(args.rounds)]
    with serving("nano", flags) as url:
        address = Address.of(url)
        cold = [asyncio.run(_ask(address, prompt)) for prompt in prompts]
        runs = [
            asyncio.run(_beside(address, learn=learn, seed=10 * turn + learn))
            for turn in range(args.rounds)
            for learn in (False, True)
        ]
    with serving("nano", flags) as url:
        warm = [asyncio.run(_ask(Address.of(url), prompt)) for prompt in prompts]
    for one, two in zip(cold, warm, strict=True):
        if one.token_sha != two.token_sha:
            raise Void("a prompt has another reply when it comes from the disk")
        if one.cached_tokens or two.cached_tokens < args.tokens * 0.9:
            raise Void(f"{one.cached_tokens} and {two.cached_tokens} tokens were found")
    first = median(one.first_seconds for one in cold), median(one.first_seconds for one in warm)
    without, beside = median(runs[::2]), median(runs[1::2])
    return {
        "resume": {
            "cold_seconds": first[0],
            "disk_seconds": first[1],
            "sooner": first[0] / first[1],
        },
        "write": {"without": without, "behind": beside, "cost": 1 - beside / without},
    }


async def _beside(address: Address, *, learn: bool, seed: int) -> float:
    """Tokens a second of a stream while prompts are computed, and written or not."""
    stream = asyncio.create_task(_ask(address, _prompt(40, 7), tokens=400, learn=False))
    others = [await _ask(address, _prompt(600, 1000 * seed + one), learn=learn) for one in range(6)]
    reply = await stream
    if any(one.cached_tokens for one in others):
        raise Void("a prompt that should be new was known")
    return 400 / (reply.seconds - reply.first_seconds)


def _prompt(length: int, seed: int) -> list[int]:
    draw = random.Random(f"{length} {seed}")
    return [draw.randrange(300) for _ in range(length)]


async def _ask(
    address: Address, prompt: list[int], *, tokens: int = 8, learn: bool = True
) -> Reply:
    body = {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "learn": learn,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return read(await exchange(address, ROUTE, body))


def _tables(numbers: dict[str, Any]) -> list[Table]:
    files = Table(title="records, page cache dropped: GB/s of files")
    for name in ("shape", "raw/stored", "write", "plain read", "read, verified", "of plain"):
        files.add_column(name, justify="left" if name == "shape" else "right")
    for row in numbers["read"]:
        rates = (
            row[name] for name in ("ratio", "write_gbps", "plain_gbps", "read_gbps", "of_plain")
        )
        files.add_row(row["shape"], *(f"{rate:.2f}" for rate in rates))
    if "resume" not in numbers:
        return [files]
    served = Table(title="served")
    for name in ("what", "without", "with", "ratio"):
        served.add_column(name)
    resume, behind = numbers["resume"], numbers["write"]
    served.add_row(
        "first token after a restart, ms",
        f"{1e3 * resume['cold_seconds']:.0f}",
        f"{1e3 * resume['disk_seconds']:.0f}",
        f"{resume['sooner']:.1f}x sooner",
    )
    served.add_row(
        "a stream beside prompts, tokens/s",
        f"{behind['without']:.1f}",
        f"{behind['behind']:.1f}",
        f"{100 * behind['cost']:.1f} % cost",
    )
    return [files, served]
