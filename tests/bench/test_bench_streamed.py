"""Streamed beside whole: the gate comes before the ratio, and the ratio is of medians."""

from __future__ import annotations

import json

import pytest

from bench.client import Answer
from bench.record import Void
from bench.streamed import gate, sha_of, summary


def test_a_reply_with_another_hash_is_void() -> None:
    known: dict[int, str] = {}
    gate(known, ["a", "b"])
    gate(known, ["a"])
    with pytest.raises(Void, match="reply 1"):
        gate(known, ["a", "c"])


def test_a_whole_reply_tells_its_hash_and_a_refusal_does_not() -> None:
    answer = Answer(sent=0.0)
    answer.whole, answer.status = True, 200
    answer.pieces.append((1.0, json.dumps({"streamglm": {"token_sha": "abc"}}).encode()))
    assert sha_of(answer, "whole") == "abc"
    answer.status = 400
    with pytest.raises(Void, match="400"):
        sha_of(answer, "whole")


def test_the_ratio_is_of_medians_and_above_one_is_better_for_streaming() -> None:
    found = summary({8: {"streamed": [2.0, 1.0, 9.0], "whole": [1.0, 1.0, 5.0]}}, new=16)
    assert found == {"8": {"streamed": 64.0, "whole": 128.0, "ratio": 0.5}}
