"""The latent split against none: what each rank holds alone, and what goes between ranks, changes
no bit.

Owns the cases of ranks that hold latent rows of their own pages alone. Knows ranks only as whoever
runs a step; no torch. All other cases are those of `check_cases.py`, over several classes of pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamglm.commands.check_cases import (
    Bed,
    Bits,
    Case,
    Comparison,
    alone,
    cases,
    decode,
)
from streamglm.commands.check_edges import ROOM, SLOTS
from streamglm.commands.check_streams import Store

_OF_ONE_POOL = (
    "pages == windows",
    "resumed == fresh: host memory",
    "kept bytes follow the position",
)
"""Cases that count the pages or the bytes of a pool that is whole on every rank."""


async def prompts(bed: Bed) -> list[Bits]:
    """Prompts around every boundary and a long one, in every class of pages, side by side with
    replies of other classes; for a comparison with ranks that hold everything."""
    streams, found = bed.streams(Store(slots=SLOTS), seed=21), []
    for place, length in enumerate((*bed.edges.lengths, bed.edges.long)):
        prompt = bed.tokens(21, length)
        home = place % bed.classes
        streams.begin(0, prompt, room=ROOM, resume=False, home=home)
        other = bed.tokens(22, bed.edges.page + 3)
        streams.begin(1, other, room=ROOM, resume=False, home=(home + 1) % bed.classes)
        first = await streams.fill(0, 1)
        both = await decode(streams, bed, first)
        found += [both[0], both[1]]
    await streams.close()
    return found


def split_equals_whole(whole: Sequence[Bits]) -> Case:
    """Ranks of the split against `whole`, what ranks without it gave to `prompts`."""

    async def case(bed: Bed, compare: Comparison) -> None:
        lengths = (*bed.edges.lengths, bed.edges.long)
        for place, (found, wanted) in enumerate(zip(await prompts(bed), whole, strict=True)):
            which = "a stream beside it" if place % 2 else "alone in its class"
            compare.same(f"{lengths[place // 2]} tokens, {which}", found, wanted)

    return case


async def carried_equals_home(bed: Bed, compare: Comparison) -> None:
    """A kept prompt that is resumed in every class of pages, its own and the others."""
    streams = bed.streams(Store(slots=SLOTS), seed=23)
    page = bed.edges.page
    for length in (*bed.edges.lengths[::3], bed.edges.long):
        prompt = bed.tokens(23, length)
        streams.kept.clear()
        mark = (length - 1) // page * page
        _, fresh = await alone(streams, bed, prompt, keep=(mark,))
        for home in range(bed.classes):
            cached = streams.begin(2, prompt, room=ROOM, home=home)
            compare.same(f"{length} tokens: resumed at {cached}", cached, mark)
            found = await decode(streams, bed, await streams.fill(2))
            compare.same(f"{length} tokens, carried to class {home}", found[2], fresh)
    await streams.close()


def split_cases() -> Iterator[tuple[str, Case]]:
    """What is proved of ranks of the split, by themselves."""
    yield "carried == home", carried_equals_home
    for name, case in cases():
        if name not in _OF_ONE_POOL:
            yield name, case
