"""`python -m streamglm.nano.exam --url http://127.0.0.1:8080`: what nano can do, measured.

Owns the asking, the scores and their table. Knows no model: a running server answers over HTTP, or,
with `--offline FOLDER`, the training code reads a checkpoint itself (which needs no server, and
also measures drafts and a random selection).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Tokenizer

from streamglm.nano import exam_tasks, folder
from streamglm.nano.exam_question import Question, Reply, assistant, user
from streamglm.nano.exam_tasks import LENGTHS, SECTIONS
from streamglm.nano.training.dialog import Call

Asker = Callable[[Sequence[Question]], list[Reply]]
"""Answers questions in their order; `before` has been worked off already."""


class Server:
    """A running server, asked over the OpenAI route."""

    def __init__(self, url: str, streams: int, key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=url, timeout=1800, headers=headers)
        self._streams = streams
        models = self._client.get("/v1/models").raise_for_status().json()
        self.model: str = models["data"][0]["id"]

    def __call__(self, questions: Sequence[Question]) -> list[Reply]:
        with ThreadPoolExecutor(self._streams) as pool:
            return list(pool.map(self._ask, questions))

    def _ask(self, question: Question) -> Reply:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": question.messages,
            "temperature": 0,
            "max_tokens": question.most,
            "reasoning_effort": question.effort,
        }
        if question.tools:
            body["tools"] = question.tools
        answer = self._client.post("/v1/chat/completions", json=body)
        if answer.is_error:
            raise RuntimeError(f"{question.section}: {answer.status_code} {answer.text}")
        sent = answer.json()
        message = sent["choices"][0]["message"]
        calls = tuple(
            Call(call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or []
        )
        return Reply(
            message.get("content") or "",
            message.get("reasoning_content") or "",
            calls,
            sent["usage"]["completion_tokens"],
        )


def ask_all(asker: Asker, questions: Sequence[Question]) -> list[Reply]:
    """Answer every question, those with earlier turns turn by turn."""
    waiting = [replace(q, messages=[]) if q.before else q for q in questions]
    rounds = max((len(q.before) for q in questions), default=0)
    for turn in range(rounds):
        live = [i for i, q in enumerate(questions) if turn < len(q.before)]
        for i in live:
            said = user(questions[i].before[turn])
            waiting[i] = replace(waiting[i], messages=[*waiting[i].messages, said])
        for i, reply in zip(live, asker([waiting[i] for i in live]), strict=True):
            waiting[i] = replace(
                waiting[i], messages=[*waiting[i].messages, assistant(reply.content)]
            )
    final = [
        replace(w, messages=[*w.messages, *q.messages]) if q.before else w
        for w, q in zip(waiting, questions, strict=True)
    ]
    return asker(final)


def score(questions: Sequence[Question], replies: Sequence[Reply]) -> dict[str, dict[str, Any]]:
    """Section -> right and all, of groups where questions are grouped; held-out wordings apart."""
    groups: dict[tuple[str, str], list[bool]] = defaultdict(list)
    fresh: dict[tuple[str, str], bool] = {}
    for number, (question, reply) in enumerate(zip(questions, replies, strict=True)):
        key = (question.section, question.group or str(number))
        groups[key].append(question.judge(reply))
        fresh[key] = question.fresh
    sections: dict[str, dict[str, Any]] = {}
    for key, right in groups.items():
        row = sections.setdefault(
            key[0],
            {
                "right": 0,
                "all": 0,
                "fresh_right": 0,
                "fresh_all": 0,
                "answers_right": 0,
                "answers": 0,
            },
        )
        row["right"] += all(right)
        row["all"] += 1
        row["answers_right"] += sum(right)
        row["answers"] += len(right)
        row["fresh_right"] += all(right) and fresh[key]
        row["fresh_all"] += fresh[key]
    return sections


def reasoning_lengths(questions: Sequence[Question], replies: Sequence[Reply]) -> dict[str, float]:
    """Effort -> mean characters of reasoning."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for question, reply in zip(questions, replies, strict=True):
        lengths[question.effort].append(len(reply.reasoning))
    return {effort: round(sum(n) / len(n), 1) for effort, n in lengths.items()}


def table(sections: dict[str, dict[str, Any]]) -> str:
    """The scores as a Markdown table."""
    lines = [
        "| ability | right | of | share | held-out wordings |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, row in sections.items():
        held = f"{row['fresh_right']} of {row['fresh_all']}" if row["fresh_all"] else "-"
        share = 100 * row["right"] / row["all"]
        lines.append(f"| {name} | {row['right']} | {row['all']} | {share:.1f} % | {held} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the exam; print the table and write the JSON."""
    given = build_parser().parse_args(arguments)
    tokenizer = Tokenizer.from_file(str((given.offline or folder()) / "tokenizer.json"))

    def measure(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    begun = time.monotonic()
    asker: Asker
    extra: dict[str, Any] = {}
    questions = exam_tasks.questions(
        given.seed, given.scale, measure, given.lengths, given.sections
    )
    compared = exam_tasks.efforts(given.seed, round(12 * given.scale)) if given.sections else []
    if given.offline:
        from streamglm.nano.training.offline import Offline

        offline = Offline(given.offline, given.device)
        asker = offline
    else:
        asker = Server(given.url, given.streams, given.api_key)
    replies = ask_all(asker, questions)
    sections = score(questions, replies)
    lengths = reasoning_lengths(compared, ask_all(asker, compared))
    if given.offline:
        extra = offline.extras()
    missed = [
        {
            "section": question.section,
            "asked": question.messages[-1]["content"][-300:],
            "wanted": question.wanted,
            "got": reply.content,
            "calls": [(call.name, dict(call.arguments)) for call in reply.calls],
            "held_out_wording": question.fresh,
        }
        for question, reply in zip(questions, replies, strict=True)
        if not question.judge(reply)
    ]
    report = {
        "seed": given.seed,
        "scale": given.scale,
        "through": "the training code" if given.offline else "the server",
        "seconds": round(time.monotonic() - begun, 1),
        "sections": sections,
        "reasoning_characters": lengths,
        **extra,
        "missed": missed,
    }
    if given.json:
        given.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    shown = {key: value for key, value in report.items() if key not in ("sections", "missed")}
    sys.stdout.write(f"{table(sections)}\n\n{json.dumps(shown, indent=1)}\n")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m streamglm.nano.exam", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server")
    parser.add_argument("--api-key", help="its key, when it asks for one")
    parser.add_argument("--streams", type=int, default=4, help="questions in flight at once")
    parser.add_argument(
        "--offline", type=Path, help="a checkpoint folder to examine without a server"
    )
    parser.add_argument("--device", default="cpu", help="with --offline: cpu or cuda")
    parser.add_argument("--seed", type=int, default=2027)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies the number of questions"
    )
    parser.add_argument(
        "--sections", nargs="*", choices=tuple(SECTIONS), default=list(SECTIONS), help="abilities"
    )
    parser.add_argument(
        "--lengths", nargs="*", choices=tuple(LENGTHS), default=list(LENGTHS), help="marker lengths"
    )
    parser.add_argument("--json", type=Path, help="where the whole report goes")
    return parser


if __name__ == "__main__":
    main()
