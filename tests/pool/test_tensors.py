"""The memory behind page ids: poison, the null page, bytes."""

from __future__ import annotations

import torch

from streamglm.pool.layout import CacheShape
from streamglm.pool.tensors import PoolTensors

SHAPE = CacheShape(
    caches=3,
    latent_dim=6,
    index_dim=4,
    pool=4,
    page_rows=64,
    kda_layers=1,
    kda_heads=1,
    kda_head_dim=2,
    conv_width=2,
    row_itemsize=4,
)


def test_poison_fills_what_is_taken_and_nothing_else() -> None:
    pool = PoolTensors(SHAPE, 5, poison=True)
    pool.take((4, 1))
    for table in (pool.latents, pool.keys):
        assert torch.isnan(table[:, [1, 4]]).all()
        assert (table[:, [0, 2, 3, pool.null]] == 0.0).all()


def test_without_poison_a_page_is_taken_as_it_is() -> None:
    pool = PoolTensors(SHAPE, 2)
    pool.latents.fill_(3.0)
    pool.take((0, 1))
    assert (pool.latents == 3.0).all()


def test_the_null_page_lies_behind_the_last() -> None:
    pool = PoolTensors(SHAPE, 7, poison=True)
    pool.take(tuple(range(7)))
    assert pool.null == 7
    assert pool.latents.shape == (3, 8, 64, 6)
    assert pool.keys.shape == (3, 8, 16, 4)
    assert (pool.latents[:, pool.null] == 0.0).all()


def test_arrays_and_tensors_are_one_memory() -> None:
    pool = PoolTensors(SHAPE, 2)
    pool.latents_host[2][1] = 5.0
    pool.keys_host[0][1] = 4.0
    assert pool.latents[2, 1].eq(5.0).all()
    assert pool.keys[0, 1].eq(4.0).all()


def test_bytes_are_those_of_the_layout() -> None:
    assert PoolTensors(SHAPE, 9).bytes == 10 * SHAPE.page_bytes
