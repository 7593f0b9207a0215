"""A token is a function of (logits of the row, parameters, seed, position)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from streamglm.kernels.arguments import Array
from streamglm.kernels.draw import uniform
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Draw

GREEDY = Draw(0.0, 0, 1.0, 0.0, 0)
PLAIN = Draw(1.0, 0, 1.0, 0.0, 5)


def sample_row(row: Array, draw: Draw, position: int, spelled: int | None) -> int:
    return LaneSampler(draw, spelled=spelled).choose(row, position).token


def sample(
    rows: Array, draws: Sequence[Draw], positions: Sequence[int], *, spelled: int | None = None
) -> list[int]:
    """Every row by a sampler of its own."""
    each = zip(rows, draws, positions, strict=True)
    return [sample_row(row, draw, position, spelled) for row, draw, position in each]


def logits(rows: int, vocab: int, seed: int = 0) -> Array:
    noise = np.random.default_rng(seed)
    return 2.0 * noise.standard_normal((rows, vocab), np.float32)


def test_greedy_takes_the_highest_and_the_lower_of_equals() -> None:
    rows = np.array([[1, 3, 3, 2], [5, 0, 5, 5], [-1, -2, -1, -3]], np.float32)
    assert sample(rows, [GREEDY] * 3, [0, 1, 2]) == [1, 0, 0]
    assert [sample_row(row, GREEDY, 0, None) for row in rows] == [1, 0, 0]


def test_greedy_does_not_look_at_spelled() -> None:
    row = np.array([[0, 1, 9]], np.float32)
    assert sample(row, [GREEDY], [0], spelled=2) == [2]
    hot = Draw(0.01, 0, 1.0, 0.0, 0)
    assert sample(row, [hot], [0], spelled=2) == [1]


def test_rows_do_not_see_each_other() -> None:
    rows = logits(6, 500)
    draws = [PLAIN, GREEDY, Draw(0.7, 40, 0.9, 0.0, 1), PLAIN, Draw(1.5, 0, 1.0, 0.1, 9), PLAIN]
    together = sample(rows, draws, range(6))
    alone = [sample(rows[i : i + 1], [draws[i]], [i])[0] for i in range(6)]
    assert together == alone
    order = [3, 0, 5, 1, 4, 2]
    moved = sample(rows[order], [draws[i] for i in order], order)
    assert moved == [together[i] for i in order]


def test_seed_and_position_both_move_the_noise() -> None:
    row = np.zeros(4000, np.float32)
    by_position = [sample_row(row, PLAIN, position, None) for position in range(50)]
    by_seed = [sample_row(row, Draw(1.0, 0, 1.0, 0.0, seed), 7, None) for seed in range(50)]
    assert len(set(by_position)) > 45
    assert len(set(by_seed)) > 45
    assert by_position == [sample_row(row, PLAIN, position, None) for position in range(50)]


def test_noise_is_uniform_and_its_neighbours_are_strangers() -> None:
    grid = np.array([[uniform(seed, at) for at in range(200)] for seed in range(200)])
    assert grid.min() >= 0.0
    assert grid.max() < 1.0
    counts, _ = np.histogram(grid, 20, (0.0, 1.0))
    assert np.abs(counts / grid.size * 20 - 1.0).max() < 0.08
    for one, two in ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:])):
        assert abs(float(np.corrcoef(one.ravel(), two.ravel())[0, 1])) < 0.02
    assert len(np.unique(grid)) == grid.size


def test_seeds_of_64_bits_and_below_zero() -> None:
    values = [uniform(seed, 3) for seed in (0, 1, 2**63, 2**64 - 1, -1, -(2**63))]
    assert all(0.0 <= value < 1.0 for value in values)
    assert values[3] == values[4]  # the same 64 bits
    assert len(set(values)) == 4


def test_shares_come_out_as_the_softmax_says() -> None:
    row = np.array([0.0, 1.0, 2.0, -1.0], np.float32)
    count = 20000
    found = Counter(sample_row(row, Draw(1.0, 0, 1.0, 0.0, 3), at, None) for at in range(count))
    want = np.exp(row) / np.exp(row).sum()
    shares = np.array([found[i] / count for i in range(4)])
    assert np.abs(shares - want).max() < 0.012


def test_temperature_moves_between_greedy_and_even() -> None:
    row = logits(1, 300)[0]
    best = int(row.argmax())
    cold = [sample_row(row, Draw(1e-6, 0, 1.0, 0.0, 1), at, None) for at in range(40)]
    assert set(cold) == {best}
    coldest = Draw(1e-310, 0, 1.0, 0.0, 1)
    assert {sample_row(row, coldest, at, None) for at in range(9)} == {best}
    hot = {sample_row(row, Draw(1e6, 0, 1.0, 0.0, 1), at, None) for at in range(400)}
    assert len(hot) > 150


@pytest.mark.parametrize(
    ("draw", "kept"),
    [
        (Draw(1.0, 3, 1.0, 0.0, 1), {1, 2, 3}),
        (Draw(1.0, 0, 0.6, 0.0, 1), {1, 2}),
        (Draw(1.0, 0, 1.0, 0.3, 1), {1, 2}),
        (Draw(1.0, 1, 0.1, 0.9, 1), {1}),
        (Draw(1.0, 0, 1e-9, 0.0, 1), {1}),
    ],
)
def test_filters_keep_what_they_say(draw: Draw, kept: set[int]) -> None:
    row = np.log(np.array([0.05, 0.4, 0.3, 0.1, 0.1, 0.05], np.float32))
    found = {sample_row(row, draw, at, None) for at in range(300)}
    assert found == kept


def test_a_vocabulary_of_the_real_size() -> None:
    row = logits(1, 154_880)[0]
    draw = Draw(1.0, 0, 0.95, 0.0, 2)
    one = [sample_row(row, draw, at, 154_856) for at in range(3)]
    rows = np.stack([row, row * 2, row])
    assert sample(rows, [draw] * 3, [0, 8, 2], spelled=154_856)[::2] == [one[0], one[2]]
    assert all(token < 154_856 for token in one)


def test_a_row_with_nan_has_no_token_and_the_others_do() -> None:
    rows = np.zeros((3, 40), np.float32)
    rows[:, 5] = 1.0
    rows[1, 30] = np.nan
    assert sample(rows, [GREEDY] * 3, [0, 1, 2]) == [5, -1, 5]
    hot = Draw(0.01, 0, 1.0, 0.0, 3)
    assert sample(rows, [hot] * 3, [0, 1, 2]) == [5, -1, 5]
