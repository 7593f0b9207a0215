"""What does not fit a kernel is refused by name before anything is launched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from streamglm.kernels import kda, short_conv
from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.pages import plain

pytest.importorskip("triton")

from streamglm.kernels.draw import kernel as draw_kernel
from streamglm.kernels.indexer import kernel as indexer_kernel
from streamglm.kernels.kda import kernel as kda_kernel
from streamglm.kernels.latent_attention import kernel as attention_kernel
from streamglm.kernels.latent_attention import prompt_kernel as attention_prompt
from streamglm.kernels.short_conv import kernel as conv_kernel

KDA = kda.constants(2, 8, -5.0)
CONV = short_conv.prepare(torch.ones(6, 4))


def t(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


def i(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


MISFITS: dict[str, Callable[[], object]] = {
    "selected: dim": lambda: attention_prompt.selected_prompt(
        t(4, 2, 8), plain(t(2, 4, 7)), i(4, 5)
    ),
    "selected: rows": lambda: attention_kernel.selected_window(
        t(4, 2, 8), plain(t(2, 4, 8)), i(3, 5)
    ),
    "dense": lambda: attention_kernel.dense(t(2, 4, 2, 8), plain(t(2, 4, 8)), i(3, 1), i(2), i(2)),
    "pool_write: ape": lambda: indexer_kernel.pool_write(
        t(8, 6), t(8, 6), t(3, 6), i(2, 4), plain(t(2, 4, 6)), i(2)
    ),
    "pool_write: slots": lambda: indexer_kernel.pool_write(
        t(8, 6), t(8, 6), t(4, 6), i(2, 4), plain(t(2, 4, 6)), i(3)
    ),
    "scores": lambda: indexer_kernel.scores(
        t(4, 2, 8), t(4, 3), plain(t(2, 4, 8)), i(1, 2), i(4), t(4, 8)
    ),
    "select": lambda: indexer_kernel.select(t(4, 9), i(3), 2),
    "token_lists": lambda: indexer_kernel.token_lists(i(4, 2), i(4), i(3, 2), page=16, pool=4),
    "gate": lambda: kda_kernel.gate(t(4, 64), KDA),
    "window: qkv": lambda: kda_kernel.window(
        t(4, 47), t(4, 16), t(4, 2), t(1, 2, 8, 8), i(1, 3), KDA, keep=True
    ),
    "prompt: state": lambda: kda_kernel.prompt(
        t(4, 48), t(4, 16), t(4, 2), t(1, 2, 8, 7), i(1, 2), i(1, 3), KDA
    ),
    "conv": lambda: conv_kernel.conv(t(4, 6), t(2, 2, 6), CONV, i(1, 3), 4),
    "draw": lambda: draw_kernel.draw(t(4, 9), t(4, 2), i(4, 3), 9),
    "greedy": lambda: draw_kernel.greedy(t(9, 4).t()),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_refused_by_name(name: str) -> None:
    with pytest.raises(ArgumentError, match=name.partition(":")[0]):
        MISFITS[name]()
