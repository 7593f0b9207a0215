"""`python -m bench kernels`: every kernel beside its floor, its reference and its peers, one run.

Owns the order of things: first the contracts of the chosen kernels (one that breaks its own has no
time, and the run fails), then the ceilings of this machine in this run, then times. Knows no
operator: calls, bytes and operations are the contracts', and sizes theirs and `kernel_sizes`'.
Kernels are timed by the replay of a graph of calls on copies of their tensors, more of them than
the cache holds. Invariant: a line is printed as soon as it is known, so that a run that is cut off
has said what it measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench import kernel_peers, kernel_plot
from bench.kernel_sizes import Repeated, sizes_of
from bench.record import RESULTS, Void, record
from streamglm.commands.check_kernels import kernel_findings
from streamglm.kernels import OPS, launch
from streamglm.kernels.contract import (
    TORCH,
    TRITON,
    Call,
    Case,
    Contract,
    ContractBroken,
    Kernel,
    Values,
    arrays,
)

NO_GPU = (
    "No GPU is there: kernels run in Triton's interpreter on small cases. The times say that the "
    "bench works, and nothing of the kernels."
)
CACHE = 128 * 2**20
"""Bytes that a round of calls goes through on a GPU: twice an H200's L2."""
LEAST = 4
"""Calls of a round: a kernel of a model does not start on an idle GPU."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this machine can do, measured in this run."""

    bytes_a_second: float
    """Read and written by a copy."""
    flops: float
    """Of a bfloat16 product on a GPU, of a float32 one on the CPU."""

    def floor(self, moved: int, flops: int) -> float:
        """Seconds that no implementation can go below."""
        return max(moved / self.bytes_a_second, flops / self.flops)


@dataclass(frozen=True, slots=True)
class Line:
    """One operator at one size; seconds a call."""

    op: str
    case: str
    ours: float
    floor: float
    reference: float | None
    """None where it would take longer than all else."""
    peers: dict[str, float]

    @property
    def text(self) -> str:
        """The line as it comes in."""
        peers = "".join(
            f", {name} {_us(s)} ({s / self.ours:.2f}x)" for name, s in self.peers.items()
        )
        return f"{self.op}, {self.case}: {_us(self.ours)} us, {self.share:.2f} of the floor{peers}"

    @property
    def share(self) -> float:
        """Of the floor: 1 is as fast as can be."""
        return self.floor / self.ours


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m bench kernels`."""
    parser.add_argument(
        "--only", metavar="TEXT", nargs="+", default=[""], help="operators with one in the name"
    )
    parser.add_argument(
        "--goals", action="store_true", help="the goals' sizes alone, where an operator has any"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="small cases in Triton's interpreter, without a GPU"
    )
    parser.add_argument("--runs", type=int, default=20, help="median of this many (default 20)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, append the record, draw the plot. Raises `Void`."""
    console = Console()
    if args.tiny:
        _interpret()
        console.print(NO_GPU)
    else:
        _need_gpu()
    broken = _broken(args, console)
    with _there(args.tiny):
        ceilings = _ceilings(args.tiny)
    lines: list[Line] = []
    for line in _measured(args, ceilings, broken):
        console.print(line.text, highlight=False, markup=False, soft_wrap=True)
        lines.append(line)
    if not lines:
        raise Void(f"no kernel with a call to time has {' or '.join(args.only)} in its name")
    device = NO_GPU if args.tiny else torch.cuda.get_device_name()
    _show(console, lines)
    numbers = {f"{line.op}, {line.case}": asdict(line) for line in lines}
    shapes = {"device": device, "tiny": args.tiny, "runs": args.runs, "ceilings": asdict(ceilings)}
    file = record("kernels", shapes, numbers, folder=args.results)
    plot = args.results / "kernels.svg"
    plot.write_text(kernel_plot.svg([(f"{x.op}, {x.case}", x.share) for x in lines], device))
    console.print(f"{file} and {plot.name} beside it", highlight=False, markup=False)
    return 1 if broken else 0


def _need_gpu() -> None:
    try:
        launch.device()
    except launch.NoDevice as error:
        raise Void(f"{error}; --tiny shows that the bench works without one") from None


def _interpret() -> None:
    """Make this process one that interprets kernels. Raises `Void` when it is too late."""
    if "triton" in sys.modules and os.environ.get(launch.SWITCH) != "1":
        raise Void("Triton is loaded already, and compiles: run --tiny in a process of its own")
    os.environ[launch.SWITCH] = "1"


def _there(tiny: bool) -> contextlib.AbstractContextManager[None]:
    """Where kernels run."""
    return launch.interpreted() if tiny else contextlib.nullcontext()


def _chosen(args: argparse.Namespace) -> Iterator[tuple[Contract, Kernel]]:
    for op in OPS:
        if op.kernel and any(text in op.name for text in args.only):
            yield op, op.kernel


def _broken(args: argparse.Namespace, console: Console) -> set[str]:
    """Operators whose kernels break their contracts, each said in a line."""
    chosen = [op for op, _ in _chosen(args)]
    if args.tiny:
        with _there(tiny=True):
            broken = {op.name: said for op in chosen if (said := _tiny_break(op))}
    else:
        with console.status("contracts first") as status:
            findings = kernel_findings(status.update, chosen)
        broken = {one.name: one.differences[0] for one in findings if not one.ok}
    for said in broken.values():
        console.print(f"no time: {said}", style="bold red", markup=False)
    return set(broken)


def _tiny_break(op: Contract) -> str | None:
    assert op.kernel
    try:
        op.verify(op.kernel.cases[0], TRITON)
    except ContractBroken as error:
        return str(error)
    return None


def _measured(args: argparse.Namespace, ceilings: Ceilings, broken: set[str]) -> Iterator[Line]:
    for op, kernel in _chosen(args):
        if op.name in broken or kernel.ready is None or kernel.work is None:
            continue
        cases = kernel.cases[:1] if args.tiny else sizes_of(op.name, kernel, args.goals)
        for case in cases:
            with _there(args.tiny):
                yield _line(op, kernel, case, ceilings, args)


def _line(
    op: Contract, kernel: Kernel, case: Case, ceilings: Ceilings, args: argparse.Namespace
) -> Line:
    """Raises `Void` where a peer computes something else."""
    assert kernel.ready
    assert kernel.work
    timed = _by_clock if args.tiny else _by_graph
    values = op.inputs(case.sizes, Repeated(np.random.PCG64(1)))
    work = kernel.work(values)
    copies = 1 if args.tiny else min(256, -(-CACHE // max(work.bytes, 1)))
    apart = [deepcopy(values) for _ in range(copies)]  # weights are made once for each
    turns = 1 if args.tiny else -(-LEAST // copies)
    calls = [kernel.ready(each, TRITON) for each in apart]
    ours = timed(calls * turns, args.runs)
    peers = {}
    for name, make in _peers(op, values):
        others = [make(each) for each in apart]
        peers[name] = timed([call for call in others if call is not None] * turns, args.runs)
    small = case in kernel.full or args.tiny
    return Line(
        op=op.name,
        case=case.name,
        ours=ours,
        floor=ceilings.floor(work.bytes, work.flops),
        reference=_by_clock([kernel.ready(values, TORCH)], 1) if small else None,
        peers=peers,
    )


def _peers(op: Contract, values: Values) -> Iterator[tuple[str, kernel_peers.Make]]:
    """Those that are installed. Raises `Void` if one gives more than another rounding of ours,
    which the contract has shown to be right."""
    found = list(kernel_peers.of(op.name))
    want = op.run(values, TRITON) if found else {}
    for name, make in found:
        first = make(values)
        if first is None:
            continue
        for output, value in arrays(first()).items():
            limit = 0.05 * max(1.0, np.abs(want[output]).max())
            if not np.abs(value.astype(np.float64) - want[output]).max() <= limit:
                raise Void(f"{op.name}: {name} computes something else than our kernel")
        yield name, make


def _by_clock(calls: Sequence[Call], runs: int) -> float:
    """Seconds a call, by the clock: for the CPU."""
    seconds = []
    for _ in range(min(runs, 3)):
        start = time.perf_counter()
        for call in calls:
            call()
        seconds.append((time.perf_counter() - start) / len(calls))
    return median(seconds)


def _by_graph(calls: Sequence[Call], runs: int) -> float:
    """Seconds a call, by the replay of a graph of all calls: an eager call costs more than most."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call() for call in calls]
    return _replayed(graph.replay, runs) / len(kept)


def _replayed(replay: Callable[[], object], runs: int) -> float:
    for _ in range(3):
        replay()
    seconds = []
    for _ in range(runs):
        start, stop = (torch.Event(device="cuda", enable_timing=True) for _ in range(2))
        start.record()
        replay()
        stop.record()
        stop.synchronize()
        seconds.append(float(start.elapsed_time(stop)) / 1e3)
    return median(seconds)


def _ceilings(tiny: bool) -> Ceilings:
    """A copy of memory and a square product, as large as the device deserves."""
    device = launch.device()
    size, edge = (2**22, 256) if tiny else (2**30, 8192)
    given = torch.zeros(size, dtype=torch.uint8, device=device)
    taken = torch.empty_like(given)
    dtype = torch.float32 if tiny else torch.bfloat16
    a = torch.randn(edge, edge, device=device).to(dtype)
    out = torch.empty_like(a)
    copy: Call = lambda: {"y": taken.copy_(given)}  # noqa: E731
    product: Call = lambda: {"y": torch.mm(a, a, out=out)}  # noqa: E731
    if tiny:
        return Ceilings(2 * size / _by_clock([copy], 10), 2 * edge**3 / _by_clock([product], 10))
    # not in a graph, where a copy is not the kernel that it is outside, and slower
    return Ceilings(2 * size / _replayed(copy, 10), 2 * edge**3 / _replayed(product, 10))


def _show(console: Console, lines: Sequence[Line]) -> None:
    table = Table(title="kernels, microseconds a call")
    for column in ("operator", "case", "ours", "floor", "of the floor", "reference, CPU", "peers"):
        table.add_column(column, justify="left" if column in ("operator", "case") else "right")
    for line in lines:
        peers = [f"{name} {_us(s)} ({s / line.ours:.2f}x)" for name, s in line.peers.items()]
        cells = (_us(line.ours), _us(line.floor), f"{line.share:.2f}", _us(line.reference))
        table.add_row(line.op, line.case, *cells, "\n".join(peers))
    console.print(table)


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.1f}"
