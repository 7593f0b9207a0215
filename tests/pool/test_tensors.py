"""The memory behind page ids: poison, the null page, copies, bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from streamglm.model.caches import Caches
from streamglm.pool.layout import CacheShape, RowFormat
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
    rows=RowFormat.FP32,
    hidden=0,
    verify_rows=0,
    value_itemsize=4,
)
SHAPES = [replace(SHAPE, rows=rows) for rows in RowFormat]
formats = pytest.mark.parametrize("shape", SHAPES, ids=list(RowFormat))


@formats
def test_poison_fills_what_is_taken_with_nan_and_nothing_else(shape: CacheShape) -> None:
    pool = PoolTensors(shape, 5, poison=True)
    pool.take((4, 1))
    caches = Caches.of(pool)
    for pages in (*caches.latents, *caches.keys):
        for table in (pages.values, pages.scales):
            if table is not None:
                assert torch.isnan(table[[1, 4]].float()).all()
                assert (table[[0, 2, 3, pool.null]].float() == 0.0).all()


def test_without_poison_a_page_is_taken_as_it_is() -> None:
    pool = PoolTensors(SHAPE, 2)
    pool.latents.fill_(3)
    pool.take((0, 1))
    assert (pool.latents == 3).all()


@formats
def test_the_null_page_lies_behind_the_last(shape: CacheShape) -> None:
    pool = PoolTensors(shape, 7, poison=True)
    pool.take(tuple(range(7)))
    caches = Caches.of(pool)
    assert pool.null == 7
    assert [pages.values.shape for pages in caches.latents] == [(8, 64, 6)] * 3
    assert [pages.values.shape for pages in caches.keys] == [(8, 16, 4)] * 3
    assert (pool.latents[:, pool.null] == 0).all()


@formats
def test_arrays_and_tensors_are_one_memory(shape: CacheShape) -> None:
    pool = PoolTensors(shape, 2)
    caches = Caches.of(pool)
    caches.latents[2].host[1] = 5
    caches.keys[0].host[1] = 4
    for table, cache in ((pool.latents, 2), (pool.keys, 0)):
        assert table[cache, 1].any()
        assert not table[cache, [0, 2]].any()
        assert not table[[other for other in range(3) if other != cache]].any()


@formats
def test_copies_of_pages_are_all_their_bytes(shape: CacheShape) -> None:
    pool = PoolTensors(shape, 6)
    noise = torch.Generator().manual_seed(1)
    for table in (pool.latents, pool.keys):
        table.random_(0, 256, generator=noise)
    before = pool.latents.clone(), pool.keys.clone()
    copies = pool.copy_out((4, 0, 2))
    assert copies.bytes == 3 * shape.page_bytes
    pool.latents.zero_()
    pool.keys.zero_()
    pool.copy_in((1, 3, 5), copies)
    for table, was in zip((pool.latents, pool.keys), before, strict=True):
        assert torch.equal(table[:, [1, 3, 5]], was[:, [4, 0, 2]])
        assert not table[:, [0, 2, 4, 6]].any()


@formats
def test_bytes_are_those_of_the_layout(shape: CacheShape) -> None:
    pool = PoolTensors(shape, 9)
    assert pool.bytes == 9 * shape.page_bytes
    assert pool.null_bytes == shape.page_bytes


@formats
@pytest.mark.parametrize("caches", [1, 3])
def test_a_page_goes_out_as_bytes_and_comes_back(shape: CacheShape, caches: int) -> None:
    """A copy, also with one cache, whose page is one piece of memory: what is staged for the disk
    must not change when the page is another's."""
    shape = replace(shape, caches=caches)
    pool = PoolTensors(shape, 4)
    pool.latents.random_(0, 255)
    pool.keys.random_(0, 255)
    out = pool.page(2)
    assert [(one.nbytes, item) for one, (_, item) in zip(out, pool.sections, strict=True)] == [
        *pool.sections
    ]
    assert sum(size for size, _ in pool.sections) == shape.page_bytes
    copies = pool.copy_out((2,)).page(0)
    before = [one.copy() for one in out]
    latents, keys = pool.latents[:, 2].clone(), pool.keys[:, 2].clone()
    pool.take((2,))
    pool.latents[:, 2] = 7
    pool.keys[:, 2] = 7
    assert all((a == b).all() for a, b in zip(out, before, strict=True))
    assert all((a == b).all() for a, b in zip(copies, before, strict=True))
    pool.put(1, out)
    assert torch.equal(pool.latents[:, 1], latents)
    assert torch.equal(pool.keys[:, 1], keys)
