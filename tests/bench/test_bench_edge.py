"""The contests of the edge: a small one runs whole, and what is missing voids it."""

from __future__ import annotations

import pytest

from bench import edge
from bench.edge import Load, Result
from bench.mock import SAID
from bench.record import Void


def test_both_servers_say_the_same_token_by_token() -> None:
    found = edge.contest(Load(streams=3, rounds=7), 1)
    for (one,) in found.values():
        assert (one.events, one.tokens, one.dropped) == (21, 21, 0)
        assert one.text
        assert SAID.encode().startswith(one.text)
        assert one.cpu > 0


def test_several_tokens_a_round_are_one_event_of_ours() -> None:
    one = edge.run("ours", Load(streams=2, rounds=5, a_round=4))
    assert (one.tokens, one.events) == (40, 10)


def test_another_text_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(kind: str, load: Load) -> Result:
        return Result(1, 1.0, 1.0, 1, text=kind.encode())

    monkeypatch.setattr(edge, "run", other)
    with pytest.raises(Void, match="not say the same"):
        edge.contest(Load(1, 1), 1)


def test_a_ratio_above_one_is_better_for_us() -> None:
    plain, ours = Result(100, 2.0, 4.0, 100), Result(100, 1.0, 1.0, 100)
    found = {"plain": [plain], "ours": [ours]}
    assert edge.ratio(found, "per_second") == 2.0
    assert edge.ratio(found, "cpu_micros") == 4.0
