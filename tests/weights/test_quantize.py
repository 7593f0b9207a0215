"""FP8 blocks and NVFP4 against golden values, whole, with partial blocks, and in slices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from streamglm.weights.quantize import scale_blocks, unpack

FOLDER = Path(__file__).parent.parent / "data"
DATA = FOLDER / "fp8_blocks.safetensors"
SPELLINGS = {
    "modelopt": ("weight", "weight_scale_2", False),
    "ct": ("weight_packed", "weight_global_scale", True),
}
"""Of NVFP4: numbers, the scale of all, and whether it divides."""


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


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_nvfp4_has_the_golden_values_to_float32_rounding(spelling: str) -> None:
    """Ours round once; those of compressed-tensors round the quotient of the scales as well."""
    numbers, whole, divides = SPELLINGS[spelling]
    given = load_file(FOLDER / "nvfp4.safetensors")
    part = {
        name.removeprefix(f"{spelling}."): value
        for name, value in given.items()
        if name.startswith(f"{spelling}.")
    }
    found = unpack(part[numbers], part["weight_scale"], part[whole], divides=divides)
    if spelling == "modelopt":
        assert torch.equal(found, part["expected"])
    assert ((found - part["expected"]).abs() <= 2.0**-23 * part["expected"].abs()).all()
    head = unpack(part[numbers][:5], part["weight_scale"][:5], part[whole], divides=divides)
    assert torch.equal(head, found[:5])
    wrong = unpack(part[numbers], part["weight_scale"], part[whole], divides=not divides)
    assert not torch.allclose(wrong, part["expected"])


def test_every_number_of_nvfp4_in_both_halves_of_a_byte() -> None:
    """The lower half is the even column; the highest bit is the sign."""
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    numbers = torch.tensor(magnitudes + [-value for value in magnitudes])
    packed = torch.arange(256, dtype=torch.uint8).view(1, 256)
    one = torch.tensor(1.0)
    found = unpack(packed, torch.ones(1, 32), one, divides=False).view(16, 16, 2)
    assert torch.equal(found[:, :, 0], numbers.expand(16, 16))
    assert torch.equal(found[:, :, 1], numbers.unsqueeze(1).expand(16, 16))
