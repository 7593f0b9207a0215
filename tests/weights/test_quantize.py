"""FP8 blocks against golden values, whole, with partial blocks, and in slices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from streamglm.weights.quantize import scale_blocks

DATA = Path(__file__).parent.parent / "data" / "fp8_blocks.safetensors"


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    """`weight` [256, 384] FP8, `weight_scale_inv` [2, 3], and the float32 values of some rows."""
    return load_file(DATA)


def values(golden: dict[str, torch.Tensor], rows: slice, columns: slice) -> torch.Tensor:
    weight = golden["weight"].float()[rows, columns]
    scale_blocks(
        weight,
        golden["weight_scale_inv"],
        (256, 384),
        first_row=rows.start or 0,
        first_column=columns.start or 0,
    )
    return weight


def test_blocks_have_the_golden_values_to_the_bit(golden: dict[str, torch.Tensor]) -> None:
    whole = values(golden, slice(None), slice(None))
    assert torch.equal(whole[golden["rows"]], golden["expected_rows"])


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (slice(0, 128), slice(0, 384)),
        (slice(100, 131), slice(0, 384)),
        (slice(0, 256), slice(128, 256)),
        (slice(0, 256), slice(37, 300)),
        (slice(127, 129), slice(383, 384)),
    ],
    ids=["block", "across-rows", "block-columns", "across-columns", "corner"],
)
def test_a_slice_has_the_values_of_the_whole(
    golden: dict[str, torch.Tensor], rows: slice, columns: slice
) -> None:
    whole = values(golden, slice(None), slice(None))
    assert torch.equal(values(golden, rows, columns), whole[rows, columns])


def test_last_blocks_may_be_partial(golden: dict[str, torch.Tensor]) -> None:
    """A tensor cut to [200, 300] has the same 2 x 3 grid, hence the same blocks of 128."""
    cut = golden["weight"].float()[:200, :300]
    scale_blocks(cut, golden["weight_scale_inv"], (200, 300), first_row=0, first_column=0)
    rows = golden["rows"] < 200
    assert torch.equal(cut[golden["rows"][rows]], golden["expected_rows"][rows, :300])
