"""What one of several ranks computes of a model: heads, columns of an MLP, rows of the vocabulary.

Owns every cut between ranks. Knows no torch, no weights, no transport. Invariants: the parts of all
ranks, one behind the other, are the whole; and what all ranks must compute alike (routing,
selection, latents, norms) lies in weights of one shape on all of them, at one place.

A part is contiguous, and the first ranks take what is left over: 64 heads over 3 ranks are 22, 21
and 21. Columns of an MLP are cut in blocks, the blocks of a quantised checkpoint wherever there are
enough of them: 2,048 over 3 ranks are 768, 640 and 640.

A rank with fewer heads than the most has blank ones behind its own: zeros in its weights and in its
states, which add an exact zero. So the states of a lane, and the bytes that a plan counts for
them, are those of the rank with the most heads, on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamglm.errors import SettingError
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import head_share

BLOCK = 128
"""Columns of an MLP that stay together at best: those under one scale of a quantised checkpoint."""


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of rows or columns."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def share(total: int, rank: int, world: int) -> Span:
    """The part of `total` equal things that a rank takes; the first ranks take the rest."""
    assert 0 <= rank < world
    base, extra = divmod(total, world)
    start = rank * base + min(rank, extra)
    return Span(start, start + base + (rank < extra))


def block(total: int, world: int) -> int:
    """Columns of a block: the largest power of two, `BLOCK` at most, that divides `total` and
    leaves a block to each rank; 1 if there is none."""
    size = BLOCK
    while size > 1 and (total % size or total // size < world):
        size //= 2
    return size


def check(spec: ModelSpec, world: int) -> None:
    """Raises `SettingError`, naming what is too little for `world` ranks to share a model."""
    for count, name in (
        (spec.heads, "attention heads"),
        (spec.kda_heads, "heads of linear attention"),
        (spec.moe_intermediate_size, "columns of an expert"),
        (spec.intermediate_size, "columns of a dense MLP"),
        (spec.vocab_size, "rows of the vocabulary"),
    ):
        if count < world:
            raise SettingError(
                f"--ranks is {world}, and the model has {count} {name} to share: "
                f"--ranks {count} is the most"
            )


@dataclass(frozen=True, slots=True)
class Share:
    """The part of `rank` in `world`. `spec` is the whole model's."""

    spec: ModelSpec
    rank: int = 0
    world: int = 1

    @property
    def held(self) -> ModelSpec:
        """The numbers that the tensors of every rank have, blank heads included."""
        spec = self.spec
        return replace(
            spec,
            heads=head_share(spec.heads, self.world),
            kda_heads=head_share(spec.kda_heads, self.world),
        )

    @property
    def heads(self) -> Span:
        """Own heads of a layer that attends to latents."""
        return share(self.spec.heads, self.rank, self.world)

    @property
    def kda_heads(self) -> Span:
        """Own heads of a KDA layer."""
        return share(self.spec.kda_heads, self.rank, self.world)

    @property
    def vocabulary(self) -> tuple[int, ...]:
        """Rows of the head that each rank has."""
        spans = (share(self.spec.vocab_size, rank, self.world) for rank in range(self.world))
        return tuple(span.size for span in spans)

    def columns(self, inner: int) -> Span:
        """Own columns of an MLP of `inner`."""
        size = block(inner, self.world)
        blocks = share(inner // size, self.rank, self.world)
        return Span(blocks.start * size, blocks.stop * size)

    def most_columns(self, inner: int) -> int:
        """Columns of the rank with the most: the first."""
        return replace(self, rank=0).columns(inner).size
