"""How rows are cut, and torch's elementwise functions at every place of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from streamglm.kernels.tiling import Tiling, bmm, exp_, sigmoid_, silu_


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


@pytest.mark.parametrize("sizes", [(4,), (16, 64), (1,), (4, 16, 64)])
def test_rows_are_cut_into_proven_sizes_and_none_is_left_out(sizes: tuple[int, ...]) -> None:
    tiling = Tiling(sizes)
    for rows in range(1, 200):
        padded = tiling.pad(rows)
        assert rows <= padded < rows + sizes[0]
        parts = list(tiling.split(padded))
        assert {size for _, size in parts} <= set(sizes)
        assert [start for start, _ in parts] == [
            sum(s for _, s in parts[:i]) for i in range(len(parts))
        ]
        assert sum(size for _, size in parts) == padded


@pytest.mark.parametrize("apply_", [sigmoid_, silu_, exp_])
@pytest.mark.parametrize("width", [1, 24, 31, 32, 96, 1000])
def test_an_element_has_its_bits_wherever_it_stands(
    apply_: Callable[[torch.Tensor], torch.Tensor], width: int, threads: int
) -> None:
    """Also beyond the size at which torch starts threads, which split a tensor anywhere."""
    row = torch.randn(width, generator=torch.Generator().manual_seed(width))
    alone = apply_(row.clone().view(1, width))[0]
    for rows in (2, 7, 64, 40000 // width + 3, 100000 // width + 1):
        found = apply_(row.expand(rows, width).contiguous())
        assert torch.equal(found, alone.expand(rows, width)), f"{rows} rows"


def test_entries_one_by_one_are_the_entries_of_a_batch() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(5, 7, 24, generator=draw), torch.randn(5, 24, 40, generator=draw)
    one = bmm(a, b, Tiling((1,), entries=False))
    assert torch.equal(one, torch.bmm(a, b))
    assert not torch.equal(one, torch.zeros_like(one))
