"""`bench split`: what plans hold, what makes a run void, and whose time is whose."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from bench import split
from bench.client import Answer, Reply
from bench.record import Void
from bench.split import KINDS, Server, Shape
from streamglm.model.shapes import GLM_5_3_FLASH

REPLY = Reply(1.0, (1.5, 2.0, 4.0), "aa", prompt_tokens=9, completion_tokens=3, cached_tokens=0)


@pytest.mark.parametrize(("ranks", "least", "most"), [(2, 1.88, 1.90), (3, 2.6, 2.7)])
def test_the_split_holds_more_tokens_in_the_same_bytes(
    ranks: int, least: float, most: float
) -> None:
    assert least <= split.held(GLM_5_3_FLASH, ranks)["ratio"] <= most


def test_a_prompt_is_timed_to_its_first_token_and_decode_from_there() -> None:
    assert Shape("prompt", 1, 500, 1).seconds([REPLY]) == pytest.approx(0.5)
    assert Shape("decode", 1, 9, 3).seconds([REPLY]) == pytest.approx(2.5)
    assert Shape("decode", 2, 9, 3).rows == 22


def patched(patch: pytest.MonkeyPatch, hashes: dict[str, str]) -> dict[str, Server]:
    """Servers that answer with a hash of their own, and have sent 100 bytes with every look."""

    async def exchange(address: Any, *_: Any) -> Answer:
        return Answer(float(address.port))

    sent = iter(range(0, 10_000, 100))
    ports = dict(zip((1.0, 2.0), hashes.values(), strict=True))
    patch.setattr(split, "exchange", exchange)
    patch.setattr(
        split,
        "read",
        lambda answer: Reply(1.0, (1.5, 2.0 + answer.sent), ports[answer.sent], 9, 3, 0),
    )
    patch.setattr(Server, "sent", lambda self: {"add": float(next(sent))})
    return {kind: Server(f"http://127.0.0.1:{1 + place}") for place, kind in enumerate(KINDS)}


ASKED = argparse.Namespace(streams=[1], prompts=[], new_tokens=3, runs=2)


async def test_ratios_and_bytes_are_those_of_the_two_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (row,) = await split.measure(patched(monkeypatch, dict.fromkeys(KINDS, "aa")), ASKED)
    assert (row["unsplit"], row["split"], row["ratio"]) == (1.5, 2.5, pytest.approx(0.6))
    assert row["split bytes"]["add"] == pytest.approx(200.0 / (142 * 3))
    assert split.speed_table([row], 2).row_count == 1
    assert split.bytes_table([row]).row_count == 2


async def test_other_tokens_make_the_run_void(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = patched(monkeypatch, dict(zip(KINDS, ("aa", "bb"), strict=True)))
    with pytest.raises(Void, match="other tokens"):
        await split.measure(servers, ASKED)
