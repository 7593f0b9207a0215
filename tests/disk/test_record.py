"""Records as bytes: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from streamglm.disk.record import Kind, Label, Raw, Section, decode, encode, read_header
from streamglm.errors import RecordDamaged

LABEL = Label(Kind.PAGE, b"i" * 16, b"k" * 16, b"p" * 16, 3, 1, 2)
TOKENS = np.arange(8, dtype="<u4").tobytes()


def section(size: int, seed: int, *, packs: bool) -> Raw:
    draw = np.random.default_rng(seed)
    data = draw.integers(0, 256, size, dtype=np.uint8)
    if packs:
        data[::4] = 7
        data[1::4] = data[1::4] // 64
    return data


def made(*sections: tuple[Raw, int], label: Label = LABEL) -> tuple[bytes, tuple[Section, ...]]:
    """A record of (section, item size)."""
    arrays, items = [one for one, _ in sections], [item for _, item in sections]
    layout = tuple(Section(one.nbytes, item) for one, item in sections)
    return encode(label, TOKENS, arrays, items), layout


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 600), st.sampled_from([1, 2, 4])), max_size=4),
    packs=st.booleans(),
    seed=st.integers(0, 9),
)
def test_what_goes_in_comes_out(sizes: list[tuple[int, int]], packs: bool, seed: int) -> None:
    sections = [
        (section(n * item, seed + i, packs=packs), item) for i, (n, item) in enumerate(sizes)
    ]
    data, layout = made(*sections)
    out = decode(data, LABEL, TOKENS, layout)
    assert all(np.array_equal(a, b) for a, (b, _) in zip(out, sections, strict=True))


def test_a_record_is_packed_only_where_that_pays() -> None:
    loose, tight = section(40_000, 1, packs=False), section(40_000, 1, packs=True)
    assert len(made((loose, 4))[0]) == 104 + 16 + 8 + 32 + 40_000
    assert len(made((tight, 4))[0]) < 40_000 / 1.1


def test_every_bit_of_the_header_counts() -> None:
    data, layout = made((section(4000, 1, packs=True), 4), (section(64, 2, packs=False), 2))
    size = read_header(data).size
    for place in range(size):
        for bit in range(8):
            bad = bytearray(data)
            bad[place] ^= 1 << bit
            with pytest.raises(RecordDamaged):
                decode(bytes(bad), LABEL, TOKENS, layout)


def test_bits_of_the_body_count() -> None:
    data, layout = made((section(4000, 1, packs=True), 4))
    size = read_header(data).size
    for place in (*range(size, len(data), 37), len(data) - 1):
        bad = bytearray(data)
        bad[place] ^= 1 << place % 8
        with pytest.raises(RecordDamaged):
            decode(bytes(bad), LABEL, TOKENS, layout)


def test_every_cut_counts_and_a_byte_too_many() -> None:
    data, layout = made((section(400, 1, packs=True), 4))
    for length in range(len(data)):
        with pytest.raises(RecordDamaged):
            decode(data[:length], LABEL, TOKENS, layout)
    with pytest.raises(RecordDamaged, match="bytes follow its header"):
        decode(data + b"\0", LABEL, TOKENS, layout)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": Kind.FIXED},
        {"identity": b"j" * 16},
        {"key": b"q" * 16},
        {"parent": b"q" * 16},
        {"depth": 4},
        {"rank": 0},
        {"world": 3},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_of_something_else_is_refused(change: dict[str, object]) -> None:
    data, layout = made((section(400, 1, packs=True), 4))
    other = dataclasses.replace(LABEL, **change)  # type: ignore[arg-type]
    with pytest.raises(RecordDamaged, match="something else"):
        decode(data, other, TOKENS, layout)


def test_equal_keys_do_not_make_equal_tokens() -> None:
    """The chain finds a page, its tokens decide."""
    data, layout = made((section(400, 1, packs=True), 4))
    with pytest.raises(RecordDamaged, match="other tokens"):
        decode(data, LABEL, TOKENS[:-4] + b"\1\0\0\0", layout)


@pytest.mark.parametrize(
    "layout",
    [(Section(400, 2),), (Section(399, 4),), (), (Section(400, 4), Section(4, 4))],
    ids=["item", "size", "none", "more"],
)
def test_another_layout_is_refused(layout: tuple[Section, ...]) -> None:
    data, _ = made((section(400, 1, packs=True), 4))
    with pytest.raises(RecordDamaged, match="layout"):
        decode(data, LABEL, TOKENS, layout)


def test_a_section_that_a_rank_does_not_have() -> None:
    """Whole or not at all, and only where a layout says so."""
    there, rows = section(64, 2, packs=False), Section(400, 4, optional=True)
    keys = Section(64, 2)
    absent, _ = made((section(0, 1, packs=False), 4), (there, 2))
    latents, found = decode(absent, LABEL, TOKENS, (rows, keys))
    assert (len(latents), found.tobytes()) == (0, there.tobytes())
    half, _ = made((section(200, 1, packs=False), 4), (there, 2))
    for data, layout in ((half, (rows, keys)), (absent, (Section(400, 4), keys))):
        with pytest.raises(RecordDamaged, match="layout"):
            decode(data, LABEL, TOKENS, layout)


def test_another_version_is_named() -> None:
    data, _ = made((section(400, 1, packs=True), 4))
    later = bytearray(data)
    later[8:10] = struct.pack("<H", 2)
    size = read_header(data).size
    later[size - 8 : size] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(later[: size - 8])))
    with pytest.raises(RecordDamaged, match="version 2"):
        read_header(bytes(later))
