"""The next-token layer against golden outputs, and its cache against itself: whole and row by row,
in any chunking, after any drafts, resumed and fresh.

The golden file is one tiny layer of the published formulas, built from transformers' attention and
experts, with 37 rows that all see each other. Its row i is row i + 1 here, where no row 0 is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open

from streamglm.kernels import linear
from streamglm.kernels.arguments import Array
from streamglm.model import drafter as drafting
from streamglm.model.batch import PromptBatch, WindowBatch
from streamglm.model.caches import Caches
from streamglm.model.executor import Executor
from streamglm.model.mtp import Mtp
from streamglm.model.params import Params
from streamglm.model.peers import Alone
from streamglm.model.selfcheck import PROMPT, WINDOW
from streamglm.model.share import Share
from streamglm.model.spec import ModelSpec
from streamglm.model.state import FixedParts, LaneStates
from streamglm.model.tables import Geometry, PageTables
from streamglm.pool.tensors import PoolTensors, Raw
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

DATA = Path(__file__).parent.parent / "data" / "mtp.safetensors"
PREFIX = "model.language_model."
TOLERANCE = 1e-4


class Golden:
    """The layer of the golden file over poisoned pages, one lane of them."""

    def __init__(self) -> None:
        with safe_open(DATA, "pt") as file:
            text = json.loads(file.metadata()["text_config"])
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}
        config = {
            "model_type": "glm5_next_text",
            **text,
            "num_nextn_predict_layers": 1,
            "eos_token_id": [0],
            "streamglm": {"page_rows": 16, "chunk_rows": 256, "kda_chunk_rows": 16},
        }
        spec = ModelSpec.from_config(config, {})
        self.hidden = linear.padded_width(spec.hidden_size)
        shape = spec.cache_shape(value_itemsize=4)
        pool = PoolTensors(shape, 8, poison=True)
        self.geometry = Geometry.of(spec, pool.null)
        self.caches = Caches.of(pool)
        self.states = LaneStates(shape, 1, poison=True)
        self.states.begin(0)
        self.tables = PageTables(1, self.geometry)
        pages = (5, 2, 7)
        pool.take(pages)
        self.tables.begin(0, pages)
        params = Params(stacked(self.tensors, spec.n_routed_experts))
        self.blank = True
        """Row 0 is attended to by nobody."""
        self.layer = Mtp(Share(spec), params.under("layers.4"), self.hidden, self.geometry, Alone())
        self.embed = self.tensors[f"{PREFIX}embed_tokens.weight"]
        self.tokens: list[int] = self.tensors["case.tokens"].tolist()
        before = torch.zeros(1, spec.hidden_size)
        self.before = torch.cat([before, self.tensors["case.hidden"]])
        """The hidden before each of the 38 tokens; none before the first."""

    def fill(self, start: int, stop: int) -> None:
        """Rows [start, stop) as a chunk of a prompt."""
        chunk = Chunk(0, start, tuple(self.tokens[start:stop]), last=False)
        batch = PromptBatch.of((chunk,), self.tables, self.geometry)
        rows = torch.zeros(2, batch.rows, self.hidden)
        rows[0, : stop - start, : self.embed.shape[1]] = self.embed[self.tokens[start:stop]]
        rows[1, : stop - start, : self.embed.shape[1]] = self.before[start:stop]
        self.layer.fill(rows[0], rows[1], batch, self.states, self.caches, PROMPT)

    def window(self, start: int, stop: int) -> Array:
        """Rows [start, stop) as a window, all of which count -> [rows, hidden size]."""
        span = SimpleNamespace(lane=0, position=start, tokens=tuple(self.tokens[start:stop]))
        batch = WindowBatch.of(
            [span],
            self.tables,
            self.geometry,
            WINDOW,
            tail=self.states.tails.shape[2],
            blank=self.blank,
        )
        size = self.embed.shape[1]
        rows = np.zeros((2, batch.rows, self.hidden), np.float32)
        rows[0, : stop - start, :size] = self.embed[self.tokens[start:stop]].numpy()
        rows[1, : stop - start, :size] = self.before[start:stop].numpy()
        out = self.layer.window(rows[0], rows[1], batch, self.states, self.caches, WINDOW)
        cache = slice(self.layer.cache, self.layer.cache + 1)
        self.states.keep_tails(cache, 0, start, stop - start)
        return out[: stop - start, :size].copy()

    def wanted(self, start: int, stop: int) -> Array:
        """What rows [start, stop) give; row i here is the file's i - 1."""
        found: Array = self.tensors["case.expected"][start - 1 : stop - 1].numpy()
        return found


def stacked(tensors: Mapping[str, torch.Tensor], experts: int) -> dict[str, torch.Tensor]:
    """The parameters as the loader gives them: experts in one tensor, the gate's rows first."""
    found = {
        name.removeprefix(PREFIX): tensor.clone()
        for name, tensor in tensors.items()
        if ".experts." not in name
    }
    at = "layers.4.mlp.experts"

    def part(expert: int, name: str) -> torch.Tensor:
        return tensors[f"{PREFIX}{at}.{expert}.{name}_proj.weight"]

    both = [torch.cat([part(e, "gate"), part(e, "up")]) for e in range(experts)]
    found[f"{at}.gate_up_proj"] = torch.stack(both)
    found[f"{at}.down_proj"] = torch.stack([part(e, "down") for e in range(experts)])
    return found


def close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=0.0, atol=TOLERANCE)


@pytest.fixture
def golden() -> Golden:
    return Golden()


def first_row(golden: Golden) -> None:
    """Row 0 of the prompt, which nobody may attend to."""
    golden.fill(0, 1)


def test_whole(golden: Golden) -> None:
    """In windows as wide as a tail allows, for the layer has no prompt form of its output."""
    first_row(golden)
    got = [golden.window(start, min(start + 16, 38)) for start in range(1, 38, 16)]
    close(np.concatenate(got), golden.wanted(1, 38))


def test_row_by_row(golden: Golden) -> None:
    first_row(golden)
    for row in range(1, 38):
        close(golden.window(row, row + 1), golden.wanted(row, row + 1))


@pytest.mark.parametrize("filled", [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 37])
def test_behind_a_prompt_in_any_chunking(golden: Golden, filled: int) -> None:
    """A prompt's rows leave what rows behind it attend to: on both sides of pools and pages."""
    for start in range(0, filled, 16):
        golden.fill(start, min(start + 16, filled))
    for row in range(filled, 38):
        close(golden.window(row, row + 1), golden.wanted(row, row + 1))


def test_draft_logits_are_the_trunks_head_over_the_output(golden: Golden) -> None:
    """No second norm: the output is normed already."""
    first_row(golden)
    out = np.concatenate([golden.window(start, min(start + 16, 38)) for start in (1, 17, 33)])
    logits = torch.from_numpy(out) @ golden.tensors["lm_head.weight"].T
    close(logits.numpy(), golden.tensors["case.expected_draft_logits"].numpy())


def test_a_wrong_pairing_is_seen(golden: Golden) -> None:
    """The comparisons above can fail: with the hidden of the same row, they do."""
    golden.before = golden.before.roll(-1, 0)
    first_row(golden)
    assert np.abs(golden.window(1, 2) - golden.wanted(1, 2)).max() > 100 * TOLERANCE


def test_row_0_is_not_attended_to(golden: Golden) -> None:
    golden.blank = False
    first_row(golden)
    assert np.abs(golden.window(1, 2) - golden.wanted(1, 2)).max() > 100 * TOLERANCE


# -- the cache behind real lanes


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
