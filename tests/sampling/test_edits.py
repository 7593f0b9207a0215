"""Penalties, bias and masks against an oracle of their own: plain float64, id by id.

The oracle below knows nothing of the code under test: it loops over the vocabulary in Python, sorts
tuples, and has a SplitMix64 of its own. Red without any line of `History.apply`, with the bias
before the penalties (it would be scaled), and with a mask that ends where its bits end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from streamglm.kernels.arguments import Array
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Draw, pack

V = 37


def noise_of(seed: int, position: int) -> float:
    """SplitMix64's finaliser over seed, then counter; the upper 53 bits."""

    def mix(z: int) -> int:
        z %= 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    return (mix(mix(seed + golden) + (position + 1) * golden) >> 11) / 2**53


def edited(
    row: Sequence[float],
    draw: Draw,
    prompt: Sequence[int],
    reply: Sequence[int],
    allowed: set[int],
) -> list[float]:
    """The documented formulas, in the documented order; ids beyond `allowed` are -inf."""
    counts = Counter(reply)
    out = []
    for i, logit in enumerate(row):
        x = float(logit)
        if i in prompt or i in reply:
            x = x / draw.repetition_penalty if x > 0 else x * draw.repetition_penalty
        x = x - draw.frequency_penalty * counts[i]
        x = x - (draw.presence_penalty if counts[i] else 0.0)
        x = x + dict(draw.bias).get(i, 0.0)
        out.append(x if i in allowed else -math.inf)
    return out


def drawn(x: Sequence[float], draw: Draw, position: int) -> int:
    """The filters and the draw, on a list that is sorted by value, then id."""
    ranked = sorted((-value, i) for i, value in enumerate(x) if value > -math.inf)
    if draw.temperature == 0.0:
        return ranked[0][1]
    if draw.top_k:
        ranked = ranked[: draw.top_k]
    mass = [math.exp((ranked[0][0] - value) / draw.temperature) for value, _ in ranked]
    total = sum(mass)
    kept: list[tuple[float, int]] = []
    before = 0.0
    for share, (_, i) in zip(mass, ranked, strict=True):
        if (draw.top_p < 1.0 and before >= draw.top_p * total) or share < draw.min_p * mass[0]:
            break
        kept.append((share, i))
        before += share
    at, walked = noise_of(draw.seed, position) * before, 0.0
    for share, i in kept:
        walked += share
        if walked > at:
            return i
    return kept[-1][1]


@st.composite
def draws(build: st.DrawFn) -> Draw:
    """Any parameters, neutral more often than not."""
    some = st.sampled_from
    ids = build(st.lists(st.integers(0, V - 1), max_size=4, unique=True))
    return Draw(
        temperature=build(some([0.0, 0.0, 0.5, 1.0, 1.75])),
        top_k=build(some([0, 0, 1, 5])),
        top_p=build(some([1.0, 1.0, 0.9, 0.3])),
        min_p=build(some([0.0, 0.0, 0.05, 0.5])),
        seed=build(st.integers(0, 2**63 - 1)),
        repetition_penalty=build(some([1.0, 1.3, 0.7, 5.0])),
        presence_penalty=build(some([0.0, 0.75, -1.5])),
        frequency_penalty=build(some([0.0, 0.375, -0.5])),
        bias=tuple((i, build(some([-100.0, -1.25, 0.3, 100.0]))) for i in sorted(ids)),
        allowed=pack(build(st.lists(st.integers(0, V - 1), max_size=6))),
    )


@hypothesis.settings(max_examples=400, deadline=None, derandomize=True)
@hypothesis.given(
    draw=draws(),
    prompt=st.lists(st.integers(0, V - 1), min_size=1, max_size=12),
    reply=st.lists(st.integers(0, V - 1), max_size=12),
    mask=st.lists(st.integers(0, V - 1), max_size=5),
    spelled=st.sampled_from([None, V - 3]),
    seed=st.integers(0, 2**32),
    ties=st.booleans(),
)
def test_a_draw_is_the_oracles(
    draw: Draw,
    prompt: list[int],
    reply: list[int],
    mask: list[int],
    spelled: int | None,
    seed: int,
    ties: bool,
) -> None:
    row = 2.0 * np.random.default_rng(seed).standard_normal(V).astype(np.float32)
    row = np.round(row) if ties else row
    edits = draw.bias or draw.allowed or mask
    penalties = (draw.repetition_penalty, draw.presence_penalty, draw.frequency_penalty)
    plain = not edits and penalties == (1.0, 0.0, 0.0)
    allowed = set(range(V if spelled is None or (plain and not draw.temperature) else spelled))
    for packed in (draw.allowed, pack(mask)):
        if packed:
            allowed &= {i for i in range(8 * len(packed)) if packed[i // 8] >> i % 8 & 1}
    seen = pack(prompt) if draw.repetition_penalty != 1.0 else b""
    sampler = LaneSampler(draw, seen, spelled=spelled)
    for token in reply:
        sampler.push(token)
    before = row.copy()
    found = sampler.choose(row, len(prompt) + len(reply), pack(mask)).token
    again = sampler.choose(row, len(prompt) + len(reply), pack(mask)).token
    wanted = edited(row.tolist(), draw, prompt, reply, allowed)
    assert found == again
    assert np.array_equal(row, before)
    assert found == (drawn(wanted, draw, len(prompt) + len(reply)) if allowed else -1)


def greedy(row: Array, draw: Draw, seen: bytes = b"", reply: Sequence[int] = ()) -> int:
    sampler = LaneSampler(draw, seen)
    for token in reply:
        sampler.push(token)
    return sampler.choose(row, 0).token


def test_repetition_counts_the_prompt_and_the_others_do_not() -> None:
    row = np.array([2.0, 1.9, 0.0], np.float32)
    assert greedy(row, Draw(0.0, 0, 1.0, 0.0, 0, repetition_penalty=2.0), pack([0])) == 1
    assert greedy(row, Draw(0.0, 0, 1.0, 0.0, 0, presence_penalty=2.0)) == 0
    assert greedy(row, Draw(0.0, 0, 1.0, 0.0, 0, presence_penalty=2.0), reply=[0]) == 1
    both = Draw(0.0, 0, 1.0, 0.0, 0, repetition_penalty=1.01, frequency_penalty=1.0)
    assert greedy(row, both, pack([0, 1])) == 0
    assert greedy(row, both, pack([0, 1]), [0]) == 1


def test_repetition_pushes_negative_logits_down_too() -> None:
    row = np.array([-1.0, -1.5], np.float32)
    assert greedy(row, Draw(0.0, 0, 1.0, 0.0, 0, repetition_penalty=2.0), pack([0])) == 1


def test_a_bias_is_added_to_what_penalties_leave() -> None:
    """1.0 / 2 + 0.4 is above 0.8; (1.0 + 0.4) / 2 is not."""
    row = np.array([1.0, 0.8], np.float32)
    draw = Draw(0.0, 0, 1.0, 0.0, 0, repetition_penalty=2.0, bias=((0, 0.4),))
    assert greedy(row, draw, pack([0])) == 0


def test_presence_counts_once_and_frequency_every_time() -> None:
    row = np.array([2.0, 0.5], np.float32)
    presence = Draw(0.0, 0, 1.0, 0.0, 0, presence_penalty=1.0)
    frequency = Draw(0.0, 0, 1.0, 0.0, 0, frequency_penalty=1.0)
    assert greedy(row, presence, reply=[0, 0]) == 0
    assert greedy(row, frequency, reply=[0]) == 0
    assert greedy(row, frequency, reply=[0, 0]) == 1


def test_a_long_reply_is_counted_whole() -> None:
    """Past every size that the counts grow through, and past the prompt's ids."""
    order = np.random.default_rng(3).permutation(3000)
    draw = Draw(0.0, 0, 1.0, 0.0, 0, repetition_penalty=1.5, frequency_penalty=0.5)
    sampler = LaneSampler(draw, pack(range(0, 3000, 7)))
    for token in (*order[:2999].tolist(), *order[:50].tolist()):
        sampler.push(token)
    row = np.ones(3000, np.float32)
    expected = int(order[2999])  # undrawn; in the prompt or not, frequency alone decides
    assert sampler.choose(row, 0).token == expected


def test_a_mask_leaves_its_ids_and_their_shares() -> None:
    """Chi-square with 4 degrees of freedom: 18.5 is one in a thousand."""
    row = np.log(np.array([0.3, 0.1, 0.2, 0.05, 0.15, 0.12, 0.08], np.float32))
    allowed = [1, 2, 3, 5, 6]
    sampler = LaneSampler(Draw(1.0, 0, 1.0, 0.0, 11, allowed=pack(allowed)))
    count = 20_000
    found = Counter(sampler.choose(row, at).token for at in range(count))
    assert set(found) == set(allowed)
    assert chi_square(row, found, allowed, count) < 18.5


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_shares_follow_temperature_penalties_and_bias(seed: int) -> None:
    """Chi-square with 6 degrees of freedom: 22.5 is one in a thousand."""
    row = np.array([1.0, 0.5, 0.0, -0.5, -1.0, 0.25, 0.75], np.float32)
    draw = Draw(
        temperature=0.8,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=seed,
        repetition_penalty=1.4,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        bias=((2, 0.5), (4, 1.0)),
    )
    sampler = LaneSampler(draw, pack([0, 3]))
    for token in (0, 1, 1):
        sampler.push(token)
    count = 20_000
    found = Counter(sampler.choose(row, at).token for at in range(count))
    wanted = np.array(edited(row.tolist(), draw, [0, 3], [0, 1, 1], set(range(7)))) / 0.8
    assert chi_square(wanted, found, list(range(7)), count) < 22.5
    raw = chi_square(row / 0.8, found, list(range(7)), count)
    assert raw > 1000  # the measure sees the difference


def chi_square(
    logits: Array | np.ndarray[tuple[int], np.dtype[np.float64]],
    found: Counter[int],
    ids: list[int],
    count: int,
) -> float:
    """Distance of counts from the softmax over `ids`."""
    shares = np.exp(logits[ids]) / np.exp(logits[ids]).sum() * count
    return float(sum((found[i] - want) ** 2 / want for i, want in zip(ids, shares, strict=True)))


def test_neutral_values_are_the_plain_draw_bit_for_bit() -> None:
    """On a row of the real size: what an edit of nothing would draw, too."""
    noise = np.random.default_rng(5)
    row = 2.0 * noise.standard_normal(154_880, np.float32)
    plain = LaneSampler(Draw(1.0, 0, 0.95, 0.0, 9))
    harmless = LaneSampler(Draw(1.0, 0, 0.95, 0.0, 9, bias=((3, 0.0),), frequency_penalty=1.0))
    for at in range(4):
        assert plain.choose(row, at) == harmless.choose(row, at)


def test_a_mask_that_leaves_nothing_gives_no_token() -> None:
    row = np.zeros(10, np.float32)
    sampler = LaneSampler(Draw(1.0, 0, 1.0, 0.0, 0, allowed=pack([1, 2]), logprobs=2))
    assert sampler.choose(row, 0, pack([3])) == (-1, None)
    assert sampler.choose(row, 0, pack([2, 3])).token == 2
    unspelled = LaneSampler(Draw(0.0, 0, 1.0, 0.0, 0, allowed=pack([8])), spelled=8)
    assert unspelled.choose(row, 0).token == -1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("draw", [Draw(0.0, 0, 1.0, 0.0, 0), Draw(1.0, 3, 0.9, 0.0, 0)])
def test_a_row_that_is_not_finite_has_no_token(bad: float, draw: Draw) -> None:
    row = np.zeros(10, np.float32)
    row[4] = bad
    assert LaneSampler(draw).choose(row, 0).token == -1
    assert LaneSampler(Draw(0.0, 0, 1.0, 0.0, 0, bias=((1, 5.0),))).choose(row, 0).token == -1


def test_an_unspelled_id_is_never_drawn_once_logits_are_edited() -> None:
    row = np.array([0, 1, 9, 9], np.float32)
    for draw in (
        Draw(0.0, 0, 1.0, 0.0, 0, bias=((3, 100.0),)),
        Draw(0.0, 0, 1.0, 0.0, 0, presence_penalty=-2.0),
        Draw(0.01, 0, 1.0, 0.0, 0, repetition_penalty=0.01),
    ):
        sampler = LaneSampler(draw, pack([2, 3]), spelled=2)
        sampler.push(3)
        assert sampler.choose(row, 0).token == 1
