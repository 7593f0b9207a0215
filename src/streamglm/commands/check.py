"""`streamglm check`: prove the law of exactness on the machine at hand.

Owns the command's flags, the ranks that it starts, and the table. What is proved is
`check_cases.py`; the receipt is `check_receipt.py`. Real rank processes compute, and answer with
digests of logits and states. Exit status 1 on any difference.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from streamglm import config
from streamglm.commands import check_rank
from streamglm.commands.check_cases import (
    IDLE,
    Bed,
    Case,
    Finding,
    cases,
    digests,
    find,
    poison_changes_nothing,
    resumed_cases,
)
from streamglm.commands.check_drafts import DRAFTED
from streamglm.commands.check_edges import LANES, SLOTS, Edges, pool_of
from streamglm.commands.check_receipt import COLUMNS, Receipt
from streamglm.commands.check_split import prompts, split_cases, split_equals_whole
from streamglm.commands.checkpoint import read_checkpoint
from streamglm.commands.hosts import settled, threads_of
from streamglm.commands.planning import planned, row_format, shape_of, spec_of
from streamglm.config import Settings
from streamglm.errors import SettingError
from streamglm.pool.layout import RowFormat
from streamglm.ranks.client import start_ranks
from streamglm.ranks.wire import RankSettings, SpecNumbers

DIFFERENT = 1
"""Exit status when anything differs."""
ROOM = 1 << 50
"""Bytes that are room for anything."""
SETTINGS = frozenset(
    {"layers", "expert_format", "device", "kv_cache", "kv_split", "ranks", "threads"}
)
"""The settings of `serve` that change what is computed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL, the settings of `serve` that change what is computed, and where the receipt goes."""
    config.add_arguments(parser, SETTINGS)
    parser.add_argument(
        "--receipt", metavar="FILE", type=Path, help="write the table there, too, as Markdown"
    )
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="prove the kernels' contracts at the model's sizes instead, which takes a GPU",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prove, print, and write the receipt; 0, or 1 when anything differs. Raises `StartError`."""
    console = Console()
    receipt = _kernels(console) if arguments.kernels else _model(console, arguments)
    show(console, receipt)
    if arguments.receipt is not None:
        arguments.receipt.write_text(receipt.markdown())
    return 0 if receipt.ok else DIFFERENT


def _kernels(console: Console) -> Receipt:
    """The kernels and the code of torch and Triton are all that matters: no checkpoint is read."""
    from streamglm.commands import check_kernels  # it needs torch, and the server does not

    with telling(console, "looking for a GPU") as told:
        findings = check_kernels.kernel_findings(told)
    return Receipt.of(check_kernels.about(), findings, check_kernels.CLAIM)


def _model(console: Console, arguments: argparse.Namespace) -> Receipt:
    settings = settled(config.resolve(vars(arguments)))
    if settings.kv_split:  # refused as `serve` refuses it, whatever the room
        plan = planned(spec_of(settings), settings, ROOM, world=settings.ranks)
        if plan.refused is not None:
            raise SettingError(plan.refused.line)
    settings = replace(settings, threads=threads_of(settings, settings.ranks))
    with telling(console, "reading the checkpoint") as told, _notes(told):
        findings = asyncio.run(Prover(settings, told).findings())
    about = {
        "model": settings.model,
        "computes on": settings.device,
        "pages hold": str(row_format(settings)),
        "ranks": f"{settings.ranks}{', latent split' * settings.kv_split}",
        "threads of a rank": str(settings.threads),
    }
    return Receipt.of(about, findings)


@contextlib.contextmanager
def telling(console: Console, first: str) -> Iterator[Callable[[str], object]]:
    """Where to say what happens now: in one line of a terminal, or line by line, so that a log of
    a check that was cut off has what it came to."""
    if not console.is_terminal:
        console.print(first, markup=False, highlight=False)
        yield partial(console.print, markup=False, highlight=False, soft_wrap=True)
        return
    with console.status(first) as status:
        yield status.update


@contextlib.contextmanager
def _notes(told: Callable[[str], object]) -> Iterator[None]:
    """What ranks note for the log is told here, where a check keeps none."""
    logger = logging.getLogger("streamglm.ranks")
    handler = _Told(told)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _Told(logging.Handler):
    def __init__(self, told: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told(record.getMessage())


def show(console: Console, receipt: Receipt) -> None:
    """The table, what differs, and the verdict."""
    table = Table(title="streamglm check")
    for column in COLUMNS:
        right = column in ("comparisons", "differences", "seconds")
        table.add_column(column, justify="right" if right else "left")
    for row in receipt.rows():
        table.add_row(*row, style=None if row[-1] == "equal" else "bold red")
    console.print(table)
    for line in (*receipt.differences(), receipt.verdict):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


class Prover:
    """All cases on the ranks of the settings, in their format and in fp8. `told` hears what happens
    now."""

    def __init__(self, settings: Settings, told: Callable[[str], object]) -> None:
        self._settings = settings
        self._checkpoint = read_checkpoint(settings)
        self._spec = spec_of(settings)
        self._told = told

    async def findings(self) -> list[Finding]:
        """One rank after the other, so that the machine holds the weights once."""
        rows = row_format(self._settings)
        async with self._bed(rows, poison=False) as bed:
            plain = await digests(bed)
        async with self._bed(rows, poison=True) as bed:
            poison = "poison changes nothing", poison_changes_nothing(plain)
            found = [await self._find(bed, *one) for one in (*cases(), poison, IDLE)]
        if self._settings.device == "cuda":
            async with self._bed(rows, poison=False, graphs=False) as bed:
                same = "graphs == launches one by one", poison_changes_nothing(plain)
                found.append(await self._find(bed, *same))
        async with self._bed(rows, poison=True, drafts=True) as bed:
            found.append(await self._find(bed, *DRAFTED))
        if self._settings.kv_split:
            found += await self._split(rows)
        if rows is not RowFormat.FP8:
            async with self._bed(RowFormat.FP8, poison=True) as bed:
                found += [
                    await self._find(bed, f"fp8: {name}", case)
                    for name, case in (*resumed_cases(), IDLE)
                ]
        return found

    async def _split(self, rows: RowFormat) -> list[Finding]:
        """Ranks of the latent split against the same number of ranks without it."""
        async with self._bed(rows, poison=True) as bed:
            whole = await prompts(bed)
        async with self._bed(rows, poison=True, split=True) as bed:
            split = "split == unsplit", split_equals_whole(whole)
            found = [
                await self._find(bed, f"split: {name}", case)
                for name, case in (split, *split_cases())
            ]
        async with self._bed(rows, poison=True, drafts=True, split=True) as bed:
            found.append(await self._find(bed, f"split: {DRAFTED[0]}", DRAFTED[1]))
        return found

    async def _find(self, bed: Bed, name: str, case: Case) -> Finding:
        self._told(name)
        found = await find(name, case, bed)
        counts = f"{found.compared} comparisons, {len(found.differences)} differences"
        self._told(f"{name}: {counts}, {found.seconds:.1f} s")
        return found

    @contextlib.asynccontextmanager
    async def _bed(
        self,
        rows: RowFormat,
        *,
        poison: bool,
        drafts: bool = False,
        split: bool = False,
        graphs: bool = True,
    ) -> AsyncIterator[Bed]:
        world = self._settings.ranks
        classes = world if split else 1
        self._told(f"starting {world} rank{'s' * (world > 1)} with pages of {rows}")
        settings = replace(self._settings, kv_cache=str(rows), drafts=None if drafts else 0)
        shape = shape_of(self._spec, settings, world=world)
        told = self._rank_settings(rows, poison, drafts, classes)
        told = msgspec.structs.replace(told, graphs=graphs)
        began = time.perf_counter()
        ranks = await start_ranks(told, world=world, build=check_rank.NAME)
        self._told(f"started in {time.perf_counter() - began:.1f} s")
        try:
            yield Bed(ranks, self._spec, shape, classes)
        finally:
            await ranks.close()

    def _rank_settings(
        self, rows: RowFormat, poison: bool, drafts: bool, classes: int
    ) -> RankSettings:
        spec = self._spec
        return RankSettings(
            model=self._checkpoint.place,
            layers=self._settings.layers,
            expert_format=self._settings.expert_format,
            device=self._settings.device,
            threads=self._settings.threads or 1,
            pages=pool_of(Edges.of(spec), classes),
            lanes=LANES,
            slots=SLOTS,
            rows=str(rows),
            kv_poison=poison,
            spelled_ids=self._checkpoint.spelled,
            spec=SpecNumbers(
                page_rows=spec.rows.page,
                chunk_rows=spec.rows.chunk,
                kda_chunk=spec.rows.kda_chunk,
                window_rows=spec.rows.window,
                vocab_size=spec.vocab_size,
                layers=len(spec.layers),
                verify_rows=spec.rows.verify if drafts else 1,
            ),
            drafts=drafts,
            kv_split=classes > 1,
        )
