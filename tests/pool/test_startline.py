"""What a server says of its plan: the bytes are the plan's, and the warnings come when due."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from streamglm.pool.carve import GIB, Wants
from streamglm.pool.plan import Plan, plan
from streamglm.pool.startline import cache_for_slots, start_line, warnings
from support.plans import MILLION, RINGS_FIXED, example, gib, real


def bytes_of(line: str) -> dict[str, int]:
    """The whole bytes in a start-up line, by the part they belong to."""
    found = re.findall(r"([a-z ]+) [\d.,]+ GiB \(([\d,]+) bytes\)", line)
    return {name.strip(): int(size.replace(",", "")) for name, size in found}


PLANS = [
    plan(gib(15.256), real(2), Wants(MILLION, 8)),
    plan(gib(40), real(), Wants(131_072, 4, share=0)),
    plan(gib(30), example(RINGS_FIXED), Wants(MILLION, 8, share=0, split=True)),
    plan(gib(60), real(), Wants(131_072, 4, paged=False)),
]


@pytest.mark.parametrize("one", PLANS, ids=["shared", "copied", "split", "windows"])
def test_the_bytes_in_the_line_are_what_is_taken(one: Plan) -> None:
    """Fails with a number of its own in any part of the line."""
    parts = bytes_of(start_line(one, host_bytes=3 * GIB))
    host = parts.pop("host cache")
    assert host == 3 * GIB
    assert parts == {
        "pool": one.pages * one.page_bytes,
        "lanes": one.wants.lanes * one.sizes.fixed_bytes,
        "kept states": one.kept_bytes,
    }
    assert sum(parts.values()) == one.taken <= one.room


def test_the_line_says_how_many_windows_and_slots_that_is() -> None:
    line = start_line(PLANS[0])
    assert "1 full window of 1,048,576 tokens for 8 lanes" in line
    assert "26 of 32 slots" in line


def test_slots_that_are_short_name_the_smallest_cache_that_holds_them() -> None:
    """Two GiB hold 11 of 16; 3 GiB hold all, and the line says so."""
    fixed = int(1.016 * GIB) // 4
    wants = Wants(262_144, 4, cache=gib(2), share=16)
    one = plan(gib(16.1), example(fixed), wants)
    assert one.carved.slots == 11
    more = cache_for_slots(one)
    assert more == 3
    assert "`--prompt-cache-gib 3` holds 16" in start_line(one)
    assert plan(gib(16.1), example(fixed), replace(wants, cache=gib(more))).carved.slots == 16
    assert plan(gib(16.1), example(fixed), replace(wants, cache=gib(more - 1))).carved.slots < 16


def test_no_cache_is_named_where_none_would_hold_the_slots() -> None:
    one = plan(gib(15.256), example(), Wants(MILLION, 8, share=64))
    assert 0 < one.carved.slots < 64
    assert cache_for_slots(one) is None
    assert "--prompt-cache-gib" not in start_line(one)


def test_a_split_pool_says_its_classes_and_its_bytes_a_token() -> None:
    """The pages with the trash pages, and those of a class without."""
    line = start_line(PLANS[2])
    assert "7,740 pages of 512 rows, 3,962,880 tokens" in line
    assert "2 classes of 3,869 pages and a trash page, 6,912 bytes a token" in line


@pytest.mark.parametrize(
    ("wants", "room", "expected"),
    [
        (Wants(131_072, 4), 60, None),
        (Wants(131_072, 4, share=8), 60, "8, fewer than 4 a lane"),
        (Wants(131_072, 4, cache=0), 60, "no prompt is kept"),
        (Wants(131_072, 4, cache=0, share=0), 60, "no prompt is kept"),
        (Wants(131_072, 1, cache=70 * GIB), 60, "70.00 GiB of prompt cache were asked for"),
        (Wants(131_072, 4, pool_tokens=4_096), 60, "less than a window of 131,072"),
    ],
)
def test_a_warning_comes_when_it_is_due(wants: Wants, room: float, expected: str | None) -> None:
    found = warnings(plan(gib(room), real(), wants))
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]


def test_a_host_cache_keeps_prompts_where_the_device_keeps_none() -> None:
    one = plan(gib(60), real(), Wants(131_072, 4, cache=0))
    assert not warnings(one, host_bytes=GIB)


def test_a_cache_that_gave_way_to_the_classes_is_told() -> None:
    one = plan(gib(18.2), example(RINGS_FIXED), Wants(MILLION, 8, share=0, split=True))
    assert any("gave way to 2.10 GiB" in line for line in warnings(one))
