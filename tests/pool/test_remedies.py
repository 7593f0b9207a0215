"""Refusals: each has its numbers, and whatever remedy it names was made to start here."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from streamglm.pool.carve import GIB, Sizes, Wants, Why
from streamglm.pool.layout import RowFormat
from streamglm.pool.plan import Plan, plan
from streamglm.pool.remedies import Flags
from support.plans import MILLION, RINGS_FIXED, example, gib, real

ONE = real()
TWO = real(2)


def with_flags(wants: Wants, flags: Flags) -> Wants:
    """`wants` after a person typed `flags`: the texts are parsed, not the plan's own values."""
    parsed: dict[str, Any] = {}
    for flag, text in flags:
        match flag:
            case "--parallel":
                parsed["lanes"] = int(text)
            case "--context":
                parsed["context"] = int(text)
            case "--prompt-cache-gib":
                parsed["cache"] = int(float(text) * GIB)
            case "--kv-share":
                parsed["share"] = int(text)
            case "--kv-pages":
                assert text == "auto"
                parsed["paged"] = True
            case "--kv-split":
                assert text == "off"
                parsed["split"] = False
            case "--pool-tokens":
                parsed["pool_tokens"] = int(text)
            case _:
                raise AssertionError(f"{flag} is no setting of a plan")
    return replace(wants, **parsed)


def refused(room: float, sizes: Sizes, wants: Wants) -> Plan:
    """The plan, refused, with every remedy of it started, each alone and all together."""
    one = plan(gib(room), sizes, wants)
    assert one.refused is not None
    for flags in one.refused.remedies:
        assert plan(gib(room), sizes, with_flags(wants, flags)).refused is None, flags
        for flag, text in flags:
            assert f"`{flag} {text}`" in one.refused.remedy
    together = tuple(pair for flags in one.refused.remedies for pair in flags)
    if together:
        assert plan(gib(room), sizes, with_flags(wants, together)).refused is None
    return one


CASES = [
    (Why.NO_STREAM, 26, TWO, Wants(MILLION, 8)),
    (Why.NO_STREAM, 5, ONE, Wants(MILLION, 2, cache=GIB)),
    (Why.NO_STREAM, 12, ONE, Wants(MILLION, 1)),
    (Why.NO_STREAM, 2, ONE, Wants(MILLION, 64)),
    (Why.TOO_MANY, 15.256, example(), Wants(MILLION, 8, paged=False, prepaid=1)),
    (Why.TOO_MANY, 30, ONE, Wants(262_144, 12, paged=False)),
    (Why.TOO_MANY, 30, ONE, Wants(32_768, 4, paged=False, pool_tokens=100_000)),
    (Why.NO_STREAM, 4, ONE, Wants(MILLION, 1, paged=False)),
    (Why.CLASS_TOO_SMALL, 18.2, example(RINGS_FIXED), Wants(MILLION, 8, cache=gib(3), split=True)),
    (Why.CLASS_TOO_SMALL, 15, example(RINGS_FIXED), Wants(MILLION, 8, split=True)),
    (Why.CONTEXT_TOO_LONG, 40, ONE, Wants(2 * MILLION, 2)),
    (Why.CONTEXT_TOO_LONG, 4, ONE, Wants(2 * MILLION, 2)),
    (Why.POOL_TOO_SMALL, 40, ONE, Wants(4_096, 2, pool_tokens=511)),
    (Why.POOL_TOO_SMALL, 40, TWO, Wants(4_096, 2, pool_tokens=1_024, split=True)),
    (Why.POOL_TOO_LARGE, 4, ONE, Wants(4_096, 2, pool_tokens=MILLION)),
    (Why.TOO_MANY_SLOTS, 40, ONE, Wants(4_096, 2, share=65)),
    (Why.TOO_MANY_SLOTS, 6, ONE, Wants(MILLION, 2, share=65)),
    (Why.SHARE_WITHOUT_PAGES, 40, ONE, Wants(4_096, 2, share=1, paged=False)),
    (Why.CLASS_TOO_SMALL, 14, TWO, Wants(MILLION, 2, cache=2 * GIB, split=True)),
    (Why.CLASS_TOO_SMALL, 12, real(3), Wants(MILLION, 4, split=True)),
    (Why.TOO_MANY_SLOTS, 40, TWO, Wants(4_096, 2, share=65, split=True)),
    (Why.SPLIT_WITHOUT_PAGES, 40, TWO, Wants(4_096, 2, split=True, paged=False)),
    (Why.SPLIT_WITH_FP8, 40, real(2, RowFormat.FP8), Wants(4_096, 2, split=True)),
    (Why.SPLIT_NEEDS_RANKS, 40, ONE, Wants(4_096, 2, split=True)),
]


@pytest.mark.parametrize(
    ("why", "room", "sizes", "wants"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_a_refusal_names_settings_that_start(
    why: Why, room: float, sizes: Sizes, wants: Wants
) -> None:
    """Fails when a remedy is text only: each is parsed back and planned with."""
    one = refused(room, sizes, wants)
    assert one.refused is not None
    assert one.refused.name is why
    assert one.refused.remedies
    assert any(letter.isdigit() for letter in one.refused.message) or why in _NO_NUMBER
    assert (one.pages, one.windows, one.taken) == (0, 0, 0)


_NO_NUMBER = {Why.SPLIT_WITHOUT_PAGES, Why.SPLIT_NEEDS_RANKS}


def test_lanes_that_are_too_many_name_the_most_that_fit() -> None:
    wants = Wants(262_144, 12, paged=False)
    remedies = refused(30, ONE, wants).refused
    assert remedies is not None
    flags = dict(pair for flags in remedies.remedies for pair in flags)
    most = int(flags["--parallel"])
    assert plan(gib(30), ONE, replace(wants, lanes=most + 1)).refused is not None


@pytest.mark.parametrize("room", [9, 9.01, 9.02, 9.03, 12])
def test_a_window_that_is_too_long_names_the_longest_that_fits(room: float) -> None:
    wants = Wants(MILLION, 1)
    one = refused(room, ONE, wants).refused
    assert one is not None
    ((flag, text),) = one.remedies[0]
    assert flag == "--context"
    assert plan(gib(room), ONE, replace(wants, context=int(text) + 512)).refused is not None


def test_two_settings_are_named_where_no_single_one_helps() -> None:
    """64 lanes of a million tokens in two GiB: fewer lanes alone, or a page alone, do not fit."""
    one = refused(2, ONE, Wants(MILLION, 64)).refused
    assert one is not None
    assert [flag for flag, _ in one.remedies[0]] == ["--parallel", "--context"]
    assert " and " in one.remedy


def test_two_clashes_are_settled_together() -> None:
    one = refused(6, ONE, Wants(MILLION, 2, share=65)).refused
    assert one is not None
    assert one.remedies[0][0] == ("--kv-share", "64")
    assert len(one.remedies[0]) == 2


def test_a_cache_that_is_named_is_had_whole() -> None:
    """26 GiB hold two windows but not beside eight lanes; with its cache named, they start."""
    wants = Wants(MILLION, 8, share=0)
    one = refused(26, TWO, wants).refused
    assert one is not None
    flags = dict(pair for flags in one.remedies for pair in flags)
    named = int(flags["--prompt-cache-gib"]) * GIB
    assert plan(gib(26), TWO, replace(wants, cache=named)).carved.cache == named > 0


def test_more_ranks_than_heads_name_the_most() -> None:
    one = plan(gib(40), real(64), Wants(4_096, 2))
    assert one.refused is None
    sizes = replace(real(64), world=65)
    refusal = plan(gib(40), sizes, Wants(4_096, 2)).refused
    assert refusal is not None
    assert refusal.name is Why.TOO_MANY_RANKS
    assert "`--ranks 64`" in refusal.remedy


def test_no_room_at_all_says_what_the_least_takes() -> None:
    one = refused(0.1, ONE, Wants(MILLION, 8)).refused
    assert one is not None
    assert not one.remedies
    least = (2 * ONE.whole_page_bytes + ONE.fixed_bytes) / GIB
    assert f"{least:.2f} GiB" in one.remedy


def test_the_remedies_of_random_refusals_start() -> None:
    draw = random.Random(11)
    seen = 0
    for _ in range(150):
        sizes = draw.choice([ONE, TWO, real(3)])
        wants = Wants(
            context=draw.choice([4_096, 131_072, MILLION, 3 * MILLION]),
            lanes=draw.choice([1, 4, 16, 64]),
            cache=draw.choice([None, GIB, 20 * GIB]),
            share=draw.choice([None, None, 0, 65]),
            paged=draw.random() < 0.7,
            split=draw.random() < 0.3,
            pool_tokens=draw.choice([None, None, None, 100, 5_000_000]),
        )
        room = draw.uniform(0.5, 40)
        if plan(gib(room), sizes, wants).refused is not None:
            refused(room, sizes, wants)
            seen += 1
    assert seen > 50
