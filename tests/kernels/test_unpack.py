"""What a GPU runs to unpack weights, which no interpreter does: its instructions, one by one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from streamglm.kernels import matrix

pytest.importorskip("triton")

Words = npt.NDArray[Any]
"""uint32"""


def _multiply(a: Words, b: Words) -> Words:
    """Of two pairs of bfloat16; raises where a product is none, since none may be rounded."""
    halves = []
    for shift in (0, 16):
        x, y = (
            torch.from_numpy(((word >> shift) << 16).astype(np.uint32).view(np.float32)).double()
            for word in (a, b)
        )
        product = (x * y).to(torch.bfloat16)
        assert torch.equal(product.double(), x * y)
        bits = product.view(torch.int16).numpy().view(np.uint16).astype(np.uint32)
        halves.append(bits)
    return halves[0] | (halves[1] << 16)


def _permute(a: Words, selector: int) -> Words:
    """The bytes of a, or zero, that the selector's digits name."""
    picked = [(selector >> (4 * i)) & 7 for i in range(4)]
    parts = [((a >> (8 * p)) & 255) << (8 * i) for i, p in enumerate(picked) if p < 4]
    found: Words = np.bitwise_or.reduce(parts)
    return found


def _run(text: str, given: dict[str, Words]) -> dict[str, Words]:
    """The registers after the instructions."""
    known: dict[str, Any] = dict(given)
    of_two = {
        "shl.b32": np.left_shift,
        "shr.b32": np.right_shift,
        "and.b32": np.bitwise_and,
        "or.b32": np.bitwise_or,
    }
    for line in re.findall(r"^\s*([a-z][^;{}]*);", text, re.MULTILINE):
        name, into, *operands = re.split(r"[ ,]+", line.strip())
        read: list[Any] = [
            known[one] if one in known else np.uint32(int(one, 0)) for one in operands
        ]
        if name in of_two:
            known[into] = of_two[name](read[0], read[1])
        elif name == "prmt.b32":
            known[into] = _permute(read[0], int(operands[2], 0))
        elif name == "fma.rn.bf16x2":
            assert read[2] == 0x80008000
            known[into] = _multiply(read[0], np.broadcast_to(read[1], read[0].shape))
        else:
            assert name in ("mov.b32", "cvt.u32.u16")
            known[into] = read[0]
    return known


def _pair(word: Words) -> npt.NDArray[np.float64]:
    """The two bfloat16 of each word: [2, n]."""
    halves = [((word >> shift) << 16).astype(np.uint32).view(np.float32) for shift in (0, 16)]
    return np.stack(halves).astype(np.float64)


def _scales() -> tuple[Words, npt.NDArray[np.float64]]:
    """Every float8 from 0 to 448, and its value."""
    codes = torch.arange(127, dtype=torch.uint8)
    return codes.numpy().astype(np.uint32), codes.view(torch.float8_e4m3fn).double().numpy()


def test_scales_become_themselves_times_2_to_118() -> None:
    from streamglm.kernels import unpack

    codes, values = _scales()
    packed = codes | (codes[::-1] << 8) | (codes << 16) | (codes[::-1] << 24)
    found = _run(unpack._SCALES.value, {"$2": packed})
    expected = 2.0**118 * np.stack([values, values[::-1]])
    assert np.array_equal(_pair(found["$0"]), expected)
    assert np.array_equal(_pair(found["$1"]), expected)


def test_every_number_of_four_bits_times_every_scale_and_its_packing() -> None:
    """Units come from `matrix.nvfp4`; without a mask, or with another shift, this fails."""
    from streamglm.kernels import unpack

    noise = np.random.default_rng(0)
    packed = torch.from_numpy(noise.integers(0, 256, (64, 64), np.uint8))
    ones = torch.ones(64, 8).to(torch.float8_e4m3fn)
    made = matrix.nvfp4(packed, ones, torch.ones(1))
    units = made.numbers[0].numpy().view(np.uint16).reshape(64, 4, 4, 2).astype(np.uint32)
    words = (units[..., 0] | (units[..., 1] << 16)).flatten()
    columns = made.values()[0].numpy().reshape(64, 4, 4, 4, 2)  # row, word, j, thread, pair
    _, values = _scales()
    for scale in values:
        bits = np.float32(scale * 2.0**118).view(np.uint32) >> np.uint32(16)
        pair = np.full_like(words, bits | (bits << np.uint32(16)))
        found = _run(unpack._NUMBERS.value, {"$4": words, "$5": pair, "$6": pair})
        for j in range(4):
            expected = columns[:, :, j].transpose(3, 0, 2, 1).reshape(2, -1) * scale
            unpacked = _pair(found[f"${j}"]) * unpack.SMALLER.value
            assert np.array_equal(unpacked, expected)


def test_float8_becomes_bfloat16() -> None:
    from streamglm.kernels import unpack

    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[codes.view(torch.float8_e4m3fn).float().isfinite()]
    values = codes.view(torch.float8_e4m3fn).double().numpy()
    words = codes.numpy().astype(np.uint32)
    found = _run(unpack._EIGHT.value, {"$1": words | (words[::-1] << 8)})
    assert np.array_equal(_pair(found["$0"]), np.stack([values, values[::-1]]))
