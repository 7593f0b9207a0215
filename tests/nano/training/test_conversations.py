"""What is said: answers follow from the conversation, wordings expand, seeds decide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamglm.nano.training import phrases, prose, scene, scraps, words
from streamglm.nano.training.dialog import Answer, Kind, Results, Said
from streamglm.nano.training.dice import Dice
from streamglm.nano.training.tasks import facts, lookups, markers, repeats, tools


def test_a_wording_takes_one_of_its_alternatives_and_fills_its_slots() -> None:
    said = {Dice(seed).say("(a|b(c|d)) {x}", {"x": "y"}) for seed in range(50)}
    assert said == {"a y", "bc y", "bd y"}


def test_a_seed_decides_every_choice() -> None:
    assert scene.compose(Dice(7), 800, scene.SHORT) == scene.compose(Dice(7), 800, scene.SHORT)
    assert scene.compose(Dice(7), 800, scene.SHORT) != scene.compose(Dice(8), 800, scene.SHORT)


@pytest.mark.parametrize("seed", range(60))
def test_a_fact_is_told_and_answered_with_its_value(seed: int) -> None:
    dice = Dice(seed)
    fact = facts.draw(dice)
    assert fact.value in fact.told[0]
    assert fact.value in fact.answer
    assert fact.value not in " ".join(fact.asked) + fact.missing
    other = facts.similar(dice, fact)
    assert other.value in other.told[0]


@pytest.mark.parametrize("seed", range(60))
def test_a_marker_is_planted_word_for_word(seed: int) -> None:
    dice = Dice(seed)
    marker = markers.draw(dice)
    assert marker.sentence in markers.planted(dice, marker)
    asked, answer = markers.ask(dice, marker, [])
    assert isinstance(asked, Said)
    assert isinstance(answer, Answer)
    assert answer.text == marker.sentence
    assert marker.sentence not in asked.text


@pytest.mark.parametrize("make", [prose.coined, prose.cutting, prose.invented])
def test_no_held_out_word_is_made_up_by_chance(
    make: Callable[[Dice], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exam's own words are too rare to wait for: words that do come about are held out."""
    common = {make(Dice(seed)) for seed in range(40)}
    monkeypatch.setattr(words, "HELD_OUT", frozenset(common))
    assert not {make(Dice(seed)) for seed in range(400)} & common


def test_words_that_mean_nothing_are_none_of_the_held_out_wordings() -> None:
    held = " ".join(phrases.HELD_OUT_TOOL_VERBS + phrases.HELD_OUT_REPEATERS).split()
    assert not {phrases.stray(Dice(seed), 1, 1).strip() for seed in range(4000)} & set(held)


def test_an_exam_asks_nothing_that_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> str:
        raise AssertionError("a wording that means nothing")

    monkeypatch.setattr(phrases, "stray", refused)
    dice = Dice(1, sensible=True)
    for _ in range(100):
        phrases.request(dice, "marker B")
        phrases.tell(dice, "it is so")
        phrases.repeat_request(dice)
        tools.use(dice, tools.offer(dice))
        markers.planted(dice, markers.draw(dice))
    with pytest.raises(AssertionError, match="means nothing"):
        any(phrases.request(Dice(seed), "marker B") == "" for seed in range(100))


@pytest.mark.parametrize("seed", range(40))
def test_a_question_goes_backwards_from_a_value_to_its_row(seed: int) -> None:
    dice = Dice(seed)
    table = lookups.draw(dice, 6, 2)
    cell = lookups.cell(dice, table, backwards=1.0)
    value = cell.answer.text.split(" belongs to ")[0].split(" ", 1)[1] if cell.backwards else ""
    rows = [row for row in table.rows if any(value.endswith(one) for one in row[1:])]
    assert not cell.backwards or cell.wanted in [row[0] for row in rows]
    assert cell.backwards == (cell.answer.kind is Kind.BACKWARDS)


@pytest.mark.parametrize("seed", range(120))
def test_a_text_to_repeat_has_no_white_space_at_its_ends(seed: int) -> None:
    text = scraps.scrap(Dice(seed), 1 + seed)
    assert text
    assert text == text.strip()


@pytest.mark.parametrize("seed", range(60))
def test_a_repeat_asks_for_the_very_text(seed: int) -> None:
    asked, answer = repeats.repeat(Dice(seed))
    assert isinstance(asked, Said)
    assert isinstance(answer, Answer)
    assert answer.text in asked.text


@pytest.mark.parametrize("seed", range(60))
def test_a_look_up_can_be_read_from_the_table(seed: int) -> None:
    dice = Dice(seed)
    table = lookups.draw(dice, 8, 3)
    cell = lookups.cell(dice, table)
    asked = cell.question.lower()
    rows = [row for row in table.rows if row[0].lower() in asked or row[0] == cell.wanted]
    assert any(cell.wanted in row for row in rows)
    assert cell.wanted in cell.answer.text
    question, answer = lookups.absent(dice, table)
    assert answer.kind is Kind.UNKNOWN
    assert not any(row[0] == question for row in table.rows)


@pytest.mark.parametrize("seed", range(60))
def test_every_argument_of_a_call_stands_in_the_request(seed: int) -> None:
    dice = Dice(seed)
    offered = tools.offer(dice)
    asked, call, results, report = tools.use(dice, offered)
    assert isinstance(asked, Said)
    assert isinstance(call, Answer)
    assert isinstance(results, Results)
    assert isinstance(report, Answer)
    for made in call.calls:
        tool = next(tool for tool in offered if tool.name == made.name)
        assert set(made.arguments) <= {p.name for p in tool.parameters}
        for value in made.arguments.values():
            assert tools.spoken(value) in asked.text


def test_unknown_questions_are_frequent_beside_known_ones() -> None:
    """Too few of them, and a model never learns to say that it was not told."""
    counts = dict.fromkeys(Kind, 0)
    for seed in range(150):
        for turn in scene.compose(Dice(seed), 1000, scene.SHORT).turns:
            for message in turn:
                if isinstance(message, Answer):
                    counts[message.kind] += 1
    known = counts[Kind.FACT] + counts[Kind.MARKER] + counts[Kind.LOOKUP]
    assert 0.2 < counts[Kind.UNKNOWN] / (known + counts[Kind.UNKNOWN]) < 0.5


def test_thinking_is_shorter_at_lower_effort() -> None:
    thoughts = [
        message.thought
        for seed in range(40)
        for turn in scene.compose(Dice(seed), 800, scene.SHORT).turns
        for message in turn
        if isinstance(message, Answer) and message.kind in (Kind.FACT, Kind.MARKER, Kind.LOOKUP)
    ]
    assert thoughts
    assert all(len(t.low) < len(t.high) < len(t.max) for t in thoughts)
