"""A verify window of R rows is R windows of one row, bit for bit, whatever its drafts were.

Pages and lanes are poisoned. Each mutation at the end takes a piece of the commit away, and the
same comparison must then fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from streamglm.kernels import kda
from streamglm.kernels.arguments import Array
from streamglm.kernels.tiling import Tiling
from streamglm.model import glm as trunk
from streamglm.model import kda as kda_layer
from streamglm.model.executor import Executor
from streamglm.model.kda import KdaLayer
from streamglm.model.state import LaneStates
from streamglm.pool.layout import RowFormat
from streamglm.step import Draw
from support.drafted import MOST, Drafted, Reply, alone, engine, ids, knowing, same

COUNT = 26
PATTERNS = {
    "all true": [(15, 0)],
    "all false": [(0, 15)],
    "one false at each place": [(place, 1) for place in range(15)],
    "widths in turn": [(place % 3, place % 4) for place in range(12)],
}
LENGTHS = (1, 2, 3, 63, 64, 65, 120, 126, 131, 255, 257)
"""On both sides of a page, of the limit of dense attention (131), of a chunk; and every place of a
pool of 4 to begin at."""


@pytest.fixture(scope="module")
def executor() -> Executor:
    return engine()


@pytest.fixture
def lanes(executor: Executor) -> Iterator[Drafted]:
    driven = Drafted(executor, seed=3)
    yield driven
    for lane in list(driven.replies):
        driven.end(lane)


@dataclass
class Serial:
    """A reply in windows of one row, and what its lane carried at each length."""

    reply: Reply
    carried: dict[int, list[Array]]


def serial_of(lanes: Drafted, prompt: Sequence[int]) -> Serial:
    lanes.begin(1, prompt, follow=False)
    found: dict[int, list[Array]] = {}
    for count in range(1, COUNT + MOST + 1):
        lanes.decode(1, count)
        found[count] = lanes.carried(1)
    reply = lanes.replies[1]
    lanes.end(1)
    return Serial(reply, found)


@pytest.fixture(scope="module")
def known(executor: Executor) -> dict[int, Serial]:
    """Serial replies by the length of their prompts."""
    driven = Drafted(executor, seed=2)
    return {length: serial_of(driven, ids(length, length)) for length in LENGTHS}


def agrees(
    lanes: Drafted, prompt: Sequence[int], serial: Serial, pattern: Sequence[tuple[int, int]]
) -> bool:
    """Tokens, logits and what is carried, with drafts and without."""
    lanes.begin(2, prompt)
    drafted = lanes.decode(2, COUNT, knowing(serial.reply.tokens, pattern))
    want = serial.carried[len(drafted.tokens)]
    equal = same(serial.reply, drafted, COUNT) and all(
        np.array_equal(a, b) for a, b in zip(want, lanes.carried(2), strict=True)
    )
    lanes.end(2)
    return equal


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_window_of_rows_is_as_many_windows(
    lanes: Drafted, known: dict[int, Serial], length: int, pattern: list[tuple[int, int]]
) -> None:
    assert agrees(lanes, ids(length, length), known[length], pattern)


@pytest.mark.parametrize("rows", [RowFormat.BF16, RowFormat.FP8])
def test_in_every_format_of_pages(rows: RowFormat) -> None:
    lanes, prompt = Drafted(engine(rows=rows)), ids(8, 140)
    assert agrees(lanes, prompt, serial_of(lanes, prompt), PATTERNS["widths in turn"])


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_a_sampled_draft_counts_exactly_when_it_is_the_serial_draw(
    lanes: Drafted, temperature: float
) -> None:
    draw = Draw(temperature, 0, 0.95, 0.0, 42)
    prompt = ids(4, 70)
    serial = alone(lanes, prompt, 60, draw)
    lanes.begin(3, prompt, draw=draw)
    drafted = lanes.decode(3, 40, knowing(serial.tokens, [(3, 1), (0, 2), (15, 0)]))
    assert same(serial, drafted, 40)
    assert drafted.accepted > 20


@pytest.mark.parametrize("neighbours", range(1, 8))
def test_shared_windows(lanes: Drafted, neighbours: int) -> None:
    """Lanes with different widths side by side, at most 32 rows; each as it is alone."""
    count = neighbours + 1
    prompts = {lane: ids(40 + lane, 50 + 31 * lane) for lane in range(count)}
    serial = {lane: alone(lanes, prompts[lane], 44) for lane in prompts}
    width = min(6, 32 // count - 1)
    for lane, prompt in prompts.items():
        lanes.begin(lane, prompt, follow=lane % 2 == 0)
    wishes = {
        lane: knowing(serial[lane].tokens, [(lane % width, 1), (width, 0), (0, 0)])
        for lane in prompts
    }
    order = sorted(prompts, key=lambda lane: (lane * 5) % 8)
    while min(len(lanes.replies[lane].tokens) for lane in prompts) < 20:
        behind = [lane for lane in order if len(lanes.replies[lane].tokens) < 30]
        lanes.window(behind, wishes)
    for lane in prompts:
        assert same(serial[lane], lanes.replies[lane], 20), f"lane {lane} of {count}"


# -- without a piece of it


def without_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trunk, "replay", lambda *arguments: None)


def _padded(rows: Array) -> torch.Tensor:
    """A block of the prompt's kernel."""
    block = torch.zeros(64, rows.shape[1])
    block[: len(rows)] = torch.from_numpy(rows)
    return block


def by_the_chunk_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state over the accepted rows by the prompt's kernel: the same sum in other bits."""

    def replay(
        layers: Sequence[KdaLayer],
        accepted: Sequence[tuple[int, int]],
        states: LaneStates,
        tiling: Tiling,
    ) -> None:
        for lane, count in accepted:
            for layer in layers:
                rows = layer.replayed(lane, count, states, tiling)
                qkv, decay, beta = (
                    _padded(values[:count]) for values in (rows.qkv, rows.decay, rows.beta)
                )
                state = states.kda[layer.layer, lane]
                numbers = layer.constants
                kda.chunk(qkv, decay, beta, state, count, numbers, Tiling((16, 64)))

    monkeypatch.setattr(trunk, "replay", replay)


def without_rollback_of_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LaneStates, "keep_tails", lambda *arguments: None)


def replays_one_row_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was rejected stays in the state."""
    honest = kda_layer.replay
    monkeypatch.setattr(
        trunk,
        "replay",
        lambda layers, accepted, *rest: honest(
            layers, [(lane, count + 1) for lane, count in accepted], *rest
        ),
    )


@pytest.mark.parametrize(
    "fault",
    [without_replay, by_the_chunk_form, without_rollback_of_tails, replays_one_row_more],
)
def test_each_piece_of_a_commit_counts(
    lanes: Drafted,
    known: dict[int, Serial],
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """With a rejected row in every window, and a pool in progress at the end of one of them."""
    prompts = {length: ids(length, length) for length in LENGTHS}
    assert all(agrees(lanes, prompts[n], known[n], [(2, 1)]) for n in LENGTHS)
    fault(monkeypatch)
    assert not all(agrees(lanes, prompts[n], known[n], [(2, 1)]) for n in LENGTHS)
