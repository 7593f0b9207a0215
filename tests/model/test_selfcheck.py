"""The self-check sees a machine that breaks the law, says so, and the fallback is exact.

A machine is made to break it by a product that depends on a row's place, on its neighbours, or on
the number of rows; each is the planted fault of one probe.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamglm.kernels.arguments import Array
from streamglm.kernels.linear import HeadWeight, Weight
from streamglm.kernels.tiling import Tiling
from streamglm.model import selfcheck
from streamglm.model.executor import Executor
from streamglm.model.selfcheck import PROMPT, WINDOW, Proof, prove
from support.lanes import Lanes
from support.tiny import ODD, Folder, TinyShape, executor

SLOW = Proof(Tiling((1,), entries=False), Tiling((1,), entries=False))
COARSE = Proof(Tiling((16,)), Tiling((16,)))


def faulty(bend: Callable[[Array, Array, Tiling, bool], Array]) -> selfcheck.Product:
    """The real product, bent by (result, x, tiling, whether by numpy)."""

    def product(x: Array, weight: Weight | HeadWeight, tiling: Tiling, host: bool) -> Array:
        return bend(selfcheck.product(x, weight, tiling, host), x, tiling, host)

    return product


def by_place(y: Array, x: Array, tiling: Tiling, host: bool) -> Array:
    if tiling.sizes == (1,):
        return y
    place = np.arange(len(y)) % 4 == 3
    return np.where(place.reshape(-1, *(1,) * (y.ndim - 1)), np.nextafter(y, np.inf), y)


def by_neighbours(y: Array, x: Array, tiling: Tiling, host: bool) -> Array:
    large = bool(np.abs(x).max() > 100.0)
    return np.nextafter(y, np.float32(np.inf)) if large and tiling.sizes != (1,) else y


def by_size(y: Array, x: Array, tiling: Tiling, host: bool) -> Array:
    return np.nextafter(y, np.float32(np.inf)) if tiling.sizes == (16,) else y


def run(engine: Executor, product: selfcheck.Product) -> tuple[Proof, list[str]]:
    lines: list[str] = []
    proof = prove(engine.glm.weights(), engine.spec, lines.append, product)
    return proof, lines


def test_the_law_holds_on_this_machine(engine: Executor) -> None:
    proof, lines = run(engine, selfcheck.product)
    assert proof == Proof(PROMPT, WINDOW)
    assert lines == []
    assert engine.exact_tiles


@pytest.mark.parametrize("bend", [by_place, by_neighbours])
def test_rows_one_by_one_where_a_tile_changes_them(
    engine: Executor, bend: Callable[[Array, Array, Tiling, bool], Array]
) -> None:
    proof, lines = run(engine, faulty(bend))
    assert proof == Proof(Tiling((1,)), Tiling((1,)))
    assert [line for line in lines if "row by row" in line] == lines[1::2]


def test_one_tile_size_where_two_differ(engine: Executor) -> None:
    proof, lines = run(engine, faulty(by_size))
    assert proof == Proof(Tiling((16,)), WINDOW)
    assert len(lines) == 1


def test_a_window_alone_may_fail(engine: Executor) -> None:
    proof, lines = run(
        engine, faulty(lambda y, x, tiling, host: by_place(y, x, tiling, host) if host else y)
    )
    assert proof == Proof(PROMPT, Tiling((1,)))
    assert len(lines) == 2


def test_a_window_takes_tiles_of_16_where_only_4_change_a_row(engine: Executor) -> None:
    def small(y: Array, x: Array, tiling: Tiling, host: bool) -> Array:
        return by_place(y, x, tiling, host) if host and tiling.sizes == (4,) else y

    proof, lines = run(engine, faulty(small))
    assert proof == Proof(PROMPT, Tiling((16,)))
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("probe", "want"),
    [
        ("prompt_entries_hold", Proof(Tiling(PROMPT.sizes, entries=False), WINDOW)),
        ("window_entries_hold", Proof(PROMPT, Tiling(WINDOW.sizes, entries=False))),
    ],
)
def test_entries_one_by_one_where_a_batch_changes_them(
    engine: Executor, monkeypatch: pytest.MonkeyPatch, probe: str, want: Proof
) -> None:
    monkeypatch.setattr(selfcheck, probe, lambda spec: False)
    proof, lines = run(engine, selfcheck.product)
    assert proof == want
    assert len(lines) == 1


def test_each_shape_is_probed_once(engine: Executor) -> None:
    calls: list[tuple[int, ...]] = []

    def counted(x: Array, weight: Weight | HeadWeight, tiling: Tiling, host: bool) -> Array:
        calls.append(weight.host.shape)
        return selfcheck.product(x, weight, tiling, host)

    run(engine, counted)
    shapes = {weight.host.shape for weight in engine.glm.weights()}
    assert len(calls) <= 7 * len(shapes)
    assert max(shape[0] for shape in calls) <= 4


@pytest.mark.parametrize("proof", [SLOW, COARSE], ids=["row-by-row", "tiles-of-16"])
@pytest.mark.parametrize("shape", [TinyShape(), ODD], ids=["default", "odd"])
def test_a_fallback_is_exact(
    tiny: Folder, monkeypatch: pytest.MonkeyPatch, shape: TinyShape, proof: Proof
) -> None:
    """The same logits but for rounding, and bits that depend on no neighbour."""
    tokens = np.random.default_rng(1).integers(0, 100, 140).tolist()
    fast = Lanes(executor(tiny(shape, 0)))
    fast.prompt(0, tokens[:135])
    fast.decode(0, tokens[135:])
    monkeypatch.setattr(selfcheck, "prove", lambda weights, spec, log: proof)
    engine = executor(tiny(shape, 0))
    assert engine.exact_tiles == (proof is COARSE)
    slow = Lanes(engine)
    slow.prompt(0, tokens[:135], (64,))
    slow.decode(0, tokens[135:])
    want = slow.stacked(0)
    assert np.abs(want - fast.stacked(0)).max() < 1e-4
    slow.prompt(2, tokens[:50])
    slow.prompt(1, tokens[:135])
    for token in tokens[135:]:
        slow.window({2: 7, 1: token})
    assert np.array_equal(slow.stacked(1), want)
