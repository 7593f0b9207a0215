"""The four equalities with two and three ranks: chunks, neighbours, pages, windows of many rows.

Pages and lanes are poisoned, and pages shuffled. Comparisons are of bits, on logits and on what all
ranks' lanes carry; every step also compares the ranks with one another. Uneven shares: seven heads
over three ranks, and the built-in model's over two and three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from streamglm import nano
from streamglm.errors import StartError
from streamglm.kernels.arguments import Array
from streamglm.kernels.tiling import Tiling
from streamglm.model import selfcheck
from streamglm.model.latent import LatentLayer
from streamglm.model.selfcheck import PROMPT, WINDOW, Proof, agreed
from streamglm.pool.layout import RowFormat
from streamglm.step import Begin, Chunk, Draw, Restore, Save, Step
from support.drafted import GREEDY, Drafted, Reply, engine, ids, knowing, same
from support.lanes import Lanes
from support.peers import ThreadPeer, World
from support.ranked import Ranked
from support.tiny import ODD, Folder, TinyShape

SEVEN = replace(ODD, num_attention_heads=7, linear_num_heads=7)
SHAPES = {2: TinyShape(), 3: SEVEN}
LENGTHS = (5, 64, 131, 200, 318)


def equal(one: Sequence[Array], two: Sequence[Array]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def alone(lanes: Lanes, tokens: Sequence[int], decoded: int) -> tuple[Array, list[Array]]:
    """Logits and state of one stream with the ranks to itself."""
    lanes.prompt(0, tokens[:-decoded])
    lanes.decode(0, tokens[-decoded:])
    found = lanes.stacked(0), lanes.state(0)
    lanes.end(0)
    return found


@pytest.mark.parametrize("world", [2, 3])
def test_any_chunking(tiny: Folder, world: int) -> None:
    lanes = Lanes(Ranked(tiny(SHAPES[world], 0), world))
    tokens = [token % 100 for token in ids(1, 321)]
    want, state = alone(lanes, tokens, 3)
    for sizes in ((64,), (64, 192, 128)):
        lanes.prompt(0, tokens[:-3], sizes)
        lanes.decode(0, tokens[-3:])
        assert np.array_equal(lanes.stacked(0), want), f"in chunks of {sizes}"
        assert equal(lanes.state(0), state), f"in chunks of {sizes}"
        lanes.end(0)


@pytest.mark.parametrize("world", [2, 3])
def test_lanes_that_come_and_go_on_any_pages(tiny: Folder, world: int) -> None:
    """Each has the bits that it has alone, on pages in another order."""
    streams = {n: [t % 100 for t in ids(n, length + 5)] for n, length in enumerate(LENGTHS)}
    single = Lanes(Ranked(tiny(SHAPES[world], 0), world), seed=1)
    want = {lane: alone(single, tokens, 5) for lane, tokens in streams.items()}
    lanes = Lanes(Ranked(tiny(SHAPES[world], 0), world), seed=3)
    order = np.random.default_rng(5)
    waiting, running = [3, 1, 4, 0, 2], list[int]()
    while waiting or running:
        if waiting and len(running) < 3:
            lane = waiting.pop()
            lanes.prompt(lane, streams[lane][: LENGTHS[lane]], (64, 128))
            running.append(lane)
        order.shuffle(running)
        lanes.window({lane: streams[lane][len(lanes.logits[lane])] for lane in running})
        for lane in [lane for lane in running if len(lanes.logits[lane]) == len(streams[lane])]:
            logits, state = want[lane]
            assert np.array_equal(lanes.stacked(lane), logits), f"lane {lane}"
            assert equal(lanes.state(lane), state), f"lane {lane}"
            running.remove(lane)
            lanes.end(lane)


@pytest.fixture(scope="module", params=[2, 3])
def ranked(request: pytest.FixtureRequest) -> Ranked:
    """The built-in model with drafts, on ranks."""
    torch.set_num_threads(1)
    return Ranked(nano.folder(), request.param, pages=96, slots=4, drafts=True)


@pytest.fixture
def drafted(ranked: Ranked) -> Iterator[Drafted]:
    driven = Drafted(ranked, seed=3)
    yield driven
    for lane in list(driven.replies):
        driven.end(lane)


def serial(lanes: Drafted, prompt: Sequence[int], count: int, draw: Draw = GREEDY) -> Reply:
    """A reply in windows of one row, without drafts; its lane goes on in lane 1."""
    lanes.begin(1, prompt, draw=draw, follow=False)
    return lanes.decode(1, count)


@pytest.mark.parametrize("length", [127, 255])
def test_a_window_of_rows_is_as_many_windows(drafted: Drafted, length: int) -> None:
    """Whatever its drafts were: tokens, logits and states."""
    prompt = ids(length, length)
    plain = serial(drafted, prompt, 14)
    drafted.begin(2, prompt)
    pattern = [(1, 2), (0, 3), (9, 1), (2, 0)]
    reply = drafted.decode(2, 14, knowing(plain.tokens, pattern))
    drafted.decode(1, len(reply.tokens))
    assert same(plain, reply, 14)
    assert reply.accepted > 4
    assert equal(drafted.carried(1), drafted.carried(2))


@pytest.mark.parametrize("draw", [GREEDY, Draw(0.8, 0, 0.95, 0.0, 42)], ids=["greedy", "sampled"])
def test_drafts_change_nothing(drafted: Drafted, draw: Draw) -> None:
    """The next-token layer's own drafts, of ranks that all draw the same; beside neighbours."""
    prompts = {2: ids(32, 66), 3: ids(33, 140)}
    for lane, prompt in prompts.items():
        drafted.begin(lane, prompt, draw=draw, ahead=4)
    wishes = dict.fromkeys(prompts, lambda reply: reply.drafts[-1])
    while min(len(drafted.replies[lane].tokens) for lane in prompts) < 9:
        drafted.window([3, 2], wishes, ahead=4)
    for lane, prompt in prompts.items():
        assert any(drafted.replies[lane].drafts)
        assert same(serial(drafted, prompt, 9, draw), drafted.replies[lane], 9)
        drafted.end(1)


def test_drafts_are_those_of_one_rank(drafted: Drafted) -> None:
    """A next-token layer that is shared out wrongly costs speed alone, and each rank joins the same
    wrong rows: nothing else here would see it."""
    prompt, found = ids(4, 150), []
    for lanes in (Drafted(engine()), drafted):
        lanes.begin(5, prompt, ahead=6)
        reply = lanes.decode(5, 6, lambda reply: reply.drafts[-1], ahead=6)
        assert all(len(drafts) == 6 for drafts in reply.drafts)
        found.append((reply.tokens, reply.drafts))
    assert found[0] == found[1]


def test_a_kept_prompt_resumes_as_a_fresh_one(ranked: Ranked) -> None:
    """Each rank keeps its own heads; drafts go on as well."""
    prompt, at = ids(11, 200), 128
    lanes = Drafted(ranked, seed=6)
    lanes._free = list(range(39, -1, -1))
    pages = tuple(range(40, 46))
    ranked.run(Step(begins=(Begin(0, pages, GREEDY, drafts=True),)))
    save = Save(1, 0, 2, False, at)
    ranked.run(Step(chunks=(Chunk(0, 0, tuple(prompt[:at]), False),), saves=(save,)))
    ranked.run(Step(ends=(0,)))
    mine = pages[: at // ranked.spec.rows.page] + tuple(range(70, 74))
    begin = Begin(3, mine, GREEDY, Restore(1, 2, at), drafts=True)
    chunk = Chunk(3, at, tuple(prompt[at:]), True, 6)
    result, tap = ranked.logits(Step(begins=(begin,), chunks=(chunk,)))
    lanes.begin(4, prompt, ahead=6)
    fresh = lanes.replies[4]
    assert result.drawn[0].tokens == tuple(fresh.tokens)
    assert (result.drawn[0].drafts,) == tuple(fresh.drafts)
    assert all(np.array_equal(row, fresh.logits[place]) for (_, place), row in tap.items())
    states = ranked.states
    assert torch.equal(states.kda[:, 3], states.kda[:, 4])
    assert torch.equal(states.conv[:, 3], states.conv[:, 4])
    ranked.run(Step(ends=(3,)))
    lanes.end(4)


@pytest.mark.parametrize("rows", [RowFormat.BF16, RowFormat.FP8])
def test_in_every_format_of_pages(tiny: Folder, rows: RowFormat) -> None:
    lanes = Lanes(Ranked(tiny(SEVEN, 0), 3, rows=rows))
    tokens = [token % 100 for token in ids(1, 150)]
    want, state = alone(lanes, tokens, 4)
    lanes.prompt(2, tokens[:70])
    lanes.prompt(0, tokens[:146], (64,))
    for token in tokens[146:]:
        lanes.window({2: 3, 0: token})
    assert np.array_equal(lanes.stacked(0), want)
    assert equal(lanes.state(0), state)


def test_blank_heads_stay_blank_and_every_rank_holds_what_is_planned(tiny: Folder) -> None:
    """Seven heads over three ranks: three each in memory, of which two ranks use two."""
    ranked = Ranked(tiny(SEVEN, 0), 3)
    Lanes(ranked).prompt(2, [token % 100 for token in ids(1, 90)])
    shape = ranked.spec.cache_shape(world=3, value_itemsize=4, drafts=False)
    assert shape.kda_heads == 3
    dim = SEVEN.linear_head_dim
    for rank, own in enumerate((3, 2, 2)):
        states = ranked.executors[rank].states
        assert states.bytes == 8 * shape.fixed_bytes
        assert (states.kda[:, 2, :own] != 0).any(-1).any(-1).all()
        assert not states.kda[:, 2, own:].any()
        channels = states.conv[:, 2].view(*states.conv.shape[:1], -1, 3, shape.kda_heads, dim)
        assert not channels[..., own:, :].any()


# -- tiles


def test_ranks_take_the_lower_tiles_of_each() -> None:
    proofs = [
        Proof(PROMPT, WINDOW),
        Proof(Tiling((16,)), WINDOW),
        Proof(PROMPT, Tiling((16,), entries=False)),
    ]
    said: list[str] = []

    def meet(peer: ThreadPeer) -> Proof:
        return agreed(proofs[peer.rank], peer, said.append)

    common = Proof(Tiling((16,)), Tiling((16,), entries=False))
    assert World(3).run(meet) == [common] * 3
    assert len(said) == 3
    assert all("another rank" in line for line in said)


@pytest.mark.parametrize("form", [torch.Tensor, np.ndarray])
def test_a_rank_that_computes_other_bits_does_not_start(
    tiny: Folder, monkeypatch: pytest.MonkeyPatch, form: type
) -> None:
    """One bit of one latent, on one rank. Logits are joined, and would be equal all the same."""
    honest = LatentLayer.alike

    def bent(self: LatentLayer, x: Any, tiling: Tiling) -> Any:
        found = honest(self, x, tiling)
        if isinstance(x, form) and getattr(self._peers, "rank", 0) == 1:
            np.asarray(found[1]).reshape(-1)[7:8].view(np.int32)[:] ^= 1
        return found

    Ranked(tiny(SEVEN, 0), 3)
    monkeypatch.setattr(LatentLayer, "alike", bent)
    with pytest.raises(StartError, match=r"rank 1 computes other bits than rank 0 .* processor"):
        Ranked(tiny(SEVEN, 0), 3)


def test_a_rank_of_coarser_tiles_is_followed(tiny: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each proves its own shapes; what they compute together has one number of rows. Without the
    agreement their sums would be of 4 rows and of 16."""
    seen = list[int]()
    honest = selfcheck.prove

    def prove(weights: object, spec: object, log: object) -> Proof:
        proof = honest(weights, spec, log)  # type: ignore[arg-type]
        seen.append(1)
        return replace(proof, window=Tiling((16,))) if len(seen) == 2 else proof

    monkeypatch.setattr(selfcheck, "prove", prove)
    ranked = Ranked(tiny(SEVEN, 0), 3)
    assert [one.proof.window.sizes for one in ranked.executors] == [(16,)] * 3
    lanes = Lanes(ranked)
    lanes.window({0: lanes.prompt(0, [5, 6, 7])})
