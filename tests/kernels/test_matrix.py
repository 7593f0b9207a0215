"""Packed weights: no bit is lost on the way to a kernel's order, and their values are the golden
ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from streamglm.kernels import matrix
from streamglm.kernels.arguments import ArgumentError
from streamglm.kernels.matrix import Format, packed_of
from streamglm.kernels.stored import random

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize("columns", [16, 112, 128, 144, 1024])
def test_packing_for_a_kernel_loses_no_bit(columns: int) -> None:
    given = random(np.random.default_rng(columns), Format.NVFP4, (3, 5, columns))
    made = given.matrix("torch")
    assert torch.equal(packed_of(made), given.numbers)
    assert made.numbers.shape[2] * 4 % matrix.BLOCK == 0
    assert made.scales is not None
    assert given.scales is not None
    kept = made.scales.view(torch.uint8)[:, :, : columns // 16]
    assert torch.equal(kept, given.scales.view(torch.uint8))


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("halves", [1, 2])
def test_values_are_those_of_the_checkpoint(format: Format, halves: int) -> None:
    given = random(np.random.default_rng(1), format, (2, 136, 304), halves=halves)
    found = given.matrix("torch").values().double().numpy()
    assert np.abs(found - given.values()).max() <= 1e-6


@pytest.mark.parametrize(
    ("spelling", "names"),
    [
        ("modelopt", ("weight", "weight_scale_2")),
        ("ct", ("weight_packed", "weight_global_scale")),
    ],
)
def test_nvfp4_has_the_golden_values_to_float32_rounding(
    spelling: str, names: tuple[str, str]
) -> None:
    given = load_file(DATA / "nvfp4.safetensors")
    packed, whole = (given[f"{spelling}.{name}"] for name in names)
    scales, expected = given[f"{spelling}.weight_scale"], given[f"{spelling}.expected"]
    made = matrix.nvfp4(packed, scales, whole, divides=spelling == "ct")
    assert ((made.values()[0] - expected).abs() <= 2.0**-22 * expected.abs()).all()


def test_fp8_blocks_have_the_golden_values_to_the_bit() -> None:
    given = load_file(DATA / "fp8_blocks.safetensors")
    made = matrix.fp8(given["weight"], given["weight_scale_inv"])
    assert torch.equal(made.values()[0][given["rows"]], given["expected_rows"])


def test_a_number_of_nvfp4_times_its_scale_is_exact_in_bfloat16() -> None:
    """So a kernel may multiply them as bfloat16."""
    numbers = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    scales = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    products = numbers.unsqueeze(1) * scales[scales.isfinite()]
    assert torch.equal(products.bfloat16().float(), products)
    assert torch.equal(products.half().float(), products)


def test_bytes_are_counted_once() -> None:
    made = random(np.random.default_rng(2), Format.NVFP4, (1, 32, 512)).matrix("torch")
    assert made.bytes == 32 * 512 // 2 + 32 * 512 // 16 + 4


def test_scales_that_do_not_fit_are_refused_with_both_shapes() -> None:
    numbers = torch.zeros(200, 300).to(torch.float8_e4m3fn)
    with pytest.raises(ArgumentError, match=r"\(2, 3\) in blocks of 128, not \(2, 2\)"):
        matrix.fp8(numbers, torch.ones(2, 2))
    packed, scales = torch.zeros(4, 16, dtype=torch.uint8), torch.ones(4, 3)
    with pytest.raises(ArgumentError, match=r"\(1, 4, 2\), not \(1, 4, 3\)"):
        matrix.nvfp4(packed, scales.to(torch.float8_e4m3fn), torch.ones(1))
    with pytest.raises(ArgumentError, match="3 scales of all for 4 rows"):
        matrix.nvfp4(packed, scales[:, :2].to(torch.float8_e4m3fn), torch.ones(3))
