"""The exam without a server: the training code reads the checkpoint and answers.

Owns batching by length, and the two measurements that no server shows: how often the MTP layer's
first draft agrees with the trunk, and what is left of long recall when selection is random.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from streamglm.model.spec import ModelSpec
from streamglm.nano.exam_question import Question, Reply
from streamglm.nano.training import backend, generate, layout, ops, weights
from streamglm.nano.training.dialog import Call
from streamglm.nano.training.net import Net, Selection
from streamglm.nano.training.schedule import POOLS

_SELECTION = Selection(POOLS)

Said = tuple[Question, list[int], list[int]]
"""A question, its prompt, its reply."""


class Offline:
    """Answers like a server at temperature 0."""

    def __init__(self, folder: Path, device: str) -> None:
        spec = ModelSpec.from_folder(folder)
        chosen = backend.cuda() if device == "cuda" else backend.plain()
        eager = replace(chosen, compiled=lambda f: f, flexible=lambda f: f)
        params = {
            n: p.to(device) for n, p in weights.load(spec, folder / "model.safetensors").items()
        }
        self.net = Net(spec, params, eager)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.template = layout.compiled((folder / "chat_template.jinja").read_text("utf-8"))
        self.ends = spec.eos_ids
        self.room = 600_000 if device == "cuda" else 100_000
        """Prompt tokens that are read at once."""
        self.said: list[Said] = []
        """Every question so far with its prompt and its reply."""

    def prompt(self, question: Question) -> list[int]:
        text = self.template.render(
            messages=[_with_arguments(message) for message in question.messages],
            tools=question.tools or None,
            reasoning_effort=question.effort,
            add_generation_prompt=True,
        )
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def __call__(self, questions: Sequence[Question]) -> list[Reply]:
        prompts, replies = self._generate(questions, _SELECTION)
        self.said += list(zip(questions, prompts, replies, strict=True))
        return [
            self._reply(ids, question) for ids, question in zip(replies, questions, strict=True)
        ]

    def ask(self, questions: Sequence[Question], selection: Selection) -> list[Reply]:
        """Answer under some other selection."""
        _, replies = self._generate(questions, selection)
        return [
            self._reply(ids, question) for ids, question in zip(replies, questions, strict=True)
        ]

    def _generate(
        self, questions: Sequence[Question], selection: Selection
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Prompts and replies; questions of like length go together."""
        prompts = [self.prompt(question) for question in questions]
        replies: list[list[int]] = [[] for _ in questions]
        order = sorted(
            range(len(questions)),
            key=lambda i: (questions[i].most, len(prompts[i]) // 1024, questions[i].group, i),
        )
        while order:
            group: list[int] = []
            most = questions[order[0]].most
            while order and len(group) < 256 and questions[order[0]].most == most:
                longest = max(len(prompts[i]) for i in [*group, order[0]])
                if group and longest * (len(group) + 1) > self.room:
                    break
                group.append(order.pop(0))
            made = generate.greedy(
                self.net, [prompts[i] for i in group], self.ends, most, selection
            )
            for i, ids in zip(group, made, strict=True):
                replies[i] = ids
        return prompts, replies

    def _reply(self, ids: list[int], question: Question) -> Reply:
        ended = bool(ids) and ids[-1] in self.ends
        text = self.tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=False)
        reasoning, _, rest = text.partition("</think>")
        content, *parts = rest.split("<tool_call>")
        calls = tuple(_call(part, question.tools) for part in parts)
        return Reply(content.strip(), reasoning, calls, len(ids))

    # ---- what only the training code can measure

    def extras(self) -> dict[str, Any]:
        """Draft agreement on the replies so far, and marker answers under a random selection."""
        short = [said for said in self.said if not said[0].section.startswith("markers")]
        copied = [said for said in short if said[0].section == "repeats"]
        mixed = [said for said in short if said[0].section != "repeats"]
        measured: dict[str, Any] = {}
        if short:
            agreement = {"mixed": self.agreement(mixed), "repeats": self.agreement(copied)}
            measured["draft_agreement"] = agreement
        at16 = [question for question, _, _ in self.said if question.section == "markers 16k"][:30]
        if at16:
            replies = self.ask(at16, Selection(POOLS, "random"))
            right = sum(q.judge(r) for q, r in zip(at16, replies, strict=True))
            measured["markers_16k_random_selection"] = {
                "answers_right": right,
                "answers": len(at16),
            }
        return measured

    @torch.no_grad()
    def agreement(self, said: Sequence[Said]) -> float:
        """Share of the replies' tokens for which the first draft is what the trunk then says."""
        agreed = total = 0
        for begin in range(0, len(said), 64):
            some = said[begin : begin + 64]
            device = self.net.params["lm_head.weight"].device
            row = generate.flat([prompt + reply for _, prompt, reply in some], device)
            hidden = self.net.hidden(row, _SELECTION)
            head = self.net.params["lm_head.weight"]
            best = ops.linear(hidden, head).argmax(-1)
            drafted = ops.linear(self.net.draft_hidden(row, hidden, _SELECTION), head).argmax(-1)
            same = (best == drafted).tolist()
            for (_, prompt, reply), edge in zip(
                some, row.segments.edges_cpu.tolist(), strict=False
            ):
                # position i predicts token i + 1: from the reply's first token to its last
                span = same[edge + len(prompt) - 1 : edge + len(prompt) + len(reply) - 1]
                agreed += sum(span)
                total += len(span)
        return round(agreed / max(1, total), 4)


def _with_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """The template walks arguments as a mapping; clients send them as a string."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    parsed = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.loads(call["function"]["arguments"]),
            },
        }
        for call in calls
    ]
    return {**message, "tool_calls": parsed}


def _call(text: str, tools: Sequence[dict[str, Any]]) -> Call:
    """A call from its markup, its arguments typed by the tool's schema."""
    name, *pairs = text.partition("</tool_call>")[0].split("<arg_key>")
    schemas: dict[str, Any] = next(
        (t["function"]["parameters"]["properties"] for t in tools if t["function"]["name"] == name),
        {},
    )
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("</arg_key>")
        value = value.removeprefix("<arg_value>").removesuffix("</arg_value>")
        if schemas.get(key, {}).get("type") != "string":
            try:
                arguments[key] = json.loads(value)
                continue
            except ValueError:
                pass
        arguments[key] = value
    return Call(name, arguments)
