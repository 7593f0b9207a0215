"""`python -m bench prompt`: the prompt pass of random real shapes on one GPU.

Owns the gate (any chunking gives the same bits), the runs and the table: whole prompts, and chunks
behind a long history. No time is printed when the gate fails.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.record import RESULTS, Void, record

_CHUNKS_BEHIND = 4
"""Chunks that are timed behind a history."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench prompt`."""
    parser.add_argument("--model", default="random:glm-5.3-flash", help="what is measured")
    parser.add_argument("--layers", type=int, default=8, help="of the trunk, from the first (8)")
    parser.add_argument(
        "--expert-format", choices=["bf16", "fp8", "nvfp4"], default="bf16", help="default bf16"
    )
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[2048, 8192], help="tokens (2048 8192)"
    )
    parser.add_argument(
        "--behind", type=int, nargs="+", default=[131_072, 1_048_576],
        help="histories before a chunk (131072 1048576)",
    )  # fmt: skip
    parser.add_argument(
        "--chunk", type=int, help="rows of a pass at most; every pass reads the experts anew"
    )
    parser.add_argument("--runs", type=int, default=3, help="median of this many (default 3)")
    parser.add_argument(
        "--peer", choices=["transformers", "none"], default="transformers", help="beside whom"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the record. Raises `Void`."""
    import torch

    from bench.gpu import Model, ceilings, launches, released, spec_of

    spec = spec_of(args.model, args.layers)
    peak = ceilings()
    peers: dict[str, Any] = {}
    if args.peer == "transformers":
        from bench.gpu_peer import decode

        found = decode(spec, args.prompts, steps=4)
        peers = {str(tokens): one for tokens, one in found.items()}
        released()
    if args.chunk:
        spec = replace(spec, rows=replace(spec.rows, chunk=args.chunk))
    rows = spec.rows.chunk
    context = max(*args.prompts, *(at + _CHUNKS_BEHIND * rows for at in args.behind))
    model = Model(spec, args.expert_format, context=context, lanes=2)
    gate(model)
    measured = [whole(model, tokens, args.runs, peak) for tokens in args.prompts]
    measured += [behind(model, tokens, args.runs, peak) for tokens in args.behind]
    count, dearest = launches(lambda: passed(model, 0, rows, rows))
    numbers = {
        "ceilings": peak,
        "prompts": measured,
        "peers": peers,
        "launches": count,
        "dearest": dearest,
    }
    shapes = {
        "model": args.model,
        "layers": len(spec.layers),
        "experts": args.expert_format,
        "chunk": rows,
        "gpu": torch.cuda.get_device_name(),
    }
    path = record("prompt", shapes, numbers, folder=args.results)
    console = Console(width=150)
    console.print(table(shapes, numbers))
    console.print(f"{count} launches a chunk", highlight=False)
    for name, times, us in dearest:
        console.print(f"  {us:9.1f} us {times:5d} {name}", highlight=False)
    console.print(f"recorded in {path.name}", style="dim")
    return 0


def passed(model: Any, start: int, tokens: int, chunk: int) -> Any:
    """Lane 0 from `start` over `tokens` tokens in chunks; the last chunk's logits, by position."""
    from bench.gpu import GREEDY
    from streamglm.step import Begin, Chunk, Step

    page, vocab = model.spec.rows.page, model.spec.vocab_size
    pages = tuple(range(-(-(start + tokens) // page)))
    begins: tuple[Begin, ...] = (Begin(0, pages, GREEDY),)
    for at in range(start, start + tokens, chunk):
        ids = tuple(
            (7 * place + 11) % vocab for place in range(at, min(at + chunk, start + tokens))
        )
        last = at + chunk >= start + tokens
        result = model.executor.run(Step(begins=begins, chunks=(Chunk(0, at, ids, last=last),)))
        begins = ()
    return result


def gate(model: Any) -> None:
    """Raises `Void` where chunks change a bit of what a lane carries or draws."""
    from bench.gpu_decode import _digest, _state

    found = []
    sizes = sorted({512, 1088, 2048, model.spec.rows.chunk})
    for chunk in sizes:
        result = passed(model, 0, 4000, chunk)
        found.append((result.drawn[0].tokens, _digest(_state(model, 0))))
        model.executor.run(_ends())
    if len(set(found)) > 1:
        raise Void(f"chunks of {', '.join(map(str, sizes))} rows leave other bits")


def _ends() -> Any:
    from streamglm.step import Step

    return Step(ends=(0,))


def _timed(model: Any, start: int, tokens: int, runs: int) -> float:
    import torch

    seconds = []
    for _ in range(runs + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        passed(model, start, tokens, model.spec.rows.chunk)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        model.executor.run(_ends())
    return median(seconds[1:])


def whole(model: Any, tokens: int, runs: int, peak: Mapping[str, float]) -> dict[str, Any]:
    """A prompt from its first token on."""
    return _row(model, 0, tokens, _timed(model, 0, tokens, runs), peak)


def behind(model: Any, start: int, runs: int, peak: Mapping[str, float]) -> dict[str, Any]:
    """Chunks behind a random history."""
    tokens = _CHUNKS_BEHIND * model.spec.rows.chunk
    return _row(model, start, tokens, _timed(model, start, tokens, runs), peak)


def _row(
    model: Any, start: int, tokens: int, seconds: float, peak: Mapping[str, float]
) -> dict[str, Any]:
    floor = floor_seconds(model, start, tokens, peak)
    return {
        "start": start,
        "tokens": tokens,
        "ms": 1e3 * seconds,
        "tokens_per_second": tokens / seconds,
        "floor_ms": 1e3 * floor,
        "of_floor": floor / seconds,
    }


def floor_seconds(model: Any, start: int, tokens: int, peak: Mapping[str, float]) -> float:
    """Every product at the speed of a square one; of routed experts, their bytes once a pass where
    that takes longer."""
    spec, chunk = model.spec, model.spec.rows.chunk
    _, stacks = model.matrices()
    share = spec.num_experts_per_tok / spec.n_routed_experts
    routed = 0.0
    for at in range(0, tokens, chunk):
        rows = min(chunk, tokens - at)
        touched = 1.0 - (1.0 - share) ** rows
        for one in stacks:
            products = 2 * rows * share * one.count * one.width * one.depth / peak["bf16_flops"]
            routed += max(products, touched * one.bytes / peak["copy_bytes_per_second"])
    return routed + flops(model, start, tokens) / peak["bf16_flops"]


def flops(model: Any, start: int, tokens: int) -> float:
    """Products of matrices but those of routed experts, of attention over what a row attends to,
    and of scores."""
    spec, trunk = model.spec, model.passes.trunk
    elements = sum(one.count * one.width * one.depth for one in trunk.matrices())
    elements -= spec.vocab_size * spec.hidden_size
    middle = start + tokens // 2
    seen = min(middle, spec.dense_limit)
    pairs = 4 * spec.heads * spec.kv_lora_rank * seen
    scored = 0 if middle <= spec.dense_limit else middle // spec.pool
    scores = 2 * spec.index_heads * spec.index_dim * scored
    return float(tokens * (2 * elements + len(spec.dsa_layers) * (pairs + scores)))


def table(shapes: Mapping[str, Any], numbers: Mapping[str, Any]) -> Table:
    """The numbers for a person."""
    shown = Table(
        "behind", "tokens", "ms", "tokens/s", "floor, ms", "of the floor", "transformers / ours",
        title=f"{shapes['model']}, {shapes['layers']} layers, {shapes['experts']} experts, "
        f"{shapes['gpu']}, passes of {shapes['chunk']:,} rows; bits equal",
    )  # fmt: skip
    for row in numbers["prompts"]:
        peer = numbers["peers"].get(str(row["tokens"])) if not row["start"] else None
        shown.add_row(
            f"{row['start']:,}",
            f"{row['tokens']:,}",
            f"{row['ms']:.1f}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['floor_ms']:.1f}",
            f"{row['of_floor']:.2f}",
            f"{peer['prompt_ms'] / row['ms']:.1f}" if peer else "",
        )
    return shown
