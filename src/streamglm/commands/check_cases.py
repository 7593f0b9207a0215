"""The equalities that a check proves, each as one comparison of bits over many streams.

Owns what is compared with what, and at which lengths. Knows ranks only as whoever runs a step and
answers with digests (`check_rank.py`); no torch, no files, no words beyond a case's name. A case
gives what differs; nothing is what it promises.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from streamglm.commands.check_edges import LANES, ROOM, SLOTS, Edges, pool_of
from streamglm.commands.check_rank import NOT_FINITE, Answer
from streamglm.commands.check_streams import Runs, Store, Streams
from streamglm.errors import StreamglmError
from streamglm.model.spec import ModelSpec
from streamglm.pool.layout import CacheShape

ROWS = 8
"""Decoded rows of a stream, of given tokens: what is drawn cannot hide a difference."""
_PLENTY = 1 << 40
"""Bytes of a budget that is never full."""


@dataclass(frozen=True, slots=True)
class Bed:
    """Ranks that are at rest, and the numbers of their caches."""

    ranks: Runs
    spec: ModelSpec
    shape: CacheShape
    classes: int = 1
    """Of pages: as many as ranks where each has its own."""

    @property
    def edges(self) -> Edges:
        return Edges.of(self.spec)

    @property
    def pages(self) -> int:
        """Page ids of the pool, each class with a page that nobody leases."""
        return pool_of(self.edges, self.classes)

    def streams(
        self,
        store: Store | None = None,
        *,
        seed: int = 1,
        windows: bool = False,
        pages: int | None = None,
    ) -> Streams:
        """Streams over an idle book of all pages, or of the first `pages`."""
        return Streams(
            self.ranks,
            self.shape,
            pages=pages or self.pages,
            classes=self.classes,
            rows=self.spec.rows,
            store=store or Store(),
            window=self.edges.window if windows else None,
            seed=seed,
        )

    def tokens(self, seed: int, length: int) -> tuple[int, ...]:
        """Token ids that look random and are the same everywhere."""
        state, found = seed * 2_654_435_761 + 1, []
        for _ in range(length):
            state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
            found.append((state >> 33) % self.spec.vocab_size)
        return tuple(found)


@dataclass(slots=True)
class Comparison:
    """What one case has compared so far."""

    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def same(self, what: str, found: object, wanted: object) -> None:
        """Count one comparison; `what` names it where it differs."""
        self.compared += 1
        if found != wanted:
            self.differences.append(what)


Case = Callable[[Bed, Comparison], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a case came to."""

    name: str
    compared: int
    differences: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """It compared something, and found nothing."""
        return self.compared > 0 and not self.differences


async def find(name: str, case: Case, bed: Bed) -> Finding:
    """Run a case. Ranks that fail, and a book that is not idle at its end, are differences."""
    comparison, began = Comparison(), time.perf_counter()
    try:
        await case(bed, comparison)
    except (AssertionError, StreamglmError) as error:
        comparison.differences.append(f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - began
    return Finding(name, comparison.compared, tuple(comparison.differences), seconds)


# -- streams

Bits = tuple[int, ...]
"""The digests of a stream: at its prompt's end, and after each decoded row."""


async def decode(streams: Streams, bed: Bed, first: dict[int, int]) -> dict[int, Bits]:
    """ROWS rows of every lane of `first`, side by side; then the lanes end."""
    found = {lane: [number] for lane, number in first.items()}
    for token in bed.tokens(99, ROWS):
        for lane, number in (await streams.step(rows=dict.fromkeys(found, token))).items():
            found[lane].append(number)
    for lane in found:
        streams.end(lane)
    return {lane: tuple(numbers) for lane, numbers in found.items()}


async def alone(
    streams: Streams,
    bed: Bed,
    prompt: Sequence[int],
    *,
    lane: int = 0,
    keep: Sequence[int] = (),
    sizes: Sequence[int] = (),
    resume: bool = False,
) -> tuple[int, Bits]:
    """One stream with the ranks to itself: tokens resumed from, and its digests."""
    cached = streams.begin(lane, prompt, room=ROOM, keep=keep, sizes=sizes, resume=resume)
    found = await decode(streams, bed, await streams.fill(lane))
    return cached, found[lane]


# -- equalities


async def pages_equal_windows(bed: Bed, compare: Comparison) -> None:
    """Shuffled pages against whole windows in order."""
    windows, wanted = bed.streams(windows=True), {}
    for length in bed.edges.lengths:
        _, wanted[length] = await alone(windows, bed, bed.tokens(1, length), lane=length % LANES)
    await windows.close()
    paged = bed.streams(seed=2)
    for length in bed.edges.lengths:
        _, found = await alone(paged, bed, bed.tokens(1, length))
        compare.same(f"{length} tokens", found, wanted[length])
    await paged.close()


async def chunked_equals_whole(bed: Bed, compare: Comparison) -> None:
    """Prompts in chunks of every kind against the largest chunks there are."""
    tile, chunk = bed.spec.rows.kda_chunk, bed.spec.rows.chunk
    streams = bed.streams(seed=3)
    for length in bed.edges.lengths:
        prompt = bed.tokens(2, length)
        _, wanted = await alone(streams, bed, prompt)
        for sizes in ((tile, 2 * tile, chunk - tile), (chunk - tile,)):
            _, found = await alone(streams, bed, prompt, sizes=sizes)
            compare.same(f"{length} tokens in chunks of {sizes}", found, wanted)
    await streams.close()


async def concurrent_equals_solo(bed: Bed, compare: Comparison) -> None:
    """Eight streams that fill and decode side by side against each of them alone."""
    streams = bed.streams(seed=4)
    prompts = {
        lane: bed.tokens(10 + lane, length) for lane, length in enumerate(bed.edges.lengths[:LANES])
    }
    solo = {}
    for lane, prompt in prompts.items():
        _, solo[lane] = await alone(streams, bed, prompt)
    waiting, filling, beside = list(reversed(prompts)), list[int](), bed.tokens(99, ROWS)
    together: dict[int, list[int]] = {}
    while waiting or filling or any(len(mine) <= ROWS for mine in together.values()):
        if waiting:
            streams.begin(waiting[-1], prompts[waiting[-1]], room=ROOM, resume=False)
            filling.append(waiting.pop())
        rows = {lane: beside[len(mine) - 1] for lane, mine in together.items() if len(mine) <= ROWS}
        now = filling[:2]
        for lane, number in (await streams.step(fill=now, rows=rows)).items():
            together.setdefault(lane, []).append(number)
        filling = [lane for lane in filling if lane not in together]
    for lane in prompts:
        streams.end(lane)
        compare.same(f"{len(prompts[lane])} tokens", tuple(together[lane]), solo[lane])
    await streams.close()


def _resumed(store: Store, *, demoted: bool = False) -> Case:
    """Streams that resume at the last mark of a kept prompt against the one that kept it.

    `demoted`: from host memory, after another stream has taken every page.
    """

    async def case(bed: Bed, compare: Comparison) -> None:
        page = bed.edges.page
        streams = bed.streams(store, seed=5, pages=bed.edges.window if demoted else None)
        for length in bed.edges.lengths:
            prompt = bed.tokens(3, length)
            streams.kept.clear()
            mark = (length - 1) // page * page
            _, fresh = await alone(streams, bed, prompt, keep=(mark,))
            if demoted:
                compare.same(f"{length} tokens: in host memory", streams.demote(), 1)
                streams.begin(0, bed.tokens(4, bed.edges.lengths[-1]), room=ROOM, resume=False)
                await streams.step()
                streams.end(0)
            cached, found = await alone(streams, bed, prompt, lane=1, resume=True)
            compare.same(f"{length} tokens: resumed at {cached}", cached, mark)
            compare.same(f"{length} tokens", found, fresh)
        await streams.close()

    return case


async def long_prompts(bed: Bed, compare: Comparison) -> None:
    """One long prompt: in whole windows, on pages in chunks of another size, and resumed."""
    tile, page = bed.spec.rows.kda_chunk, bed.edges.page
    prompt = bed.tokens(9, bed.edges.long)
    mark = (len(prompt) - 1) // page * page
    windows = bed.streams(windows=True)
    _, wanted = await alone(windows, bed, prompt, lane=3)
    await windows.close()
    streams = bed.streams(Store(slots=SLOTS), seed=11)
    sizes = (bed.spec.rows.chunk - tile,)
    _, found = await alone(streams, bed, prompt, keep=(mark,), sizes=sizes)
    compare.same("pages == windows", found, wanted)
    cached, found = await alone(streams, bed, prompt, resume=True)
    compare.same(f"resumed at {cached}", cached, mark)
    compare.same("resumed == fresh", found, wanted)
    await streams.close()


async def heirs_equal_fresh(bed: Bed, compare: Comparison) -> None:
    """Three heirs of one kept state side by side, the state gone before they end."""
    page, streams = bed.edges.page, bed.streams(Store(slots=SLOTS), seed=6)
    prefix = bed.tokens(5, 3 * page)
    prompts = {lane: prefix + bed.tokens(lane, 1 + lane * page // 2) for lane in (1, 2, 3)}
    fresh = {lane: (await alone(streams, bed, prompt))[1] for lane, prompt in prompts.items()}
    await alone(streams, bed, (*prefix, 0), keep=(3 * page,))
    for lane, prompt in prompts.items():
        cached = streams.begin(lane, prompt, room=ROOM)
        compare.same(f"lane {lane}: resumed at {cached}", cached, 3 * page)
    first = await streams.fill(*prompts)
    streams.kept.clear()
    streams.begin(4, bed.tokens(6, bed.edges.lengths[-1]), room=ROOM)  # on what the state held
    await streams.fill(4)
    streams.end(4)
    for lane, found in (await decode(streams, bed, first)).items():
        compare.same(f"lane {lane}", found, fresh[lane])
    await streams.close()


# -- bytes and poison


async def bytes_follow_position(bed: Bed, compare: Comparison) -> None:
    """Copies kept at several marks: what the ranks hold grows by exactly their bytes."""
    page, streams = bed.edges.page, bed.streams(Store(budget=_PLENTY), seed=7)
    wanted = 0
    for pages in (1, 2, 4, 7):
        at = pages * page
        streams.begin(0, bed.tokens(20 + pages, at + 1), room=ROOM, keep=(at,), seed=Answer.COPIES)
        wanted += bed.shape.kept_bytes(at)
        compare.same(f"a state at {at}", (await streams.fill(0))[0], wanted)
        streams.end(0)
    streams.kept.clear()
    streams.begin(0, bed.tokens(1, 1), seed=Answer.COPIES)
    compare.same("after all are dropped", (await streams.fill(0))[0], 0)
    streams.end(0)
    await streams.close()


async def digests(bed: Bed) -> list[Bits]:
    """Fresh and resumed streams, for a comparison across ranks."""
    page, streams, found = bed.shape.page_rows, bed.streams(Store(slots=SLOTS), seed=8), []
    for length in bed.edges.lengths[::2]:
        prompt = bed.tokens(7, length)
        found.append((await alone(streams, bed, prompt, keep=(page,)))[1])
        found.append((await alone(streams, bed, prompt, lane=1, resume=True))[1])
    await streams.close()
    return found


def poison_changes_nothing(plain: Sequence[Bits]) -> Case:
    """Ranks that poison pages against `plain`, the digests of ranks that do not."""

    async def case(bed: Bed, compare: Comparison) -> None:
        for place, (found, wanted) in enumerate(zip(await digests(bed), plain, strict=True)):
            compare.same(f"{bed.edges.lengths[place // 2 * 2]} tokens", found, wanted)

    return case


async def faults_show(bed: Bed, compare: Comparison) -> None:
    """What a check relies on: an unwritten page turns a reply to NaN, and another token anywhere
    in a prompt is another digest."""
    page, streams = bed.edges.page, bed.streams(seed=9)
    prompt = bed.tokens(8, page + 5)
    streams.begin(0, prompt, sizes=(page,), room=ROOM, seed=Answer.SPOILT)
    compare.same("an unwritten page is not seen", (await streams.fill(0))[0], NOT_FINITE)
    streams.end(0)
    _, wanted = await alone(streams, bed, prompt)
    other = ((prompt[0] + 1) % bed.spec.vocab_size, *prompt[1:])
    _, found = await alone(streams, bed, other)
    compare.same("another first token is not seen", set(found) & set(wanted), set())
    await streams.close()


async def pool_is_idle(bed: Bed, compare: Comparison) -> None:
    """After all that came before: one lane can lease every page, and no copy is left."""
    streams = bed.streams(seed=10)
    room = streams.pages * bed.edges.page - 1
    streams.begin(0, bed.tokens(1, 1), room=room, seed=Answer.COPIES)
    compare.same("pages are lost", len(streams.book.pages(0)), bed.edges.pages)
    compare.same("a kept state is left", (await streams.fill(0))[0], 0)
    streams.end(0)
    await streams.close()
    stats = streams.book.stats()
    compare.same("pages are not free", (stats.free, stats.leased, stats.kept), (stats.total, 0, 0))


def resumed_cases() -> Iterator[tuple[str, Case]]:
    """Resumed == fresh, wherever a state may lie."""
    yield "resumed == fresh: shared pages", _resumed(Store(slots=SLOTS))
    yield "resumed == fresh: a copy", _resumed(Store(budget=_PLENTY))
    yield (
        "resumed == fresh: host memory",
        _resumed(Store(slots=SLOTS, host=_PLENTY), demoted=True),
    )
    yield "three heirs == fresh", heirs_equal_fresh


def cases() -> Iterator[tuple[str, Case]]:
    """What is proved of ranks that poison their pages."""
    yield "pages == windows", pages_equal_windows
    yield "chunked == whole", chunked_equals_whole
    yield "concurrent == solo", concurrent_equals_solo
    yield from resumed_cases()
    yield "a prompt of more than 32 pages", long_prompts
    yield "kept bytes follow the position", bytes_follow_position
    yield "a planted fault shows", faults_show


IDLE: tuple[str, Case] = ("pool idle at the end", pool_is_idle)
"""Of the same ranks, after all other cases."""
