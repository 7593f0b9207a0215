"""`python -m bench decode`: ours beside transformers, same checkpoint, same machine, one run.

Owns the order of things: first the gate (every contender's greedy tokens are equal at 1 stream
and at 8), then the times (median of runs that alternate between contenders, so that a machine
that slows down slows everyone), then the ratios. No time is printed when the gate fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.record import RESULTS, Void, record
from bench.server import serving
from bench.timed import Contender, Prompt, Timed

BATCH = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench decode`."""
    parser.add_argument(
        "--peer",
        choices=["transformers", "none"],
        default="transformers",
        help="whom to measure beside",
    )
    parser.add_argument(
        "--model",
        default="nano",
        help="checkpoint folder, nano, the built-in one (default), or "
        "random:glm-5.3-flash, which is measured on a GPU",
    )
    parser.add_argument("--prompt-tokens", type=int, default=64, help="a prompt (default 64)")
    parser.add_argument("--new-tokens", type=int, default=64, help="a reply (default 64)")
    parser.add_argument("--runs", type=int, default=5, help="median of this many (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of ours (default 1)")
    parser.add_argument(
        "--peer-threads", type=int, help="threads of the peer; default is what suits it best"
    )
    parser.add_argument(
        "--drafts",
        metavar="POLICIES",
        help="compare policies for drafts instead: off, auto, a number, or T+F for T drafts that "
        "come true and F that do not, separated by commas",
    )
    parser.add_argument(
        "--text",
        choices=["random", "quote", "tell"],
        default="random",
        help="with --drafts: random ids, a passage to repeat, or something to tell",
    )
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[1], help="with --drafts: side by side (1)"
    )
    parser.add_argument("--layers", type=int, default=8, help="of random weights on a GPU (8)")
    parser.add_argument(
        "--expert-format", choices=["bf16", "fp8", "nvfp4"], default="bf16", help="of them (bf16)"
    )
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32], help="rows of their windows"
    )
    parser.add_argument(
        "--contexts", type=int, nargs="+", default=[8192, 131_072, 1_048_576],
        help="tokens of their lanes (8192 131072 1048576)",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, default=24, help="windows of each, timed (24)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the record. Raises `Void`."""
    if args.model.startswith("random:"):
        from bench import gpu_decode

        return gpu_decode.run(args)
    folder = _folder(args.model)
    prompts = make_prompts(folder, args.prompt_tokens)
    if args.drafts:
        from bench import drafts

        return drafts.run(args, folder, prompts)
    with _contenders(args, folder, prompts) as contenders:
        times = measure(contenders, prompts, args.new_tokens, args.runs)
    numbers = summary(times, args.new_tokens)
    shapes = {
        "model": args.model if args.model == "nano" else folder.name,
        "prompt_tokens": args.prompt_tokens,
        "new_tokens": args.new_tokens,
        "runs": args.runs,
        "threads": {contender.name: contender.threads for contender in contenders},
    }
    path = record("decode", shapes, numbers, folder=args.results)
    console = Console()
    console.print(table(shapes, numbers))
    console.print(f"recorded in {path.name}", style="dim")
    return 0


def _folder(model: str) -> Path:
    if model != "nano":
        return Path(model)
    from streamglm import nano

    return nano.folder()


def make_prompts(folder: Path, tokens: int) -> list[Prompt]:
    """`BATCH` prompts of random ids, the same in every run."""
    config = json.loads((folder / "config.json").read_bytes())
    vocabulary = (config.get("text_config") or config)["vocab_size"]
    draw = random.Random(0)
    return [tuple(draw.choices(range(2, vocabulary), k=tokens)) for _ in range(BATCH)]


@contextlib.contextmanager
def _contenders(
    args: argparse.Namespace, folder: Path, prompts: Sequence[Prompt]
) -> Iterator[list[Contender]]:
    # Imported here so that `--help` and the tests of this file need no torch.
    from bench.contenders import InProcess, OverHTTP, Transformers

    tokens = args.prompt_tokens + args.new_tokens
    peer = Transformers(folder, args.peer_threads or 1)
    if args.peer_threads is None:
        peer.threads = suits(peer, prompts[0], min(args.new_tokens, 24))
    engine = InProcess(folder, threads=args.threads, lanes=BATCH, tokens=tokens)
    flags = ["--parallel", str(BATCH), "--threads", str(args.threads)]
    with serving(args.model, flags) as url:
        yield [peer, engine, OverHTTP(url, args.threads)]


def suits(peer: Contender, prompt: Prompt, new: int) -> int:
    """The number of threads, 1 or all cores, at which `peer` is faster. Best of two each."""
    seconds: dict[int, float] = {}
    for threads in dict.fromkeys([1, len(os.sched_getaffinity(0))]):
        peer.threads = threads
        seconds[threads] = min(peer.generate([prompt], new).seconds for _ in range(2))
    return min(seconds, key=seconds.__getitem__)


Times = dict[tuple[str, int], list[Timed]]


def measure(
    contenders: Sequence[Contender], prompts: Sequence[Prompt], new: int, runs: int
) -> Times:
    """The gate, then `runs` runs of every contender at 1 stream and at `BATCH`, in alternation.

    The first contender is the peer whose tokens count. The gate is also the warm-up, and every
    timed run is held to it again. Raises `Void`.
    """
    peer = contenders[0]
    rounds = [(contender, streams) for streams in (1, BATCH) for contender in contenders]
    times: Times = {(contender.name, streams): [] for contender, streams in rounds}
    total = BATCH + len(rounds) * (runs + 1)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), refresh_per_second=1, transient=True) as bar:
        task = bar.add_task("gate", total=total)
        wanted: list[str] = []
        for prompt in prompts:
            wanted += peer.generate([prompt], new).hashes
            bar.advance(task)
        for index in range(runs + 1):
            bar.update(task, description=f"run {index}" if index else "gate")
            for contender, streams in rounds:
                timed = contender.generate(prompts[:streams], new)
                gate(contender.name, streams, wanted[:streams], timed.hashes)
                if index:
                    times[contender.name, streams].append(timed)
                bar.advance(task)
    return times


def gate(name: str, streams: int, wanted: Sequence[str], got: Sequence[str]) -> None:
    """Raise `Void` unless the replies are those the peer gives to each prompt alone."""
    for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
        if one != other:
            raise Void(
                f"{name} at {streams} streams: reply {index} has token_sha {other[:12]}, "
                f"and the peer alone gives {one[:12]}; no time is taken"
            )


@dataclass(frozen=True, slots=True)
class Speed:
    """Medians over the runs."""

    tokens_per_second: float
    """All new tokens over the seconds of the whole run, prompts included."""
    first_ms: float
    step_ms: float
    """Milliseconds from one token of a stream to its next, after the first."""


def speed(runs: Sequence[Timed], streams: int, new: int) -> Speed:
    """The medians of one contender's runs."""
    return Speed(
        tokens_per_second=median(streams * new / run.seconds for run in runs),
        first_ms=median(1e3 * run.first_seconds for run in runs),
        step_ms=median(1e3 * (run.seconds - run.first_seconds) / (new - 1) for run in runs),
    )


def summary(times: Mapping[tuple[str, int], Sequence[Timed]], new: int) -> dict[str, Any]:
    """Speeds, and the ratios that the goals are stated in (all in tokens a second)."""
    speeds = {key: speed(runs, key[1], new) for key, runs in times.items()}
    rate = {key: value.tokens_per_second for key, value in speeds.items()}
    ratios: dict[str, float] = {}
    for ours in ("engine", "over HTTP"):
        ratios |= {
            f"{ours} / transformers, 1 stream": rate[ours, 1] / rate["transformers", 1],
            f"{ours} at {BATCH} / transformers at 1": rate[ours, BATCH] / rate["transformers", 1],
            f"{ours} / transformers, {BATCH} streams": rate[ours, BATCH]
            / rate["transformers", BATCH],
        }
    for streams in (1, BATCH):
        name = f"over HTTP / engine, {streams} stream{'s' * (streams > 1)}"
        ratios[name] = rate["over HTTP", streams] / rate["engine", streams]
    return {
        "speeds": [
            {
                "who": name,
                "streams": streams,
                "tokens_per_second": value.tokens_per_second,
                "first_ms": value.first_ms,
                "step_ms": value.step_ms,
            }
            for (name, streams), value in speeds.items()
        ],
        "ratios": ratios,
    }


def table(shapes: Mapping[str, Any], numbers: Mapping[str, Any]) -> Table:
    """The numbers for a person."""
    shown = Table(
        "who", "threads", "streams", "tokens/s", "first token, ms", "step, ms",
        title=f"{shapes['model']}: {shapes['prompt_tokens']} prompt tokens, "
        f"{shapes['new_tokens']} new, median of {shapes['runs']}; tokens equal",
    )  # fmt: skip
    for row in numbers["speeds"]:
        shown.add_row(
            row["who"],
            str(shapes["threads"][row["who"]]),
            str(row["streams"]),
            f"{row['tokens_per_second']:,.1f}",
            f"{row['first_ms']:,.1f}",
            f"{row['step_ms']:,.2f}",
        )
    shown.caption = "\n".join(f"{name}: {value:.2f}" for name, value in numbers["ratios"].items())
    return shown
