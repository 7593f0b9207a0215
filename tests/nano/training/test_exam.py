"""The exam: questions that have answers, judges that can fail, a table that adds up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from streamglm.nano import exam, exam_question, exam_tasks
from streamglm.nano.exam_question import Question, Reply
from streamglm.nano.training import phrases
from streamglm.nano.training.dialog import Call
from streamglm.nano.training.dice import Dice


def asked(scale: float = 0.05) -> list[Question]:
    return exam_tasks.questions(3, scale, len, ["4k"])


def said(text: str, calls: tuple[Call, ...] = ()) -> Reply:
    return Reply(text, "", calls, 1)


def test_a_seed_decides_the_questions() -> None:
    def contents(seed: int) -> list[object]:
        return [q.messages for q in exam_tasks.questions(seed, 0.05, len, ["4k"])]

    assert contents(3) == contents(3)
    assert contents(3) != contents(4)


def test_every_section_and_both_wordings_occur() -> None:
    sections = {(q.section, q.fresh) for q in asked()}
    for name in [*exam_tasks.SECTIONS, "markers 4k"]:
        assert (name, False) in sections
        assert (name, True) in sections or name == "look-ups backwards"


def test_what_is_wanted_satisfies_its_judge_and_silence_does_not() -> None:
    for question in asked():
        wanted = said(question.wanted)
        if question.section == "tool calls":
            wanted = said("", tuple(Call(name, args) for name, args in json.loads(question.wanted)))
        if question.section == "unknown":
            wanted = said("I was not told that.")
        assert question.judge(wanted), question.wanted
        assert not question.judge(said("")), question.section


def test_a_value_inside_a_longer_one_is_no_answer() -> None:
    assert exam_question.holds("41")(said("It is 41."))
    assert not exam_question.holds("41")(said("It is 417."))
    assert not exam_question.holds("heron")(said("heron-lamp-3"))


def test_markers_stand_where_they_can_be_found_and_fill_the_length() -> None:
    three = [q for q in asked() if q.section == "markers 4k"][:3]
    assert len({q.group for q in three}) == 1
    text = " ".join(message["content"] for message in three[0].messages)
    assert all(question.wanted in text for question in three)
    assert 3500 < len(text) < 5000  # measured in characters here


def test_held_out_wordings_never_occur_in_training_requests() -> None:
    assert not set(phrases.HELD_OUT_REQUESTS) & set(phrases.REQUESTS)
    assert not set(phrases.HELD_OUT_REPEATERS) & set(phrases.REPEATERS)
    assert not set(phrases.HELD_OUT_TOOL_VERBS) & set(phrases.TOOL_VERBS)
    assert phrases.request(Dice(1), "X", fresh=True) != phrases.request(Dice(1), "X")


def test_a_group_counts_as_right_only_when_all_of_it_is() -> None:
    def question(group: str, fresh: bool) -> Question:
        return Question("s", [], exam_question.exactly("x"), "x", fresh, group=group)

    questions = [question("a", True), question("a", True), question("b", False)]
    scores = exam.score(questions, [said("x"), said("y"), said("x")])
    assert scores["s"]["right"] == 1
    assert scores["s"]["all"] == 2
    assert (scores["s"]["answers_right"], scores["s"]["answers"]) == (2, 3)
    assert (scores["s"]["fresh_right"], scores["s"]["fresh_all"]) == (0, 1)
    assert "| s | 1 | 2 | 50.0 % | 0 of 1 |" in exam.table(scores)


def test_earlier_turns_are_answered_live() -> None:
    seen: list[list[str]] = []

    def asker(questions: Sequence[Question]) -> list[Reply]:
        seen.append([message["content"] for message in questions[0].messages])
        return [said(f"reply {len(seen)}") for _ in questions]

    question = Question(
        "s", [exam_question.user("last")], exam_question.exactly("x"), "x", False, before=("a", "b")
    )
    assert exam.ask_all(asker, [question])[0].content == "reply 3"
    assert seen == [["a"], ["a", "reply 1", "b"], ["a", "reply 1", "b", "reply 2", "last"]]


def test_a_server_is_asked_greedily_and_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[dict[str, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "nano"}]})
        bodies.append(json.loads(request.content))
        call = {"function": {"name": "f", "arguments": '{"a": 1}'}}
        message = {"content": None, "reasoning_content": "hm", "tool_calls": [call]}
        body = {"choices": [{"message": message}], "usage": {"completion_tokens": 7}}
        return httpx.Response(200, json=body)

    real = httpx.Client

    def client(**named: object) -> httpx.Client:
        return real(transport=httpx.MockTransport(answer), base_url="http://x")

    monkeypatch.setattr(httpx, "Client", client)
    hello = [exam_question.user("hi")]
    question = Question("s", hello, exam_question.refuses, "", False, effort="high")
    reply = exam.Server("http://x", 1)([question])[0]
    assert reply == Reply("", "hm", (Call("f", {"a": 1}),), 7)
    assert bodies[0]["temperature"] == 0
    assert bodies[0]["reasoning_effort"] == "high"
    assert bodies[0]["model"] == "nano"


def test_the_training_code_takes_the_exam_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], untrained: Path
) -> None:
    report = tmp_path / "report.json"
    exam.main(
        ["--offline", str(untrained), "--scale", "0.02", "--sections", "tool results", "spelling",
         "--lengths", "--json", str(report)]
    )  # fmt: skip
    assert "| spelling |" in capsys.readouterr().out
    made = json.loads(report.read_text())
    assert set(made["sections"]) == {"tool results", "spelling"}
    assert made["draft_agreement"]["repeats"] == 0.0
    assert made["missed"]
