"""`bench decode --drafts`: names of policies, forced patterns, the gate, medians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from bench import drafts
from bench.drafts import Engine, Policy, Run
from bench.record import Void
from bench.timed import Prompt
from streamglm import nano
from streamglm.drafts.replies import Stand

TOKENS = list(range(40, 80))


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("off", Policy("off", 0)),
        ("auto", Policy("auto", None)),
        ("4", Policy("4", 4)),
        ("3+1", Policy("3+1", None, (3, 1))),
    ],
)
def test_a_policy_by_its_name(name: str, policy: Policy) -> None:
    assert Policy.of(name) == policy


@pytest.mark.parametrize("name", ["on", "", "-1", "3+", "+3"])
def test_what_is_no_policy_voids_the_run(name: str) -> None:
    with pytest.raises(Void, match="off, auto, a number, or T"):
        Policy.of(name)


@pytest.mark.parametrize(
    ("pattern", "left", "true", "false"),
    [
        ((3, 1), 40, 3, 1),
        ((0, 3), 40, 0, 3),
        ((15, 0), 40, 15, 0),
        ((3, 3), 5, 3, 1),
        ((9, 9), 1, 0, 0),
    ],
)
def test_a_forced_pattern_ends_with_the_reply(
    pattern: tuple[int, int], left: int, true: int, false: int
) -> None:
    wanted = TOKENS[-left:]
    found = drafts._forced(wanted, pattern, Stand(0, left, 99))
    assert list(found[:true]) == wanted[:true]
    assert len(found) == true + false
    assert all(one != two for one, two in zip(found[true:], wanted[true:], strict=False))


class Fake:
    """Takes a second for each policy's place in the list; `liar` draws another last token."""

    def __init__(self, liar: str = "") -> None:
        self.calls: list[str] = []
        self._liar = liar

    def run(self, policy: Policy, prompts: Sequence[Prompt], new: int, known: object) -> Run:
        self.calls.append(policy.name)
        tokens = {lane: [*prompt, *range(new)][:new] for lane, prompt in enumerate(prompts)}
        if policy.name == self._liar:
            tokens[len(prompts) - 1][-1] += 1
        seconds = 4.0 if policy.name == "off" else 2.0
        return Run(seconds, rounds=7, drafted=5, accepted=3, tokens=tokens)


POLICIES = [Policy.of(name) for name in ("off", "auto", "2+1")]
PROMPTS: list[Prompt] = [(9, 8), (7, 6)]


def test_runs_alternate_behind_a_gate_and_ratios_are_to_the_serial_run() -> None:
    fake = Fake()
    found = drafts.compare(cast("Engine", fake), POLICIES, PROMPTS, 5, runs=2)
    assert fake.calls == ["off", "off", *["off", "auto", "2+1"] * 3]
    rows = {row["drafts"]: row for row in drafts.summary(found, 2, 5)}
    assert rows["auto"]["over_off"] == 2.0
    assert rows["auto"]["tokens_per_second"] == 2 * 4 / 2.0
    assert (rows["off"]["over_off"], rows["auto"]["windows"]) == (1.0, 7)


def test_a_policy_that_changes_a_token_voids_the_run() -> None:
    with pytest.raises(Void, match="drafts auto: tokens differ"):
        drafts.compare(cast("Engine", Fake("auto")), POLICIES, PROMPTS, 5, runs=2)


def test_the_engine_runs_every_kind_of_policy() -> None:
    """The built-in model, two streams; the gate holds and forced drafts come true as they say."""
    policies = [Policy.of(name) for name in ("off", "auto", "3", "2+1")]
    engine = Engine(nano.folder(), policies, threads=1, lanes=2, tokens=80)
    prompts = [tuple(range(2, 40)), tuple(range(30, 50))]
    found = drafts.compare(engine, policies, prompts, 21, runs=1)
    rows = {row["drafts"]: row for row in drafts.summary(found, 2, 21)}
    assert rows["off"]["windows"] == 40
    assert rows["2+1"]["accepted"] > 20
    assert rows["2+1"]["windows"] < 20
    assert rows["3"]["drafted"] > 20
