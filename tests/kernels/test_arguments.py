"""Shapes that do not fit are refused by name, not computed on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from streamglm.kernels import (
    draw,
    experts,
    hyper,
    indexer,
    kda,
    latent_attention,
    layer_norm,
    linear,
    mlp,
    page_move,
    page_write,
    rms_norm,
    short_conv,
)
from streamglm.kernels.arguments import ArgumentError, Array
from streamglm.kernels.matrix import Matrix, fp8
from streamglm.kernels.matrix import plain as plain_matrix
from streamglm.kernels.pages import plain
from streamglm.kernels.tiling import Tiling

ROWS = Tiling((4,))
WEIGHT = linear.prepare(torch.ones(8, 64))
MATRIX = plain_matrix(torch.ones(6, 8))
NORM = rms_norm.prepare(torch.ones(8), 1e-5)
CONV = short_conv.prepare(torch.ones(6, 4))
KDA = kda.constants(2, 8, -5.0)


def f(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def t(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


def ids(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int64)


def u8(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8)


def hyper_weights() -> hyper.HyperWeights:
    return hyper.prepare(
        torch.ones(8, 10),
        torch.ones(8),
        torch.ones(3),
        streams=2,
        count=10,
        norm_eps=1e-5,
        eps=1e-6,
        iterations=3,
    )


def hyper_site() -> hyper.Site:
    return hyper.Site(
        t(8, 10), t(8), t(3), t(5), streams=2, fn_eps=1e-5, norm_eps=1e-5, eps=1e-6, iterations=3
    )


def expert_weights() -> experts.ExpertWeights:
    choice = experts.Choice(np.zeros(32, np.float32), 2, True, 1.0)
    down = linear.prepare(torch.ones(32, 8))
    return experts.ExpertWeights(WEIGHT, choice, [WEIGHT], [down], down, 1.0)


def fp8_matrix(numbers: torch.Tensor, scales: torch.Tensor) -> Matrix:
    return fp8(numbers.to(torch.float8_e4m3fn), scales)


def routed(
    rows: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, experts.ExpertStacks]:
    stacks = experts.ExpertStacks(plain_matrix(t(2, 6, 8)), plain_matrix(t(2, 8, 3)), 1.0)
    return t(rows, 8), torch.zeros(rows, 1, dtype=torch.int32), t(rows, 1), stacks


MISFITS: dict[str, Callable[[], object]] = {
    "linear: depth": lambda: linear.linear(f(4, 9), WEIGHT, ROWS),
    "linear: half a tile": lambda: linear.linear(f(3, 8), WEIGHT, ROWS),
    "heads": lambda: linear.heads(f(4, 2, 5), linear.prepare_heads(t(2, 4, 3)), ROWS),
    "window: rows": lambda: linear.window(t(33, 8), MATRIX),
    "window: depth": lambda: linear.window(t(3, 9), MATRIX),
    "window: a stack": lambda: linear.window(t(3, 8), plain_matrix(t(2, 6, 8))),
    "prompt: depth": lambda: linear.prompt(t(300, 9), MATRIX),
    "rms_norm": lambda: rms_norm.rms_norm(f(4, 9), NORM),
    "gated": lambda: rms_norm.gated(f(4, 2, 8), f(4, 3, 8), NORM),
    "layer_norm": lambda: layer_norm.layer_norm(f(4, 9), layer_norm.prepare(t(8), t(8), 1e-6)),
    "coefficients": lambda: hyper.coefficients(f(4, 3, 5), hyper_weights(), ROWS),
    "collapse": lambda: hyper.collapse(f(4, 2, 5), f(4, 1, 3), ROWS),
    "expand": lambda: hyper.expand(f(4, 2, 5), f(4, 6), f(4, 2, 1), f(4, 2, 2), ROWS),
    "site": lambda: hyper.begin(t(3, 3, 5), hyper_site()),
    "site: y": lambda: hyper.proceed(
        t(3, 2, 5), t(2, 5), hyper.Mix(t(3, 2), t(3, 2, 2)), hyper_site()
    ),
    "last": lambda: hyper.last(t(3, 2, 5), t(3, 5), hyper.Mix(t(3, 2), t(3, 2, 2)), t(4), 1e-5),
    "prompt": lambda: short_conv.prompt(t(64, 6), t(2, 6), CONV, 64),
    "prompt: rows": lambda: short_conv.prompt(t(64, 6), t(3, 6), CONV, 65),
    "window": lambda: short_conv.window(f(2, 6), f(2, 2, 6), CONV),
    "gate": lambda: kda.gate(f(4, 64), KDA),
    "step": lambda: kda.step(f(2, 48), f(2, 16), f(2, 2), f(3, 2, 8, 8), KDA, ROWS),
    "chunk": lambda: kda.chunk(t(64, 48), t(64, 16), t(64, 2), t(2, 8, 7), 64, KDA, ROWS),
    "chunk: rows": lambda: kda.chunk(t(64, 48), t(64, 16), t(64, 2), t(2, 8, 8), 65, KDA, ROWS),
    "page_write": lambda: page_write.page_write(plain(t(2, 4, 3)), ids(2), t(2, 4)),
    "copy": lambda: page_move.copy(u8(2, 4, 32), ids(3), ids(2)),
    "copy: words": lambda: page_move.copy(u8(2, 4, 40), ids(3), ids(3)),
    "pack": lambda: page_move.pack(t(2, 4, 32), ids(3)),
    "fill": lambda: page_move.fill(u8(2, 4, 32), ids(3), u8(2, 2, 32)),
    "pool_keys": lambda: indexer.pool_keys(f(2, 4, 8), f(2, 4, 8), indexer.prepare(t(4, 9))),
    "scores": lambda: indexer.scores(t(4, 2, 8), t(4, 3), t(1, 4, 8), ROWS),
    "row_scores": lambda: indexer.row_scores(f(2, 8), f(3), f(1, 4, 8)),
    "select": lambda: indexer.select(t(4, 9), ids(3), 2),
    "row_select": lambda: indexer.row_select(f(9), 10, 2),
    "token_lists": lambda: indexer.token_lists(
        ids(4, 2), ids(4), ids(3, 2), null=9, page=16, pool=4
    ),
    "row_token_lists": lambda: indexer.row_token_lists(
        ids(4, 2).numpy(), ids(3).numpy(), ids(4, 2).numpy(), null=9, page=16, pool=4
    ),
    "selected": lambda: latent_attention.selected(
        t(4, 2, 8), plain(t(2, 4, 7)), ids(4, 5), ids(4, 5).bool(), 16, ROWS
    ),
    "dense": lambda: latent_attention.dense(
        t(2, 4, 2, 8), plain(t(2, 4, 8)), ids(3, 5), ids(3), 5, ROWS
    ),
    "mlp": lambda: mlp.mlp(f(4, 8), WEIGHT, WEIGHT, 1.0, ROWS),
    "mix": lambda: experts.mix(f(4, 8), 5, expert_weights(), ROWS),
    "mix: columns": lambda: experts.mix(f(4, 8), 4, expert_weights(), ROWS),
    "mlp: window": lambda: mlp.window(t(3, 9), MATRIX, MATRIX, 1.0),
    "mlp: prompt": lambda: mlp.prompt(t(3, 8), MATRIX, plain_matrix(t(8, 4)), 1.0),
    "mlp: blocks": lambda: mlp.window(
        t(3, 8), fp8_matrix(t(200, 8), t(2, 1)), plain_matrix(t(8, 100)), 1.0
    ),
    "experts: rows": lambda: experts.window(*routed(33), shared=t(33, 8)),
    "experts: shared": lambda: experts.prompt(*routed(3), shared=t(3, 7)),
    "choose": lambda: experts.choose(t(2, 3), t(4), count=2, normalise=True, factor=1.0),
    "choose: count": lambda: experts.choose(t(2, 3), t(3), count=4, normalise=True, factor=1.0),
    "draw": lambda: draw.draw(f(2, 3), temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, noise=0.5),
    "draw: temperature": lambda: draw.draw(
        f(3), temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, noise=0.5
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_refused_by_name(name: str) -> None:
    with pytest.raises(ArgumentError, match=name.partition(":")[0]):
        MISFITS[name]()


@pytest.mark.parametrize("bound", [0.0, 1.0, -81.0])
def test_a_decay_that_cannot_be_computed_is_refused(bound: float) -> None:
    with pytest.raises(ArgumentError, match="decay"):
        kda.constants(2, 8, bound)


def test_blocks_shrink_with_the_decay() -> None:
    blocks = [kda.constants(2, 8, bound).block for bound in (-1.0, -5.0, -5.1, -20.0, -80.0)]
    assert blocks == [16, 16, 8, 4, 1]
