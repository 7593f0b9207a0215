"""Fit: does what lies in the folder match the model, before anything is read or started.

Owns the comparison of headers and tokenizer with a `ModelSpec`; formats are told in `formats`.
Imports no torch: the server process calls it and refuses before it starts a rank. Invariant: a
`Plan` that was made reads every text tensor exactly once and fills every parameter whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamglm.errors import CheckpointError
from streamglm.model.spec import ModelSpec
from streamglm.weights.formats import Parts, parts, refuse_unread, tensor_name
from streamglm.weights.headers import Catalogue, Stored, catalogue
from streamglm.weights.layout import VISION, Layout, Source, layout


@dataclass(frozen=True, slots=True)
class Job:
    """One tensor to read: where it goes, and in which form it lies where."""

    source: Source
    parts: Parts

    @property
    def stored(self) -> Stored:
        """Its numbers."""
        return self.parts.numbers


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rank reads, in the order in which it lies in the files.

    `mtp`: the next-token layer is there. `skipped_vision`: tensors left in the files.
    `total_bytes`: bytes of the jobs' tensors that this rank reads, scales not counted.
    """

    jobs: tuple[Job, ...]
    params: dict[str, tuple[int, ...]]
    mtp: bool
    skipped_vision: int
    total_bytes: int


def check_files(folder: Path, spec: ModelSpec | None = None) -> Plan:
    """Read the headers of every weight file in `folder` and match them with the model.

    `spec` is read from the folder when it is not given. Raises `CheckpointError`, one line naming
    the file or the tensor.
    """
    return plan(spec or ModelSpec.from_folder(folder), catalogue(folder))


def check_tokenizer(spec: ModelSpec, folder: Path) -> int | None:
    """How many ids the folder's tokenizer spells (its largest + 1); None when there is none.

    Raises `CheckpointError` with both numbers when an id lies beyond the model's vocabulary. A
    vocabulary with rows that no token spells is fine: those are never drawn.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    try:
        spelled = 1 + max(_token_ids(json.loads(file.read_bytes())))
    except OSError as error:
        raise CheckpointError(f"{file.name}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{file.name}: not a tokenizer of the tokenizers library") from None
    if spelled > spec.vocab_size:
        raise CheckpointError(
            f"tokenizer.json spells {spelled} ids, and config.json has vocab_size {spec.vocab_size}"
        )
    return spelled


def _token_ids(tokenizer: dict[str, Any]) -> Iterable[int]:
    vocab = tokenizer["model"]["vocab"]
    yield from vocab.values() if isinstance(vocab, dict) else range(len(vocab))
    for token in tokenizer.get("added_tokens") or []:
        yield token["id"]


def plan(spec: ModelSpec, files: Catalogue, *, rank: int = 0, world: int = 1) -> Plan:
    """Match what lies in `files` with what `spec` needs; `check_files` without the disk."""
    stored = {n: s for n, s in files.tensors.items() if not n.startswith(VISION)}
    refuse_unread(stored)
    table = layout(spec, rank=rank, world=world)
    names = {tensor_name(n) for n in stored}
    mtp = _has_mtp(table, names)
    sources = {n: s for n, s in table.sources.items() if mtp or not s.mtp}
    _refuse_missing(sources, names)
    jobs = tuple(
        Job(sources[name], parts(name, sources[name].shape, stored))
        for name in map(tensor_name, stored)
        if name in sources
    )
    _refuse_unknown(jobs, stored)
    used = {source.param for source in sources.values()}
    return Plan(
        jobs=jobs,
        params={name: shape for name, shape in table.params.items() if name in used},
        mtp=mtp,
        skipped_vision=len(files.tensors) - len(stored),
        total_bytes=sum(read_bytes(job) for job in jobs),
    )


def rows_read(source: Source) -> tuple[int, int]:
    """Rows of the first axis that a rank reads: its own, or all where columns are divided."""
    return (source.part.start, source.part.stop) if source.cut == 0 else (0, source.shape[0])


def read_bytes(job: Job) -> int:
    """Bytes of a tensor's numbers that a rank reads."""
    start, stop = rows_read(job.source)
    return (job.stored.stop - job.stored.start) // job.source.shape[0] * (stop - start)


def _has_mtp(table: Layout, stored: Set[str]) -> bool:
    """Whether the next-token layer is in the files; all of it or none of it must be."""
    names = [n for n, source in table.sources.items() if source.mtp]
    absent = [n for n in names if n not in stored]
    if absent and len(absent) < len(names):
        raise CheckpointError(
            f"{absent[0]}: missing; the next-token layer has {len(names) - len(absent)} of its "
            f"{len(names)} tensors"
        )
    return bool(names) and not absent


def _refuse_missing(sources: dict[str, Source], stored: Set[str]) -> None:
    absent = [n for n in sources if n not in stored]
    if absent:
        shape = list(sources[absent[0]].shape)
        raise CheckpointError(f"{absent[0]}: missing ({shape}){_more(len(absent) - 1)}")


def _refuse_unknown(jobs: Iterable[Job], stored: dict[str, Stored]) -> None:
    known = {part.name for job in jobs for part in job.parts}
    unknown = [n for n in stored if n not in known]
    if unknown:
        file = stored[unknown[0]].file.name
        raise CheckpointError(
            f"{unknown[0]}: in {file}, and no tensor of this model{_more(len(unknown) - 1)}"
        )


def _more(count: int) -> str:
    return f", and {count} more" if count else ""
