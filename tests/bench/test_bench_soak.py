"""The gates of `bench resume` and `bench soak`: what makes a run void."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psutil
import pytest

from bench import resume
from bench.client import Address, Answer, Reply
from bench.record import Void
from bench.soak import FLAT_BYTES, Soak, body

HERE = Address("127.0.0.1", 1)
COLD = Reply(0.0, (4.0, 5.0), "aa", prompt_tokens=2000, completion_tokens=8, cached_tokens=0)
KEPT = replace(COLD, times=(0.1, 0.2), cached_tokens=1984)


def answered(patch: pytest.MonkeyPatch, *replies: Reply) -> None:
    """The server gives `replies` in turn."""
    turn = iter(replies)

    async def exchange(*_: Any) -> Answer:
        return Answer(0.0)

    patch.setattr(resume, "exchange", exchange)
    patch.setattr(resume, "read", lambda _: next(turn))


async def test_a_kept_prompt_is_timed_beside_the_cold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, COLD, KEPT)
    row = await resume._length(HERE, 2000, 1)
    assert row["ratio"] == pytest.approx(40)
    assert resume.table([row], copied=False).row_count == 1


@pytest.mark.parametrize(
    ("cold", "kept", "says"),
    [
        (COLD, replace(KEPT, token_sha="bb"), "another reply"),
        (replace(COLD, cached_tokens=64), KEPT, "64 were kept at first"),
        (COLD, replace(KEPT, cached_tokens=0), "0 the second time"),
    ],
    ids=["reply", "warm", "cold"],
)
async def test_no_time_without_an_equal_reply_and_a_hit(
    monkeypatch: pytest.MonkeyPatch, cold: Reply, kept: Reply, says: str
) -> None:
    answered(monkeypatch, cold, kept)
    with pytest.raises(Void, match=says):
        await resume._length(HERE, 2000, 1)


IDLE: dict[str, Any] = {
    "slots": 4,
    "slots_free": 3,
    "kept": [{"tier": "shared", "borrowed": 0}, {"tier": "host", "borrowed": 0}],
}


@pytest.mark.parametrize(
    ("pool", "wrong", "grown", "says"),
    [
        ({}, 1, 0, "differ"),
        ({"slots_free": 2}, 0, 0, "slots"),
        ({"kept": [{"tier": "shared", "borrowed": 1}]}, 0, 0, "borrowed"),
        ({}, 0, FLAT_BYTES + 1, "grown"),
    ],
    ids=["reply", "slot", "borrow", "memory"],
)
def test_a_soak_is_void_when_something_is_lost(
    pool: dict[str, Any], wrong: int, grown: int, says: str
) -> None:
    soak = Soak(HERE, "", psutil.Process(), leave=0.3, seed=1, wrong=wrong)
    with pytest.raises(Void, match=says):
        soak._facts(IDLE | pool, grown)
    Soak(HERE, "", psutil.Process(), leave=0.3, seed=1)._facts(IDLE, 0)


def test_the_soak_shares_beginnings_and_varies_lengths() -> None:
    prompts = [body(kind)["prompt"] for kind in range(64)]
    assert len({len(prompt) for prompt in prompts}) > 30
    longest = max(prompts, key=len)
    assert sum(prompt[:64] == longest[:64] for prompt in prompts) > 4
