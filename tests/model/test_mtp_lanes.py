"""The next-token layer's cache behind real lanes: the same rows and drafts in any chunking, beside
any neighbours, after any drafts, and in a reply that is resumed as in a fresh one.
"""

from collections.abc import Iterator, Sequence

import pytest

from streamglm.model import drafter as drafting
from streamglm.model.executor import Executor
from streamglm.model.state import FixedParts, LaneStates
from streamglm.pool.tensors import Raw
from streamglm.step import (
    Arrive,
    Begin,
    Chunk,
    Draw,
    Drawn,
    Put,
    Record,
    Restore,
    Row,
    Save,
    Step,
    Write,
)
from support.drafted import GREEDY, Drafted, Reply, engine, ids, knowing


@pytest.fixture(scope="module")
def executor() -> Executor:
    return engine(slots=4)


@pytest.fixture
def lanes(executor: Executor) -> Iterator[Drafted]:
    driven = Drafted(executor, seed=5)
    yield driven
    for lane in list(driven.replies):
        driven.end(lane)


def drafts_at_end(lanes: Drafted, lane: int) -> tuple[int, ...]:
    """What is drafted behind the reply as it stands, by one more window."""
    lanes.window([lane], {}, ahead=8)
    return lanes.replies[lane].drafts[-1]


def rows_of(lanes: Drafted, lane: int) -> list[bytes]:
    """The layer's rows of all known tokens but row 0."""
    cache = len(lanes.executor.spec.dsa_layers)
    return lanes.rows(lane, cache, 1, lanes.position[lane] + 1)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 63, 64, 65, 130, 257])
def test_rows_after_drafts_are_those_without(lanes: Drafted, length: int) -> None:
    """Refreshed with true hiddens: bytes of latents and pooled keys, and so the next drafts."""
    prompt = ids(length, length)
    lanes.begin(0, prompt, follow=True)
    plain = lanes.decode(0, 40)
    for ahead, pattern in ((5, [(2, 3), (0, 4), (4, 0), (1, 1)]), (0, [(15, 0)]), (15, [(3, 9)])):
        lanes.begin(1, prompt, ahead=ahead)
        drafted = lanes.decode(1, 33, knowing(plain.tokens, pattern), ahead=ahead)
        lanes.begin(2, prompt)
        lanes.decode(2, len(drafted.tokens))
        assert drafts_at_end(lanes, 1) == drafts_at_end(lanes, 2)
        assert rows_of(lanes, 1) == rows_of(lanes, 2)
        lanes.end(1)
        lanes.end(2)


def test_drafts_do_not_depend_on_the_chunking(lanes: Drafted) -> None:
    prompt = ids(9, 300)
    want = None
    for lane, sizes in enumerate(((), (64,), (192, 64), (256,))):
        lanes.begin(lane, prompt, ahead=6, sizes=sizes)
        found = lanes.replies[lane].drafts[-1]
        assert len(found) == 6
        assert want in (None, found)
        want = found


def test_drafts_do_not_depend_on_neighbours(lanes: Drafted) -> None:
    prompts = {lane: ids(70 + lane, 20 + 37 * lane) for lane in range(5)}
    alone = {}
    for lane, prompt in prompts.items():
        lanes.begin(lane, prompt, ahead=4)
        lanes.decode(lane, 9, ahead=3)
        alone[lane] = lanes.replies[lane].drafts
        lanes.end(lane)
    for lane in (3, 0, 4, 1, 2):
        lanes.begin(lane, prompts[lane], ahead=4)
    for _ in range(8):
        lanes.window([2, 4, 0, 3, 1], {}, ahead=3)
    for lane in prompts:
        assert lanes.replies[lane].drafts == alone[lane]


def resumed_drafts(lanes: Drafted, prompt: Sequence[int], at: int) -> tuple[Reply, Reply]:
    """A donor keeps its state at a mark; an heir resumes there, another starts afresh."""
    page = lanes.executor.spec.rows.page
    pages = tuple(range(40, 40 + -(-(len(prompt) + 100) // page)))
    run = lanes.executor.run
    run(Step(begins=(Begin(0, pages, GREEDY, drafts=True),)))
    run(Step(chunks=(Chunk(0, 0, tuple(prompt[:at]), False),), saves=(Save(1, 0, 2, False, at),)))
    run(Step(ends=(0,)))
    mine = pages[: at // page] + tuple(range(70, 70 + len(pages) - at // page))
    begin = Begin(3, mine, GREEDY, Restore(1, 2, at), drafts=True)
    chunk = Chunk(3, at, tuple(prompt[at:]), True, 6)
    drawn = run(Step(begins=(begin,), chunks=(chunk,))).drawn[0]
    resumed = behind(lanes, 3, drawn, len(prompt))
    run(Step(ends=(3,)))
    lanes.begin(4, prompt, ahead=6)
    for _ in range(6):
        lanes.window([4], {}, ahead=4)
    return resumed, lanes.replies[4]


def behind(lanes: Drafted, lane: int, drawn: Drawn, length: int) -> Reply:
    """A reply behind `drawn`, by six windows of a row."""
    reply = Reply(list(drawn.tokens), drafts=[drawn.drafts])
    for _ in range(6):
        row = Row(lane, length + len(reply.tokens) - 1, reply.tokens[-1], (), 4)
        drawn = lanes.executor.run(Step(rows=(row,))).drawn[0]
        reply.tokens += drawn.tokens
        reply.drafts.append(drawn.drafts)
    return reply


class Shelf:
    """A disk that holds one state."""

    def __init__(self) -> None:
        self.held: list[list[Raw]] = []

    def stage(self, record: Record, sections: Sequence[Raw]) -> None:
        self.held.append(list(sections))

    def take(self, job: int, count: int) -> list[list[Raw]]:
        taken, self.held = self.held[:count], self.held[count:]
        return taken


def restored_drafts(lanes: Drafted, prompt: Sequence[int], at: int, shelf: Shelf) -> Reply:
    """What was written of a donor comes back into pages that are another's from the first on."""
    rows, run = lanes.executor.spec.rows.page, lanes.executor.run
    pages = tuple(range(40, 40 + -(-(len(prompt) + 100) // rows)))
    mine = tuple(70 + i for i in range(len(pages)))
    run(Step(begins=(Begin(0, pages, GREEDY, drafts=True),)))
    run(Step(chunks=(Chunk(0, 0, tuple(prompt[:at]), False),), saves=(Save(1, 0, 2, False, at),)))
    places = (*pages[: at // rows], -1)
    records = tuple(Record(i, page, 0, b"", b"", b"") for i, page in enumerate(places))
    run(Step(writes=(Write(1, 2, records),)))
    run(Step(ends=(0,)))
    arrives = Begin(3, mine, GREEDY, Arrive(7, at), drafts=True)
    run(Step(begins=(arrives,), puts=(Put(3, 7, 0, at // rows, True),)))
    assert not shelf.held
    drawn = run(Step(chunks=(Chunk(3, at, tuple(prompt[at:]), True, 6),))).drawn[0]
    reply = behind(lanes, 3, drawn, len(prompt))
    run(Step(ends=(3,)))
    return reply


@pytest.fixture
def low(executor: Executor) -> Iterator[Drafted]:
    """Lanes whose pages are below 40, so that a test can lease the others by hand."""
    driven = Drafted(executor, seed=6)
    driven._free = list(range(39, -1, -1))
    yield driven
    for lane in list(driven.replies):
        driven.end(lane)


@pytest.mark.parametrize(("length", "at"), [(65, 64), (200, 64), (200, 192), (330, 256)])
def test_a_resumed_reply_drafts_as_a_fresh_one(low: Drafted, length: int, at: int) -> None:
    """The state has the hidden of the row before the mark, which the first row behind it pairs."""
    resumed, fresh = resumed_drafts(low, ids(11, length), at)
    assert resumed.tokens == fresh.tokens
    assert resumed.drafts == fresh.drafts


@pytest.mark.parametrize(("length", "at"), [(65, 64), (330, 256)])
def test_a_reply_from_the_disk_drafts_as_a_fresh_one(
    low: Drafted, length: int, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the next-token layer and the hidden before the mark are on the disk too."""
    shelf, prompt = Shelf(), ids(11, length)
    monkeypatch.setattr(low.executor, "_records", shelf)
    restored = restored_drafts(low, prompt, at, shelf)
    low.begin(4, prompt, ahead=6)
    for _ in range(6):
        low.window([4], {}, ahead=4)
    assert restored.tokens == low.replies[4].tokens
    assert restored.drafts == low.replies[4].drafts


def test_without_the_hidden_on_the_disk_they_differ(
    low: Drafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, prompt = Shelf(), ids(11, 65)
    monkeypatch.setattr(low.executor, "_records", shelf)
    monkeypatch.setattr(FixedParts, "parts", lambda self, at: (self.kda[:, at], self.conv[:, at]))
    restored = restored_drafts(low, prompt, 64, shelf)
    low.begin(4, prompt, ahead=6)
    for _ in range(6):
        low.window([4], {}, ahead=4)
    assert restored.tokens == low.replies[4].tokens
    assert restored.drafts != low.replies[4].drafts


def test_without_the_kept_hidden_they_differ(low: Drafted, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a mark one row before the prompt's end, so that drafts look at the row that it spoils."""
    honest = LaneStates.resume

    def resume(states: LaneStates, lane: int, *where: object) -> None:
        honest(states, lane, *where)  # type: ignore[arg-type]
        states.hidden[lane] = 0.0

    monkeypatch.setattr(LaneStates, "resume", resume)
    prompt = ids(11, 65)
    resumed, fresh = resumed_drafts(low, prompt, 64)
    assert resumed.tokens == fresh.tokens
    assert resumed.drafts != fresh.drafts


def test_rows_that_are_not_refreshed_change_drafts(
    lanes: Drafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of accepted drafts as the chain wrote them: the comparison of rows above is red."""
    prompt = ids(5, 65)
    lanes.begin(0, prompt)
    plain = lanes.decode(0, 40)
    lanes.begin(2, prompt)
    lanes.decode(2, 36)
    monkeypatch.setattr(drafting.Drafter, "_follow", lambda *arguments: None)
    lanes.begin(1, prompt, ahead=5)
    lanes.decode(1, 36, knowing(plain.tokens, [(4, 0)]), ahead=5)
    lanes.decode(2, len(lanes.replies[1].tokens))
    monkeypatch.undo()
    drafts_at_end(lanes, 1)
    drafts_at_end(lanes, 2)
    assert rows_of(lanes, 1) != rows_of(lanes, 2)


def test_sampled_drafts_use_the_noise_of_their_position(lanes: Drafted) -> None:
    """A draft is the draw that the same logits would give there; greedy drafts differ from it."""
    draw = Draw(1.0, 0, 1.0, 0.0, 7)
    lanes.begin(0, ids(3, 50), draw=draw, ahead=6)
    lanes.begin(1, ids(3, 50), ahead=6)
    lanes.begin(2, ids(3, 50), draw=draw, ahead=6)
    sampled, greedy, again = (lanes.replies[lane].drafts for lane in range(3))
    assert sampled == again
    assert sampled != greedy
