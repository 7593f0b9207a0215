"""From a conversation to token ids, as the chat template lays it out.

Owns the order of tokens and what is learned from each. Knows no topic. Invariant: the ids are
those of the rendered template, token by token; a test compares them. Special tokens cut the text,
so every stretch between two of them is encoded by itself.

What is learned: everything the assistant writes, its end token included, counts fully; what
others write counts a little. A turn whose reasoning is not shown (as in a history that a client
sends back) teaches its answer and not the empty reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from streamglm.nano.training import tokens
from streamglm.nano.training.dialog import Answer, Conversation, Effort, Kind, Said, Turn

FULL = 1.0
LITTLE = 0.02
NONE = 0.0
ALIGN = 16
"""A conversation is padded to a multiple of this many tokens, so that pools and tiles never
straddle two conversations."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One conversation. Entry i of `weight` and `kind` speak of predicting token i; `turn` counts
    the answers from 1, and is 0 where nothing is scored."""

    ids: npt.NDArray[np.uint16]
    weight: npt.NDArray[np.float16]
    kind: npt.NDArray[np.uint8]
    turn: npt.NDArray[np.uint16]


class Layout:
    """Encodes conversations with one tokenizer and one template's wording around tools."""

    def __init__(self, tokenizer: Tokenizer, template: str) -> None:
        """`template` is the source of `chat_template.jinja`."""
        self.tokenizer = tokenizer
        self._around = _around_tools(template)
        added = {t.content: i for i, t in tokenizer.get_added_tokens_decoder().items()}
        self._id = {token: added[token] for token in tokens.ADDED}

    @classmethod
    def from_folder(cls, folder: Path) -> Layout:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return cls(tokenizer, (folder / "chat_template.jinja").read_text("utf-8"))

    def encode(self, talk: Conversation, limit: int | None = None) -> Encoded:
        """The tokens of `talk`; turns that would pass `limit` are left out."""
        pieces = _Pieces()
        self._open(pieces, talk)
        ends: list[int] = []
        for number, (turn, kept) in enumerate(zip(talk.turns, talk.kept, strict=True), 1):
            ends.append(len(pieces.texts))
            self._turn(pieces, turn, talk.effort, kept, number)
        pieces.add("<|user|>", FULL if pieces.ends_well else NONE, 0, 0)
        return self._joined(pieces, ends, limit)

    def prompt(self, talk: Conversation) -> list[int]:
        """The tokens up to the last answer: what a server would be given to continue."""
        pieces = _Pieces()
        self._open(pieces, talk)
        for number, (turn, kept) in enumerate(zip(talk.turns, talk.kept, strict=True), 1):
            last = number == len(talk.turns)
            self._turn(pieces, turn[:-1] if last else turn, talk.effort, kept, number)
        pieces.add("<|assistant|>", NONE, 0, 0)
        pieces.add("<think>", NONE, 0, 0)
        return [i for ids in self._ids(pieces) for i in ids]

    def _open(self, pieces: _Pieces, talk: Conversation) -> None:
        pieces.add("[gMASK]", NONE, 0, 0)
        pieces.add("<sop>", NONE, 0, 0)
        pieces.add("<|system|>", NONE, 0, 0)
        pieces.add(f"Reasoning Effort: {talk.effort.name.capitalize()}", NONE, 0, 0)
        if talk.tools:
            pieces.add("<|system|>", NONE, 0, 0)
            lines = "\n".join(
                [json.dumps(tool["function"], ensure_ascii=False) for tool in talk.tools]
            )
            before, after = self._around
            self._text(pieces, before + lines + after, LITTLE)
        for text in talk.systems:
            pieces.add("<|system|>", NONE, 0, 0)
            self._text(pieces, text, LITTLE)

    def _text(
        self, pieces: _Pieces, text: str, weight: float, kind: int = 0, turn: int = 0
    ) -> None:
        """Text that may spell out added tokens, which then become their ids."""
        if "<" not in text and "[" not in text and "/nothink" not in text:
            pieces.add(text, weight, kind, turn)
            return
        at = 0
        while at < len(text):
            found = [(p, t) for t in tokens.ADDED if (p := text.find(t, at)) >= 0]
            place, token = min(found, default=(len(text), ""))
            if place > at:
                pieces.add(text[at:place], weight, kind, turn)
            if token:
                pieces.add(token, weight, kind, turn)
            at = place + len(token)

    def _turn(self, pieces: _Pieces, turn: Turn, effort: Effort, kept: bool, number: int) -> None:
        for message in turn:
            if isinstance(message, Said):
                pieces.add("<|user|>", FULL if pieces.ends_well else NONE, pieces.kind, pieces.turn)
                self._text(pieces, message.text, LITTLE)
                pieces.ends_well = False
            elif isinstance(message, Answer):
                self._answer(pieces, message, effort, kept, number)
            else:
                pieces.add("<|observation|>", FULL, pieces.kind, pieces.turn)
                for text in message.texts:
                    pieces.add("<tool_response>", NONE, 0, 0)
                    self._text(pieces, text, LITTLE)
                    pieces.add("</tool_response>", NONE, 0, 0)
                pieces.ends_well = False

    def _answer(
        self, pieces: _Pieces, answer: Answer, effort: Effort, kept: bool, number: int
    ) -> None:
        pieces.add("<|assistant|>", NONE, 0, 0)
        pieces.add("<think>", NONE, 0, 0)
        if kept:
            self._text(pieces, answer.thought.at(effort), FULL)
        pieces.add("</think>", FULL if kept else NONE, 0, 0)
        self._text(pieces, answer.text, FULL, answer.kind, number)
        for call in answer.calls:
            self._text(pieces, call.markup(), FULL, answer.kind, number)
        pieces.ends_well = True
        pieces.kind, pieces.turn = answer.kind, number

    def _ids(self, pieces: _Pieces) -> list[list[int]]:
        """The ids of each piece."""
        plain = [i for i, text in enumerate(pieces.texts) if text not in self._id]
        encoded = self.tokenizer.encode_batch_fast(
            [pieces.texts[i] for i in plain], add_special_tokens=False
        )
        ids: list[list[int]] = [[self._id.get(text, -1)] for text in pieces.texts]
        for i, encoding in zip(plain, encoded, strict=True):
            ids[i] = encoding.ids
        return ids

    def _joined(self, pieces: _Pieces, ends: Sequence[int], limit: int | None) -> Encoded:
        ids = self._ids(pieces)
        lengths = np.array([len(piece) for piece in ids])
        keep = len(ids)
        if limit is not None and lengths.sum() > limit:
            total = lengths.cumsum()
            # the piece at a turn's start is its role token, which still ends the turn before
            fitting = [end for end in ends[1:] if total[end] <= limit]
            keep = fitting[-1] + 1 if fitting else 0
        lengths = lengths[:keep]
        return Encoded(
            ids=np.fromiter((i for piece in ids[:keep] for i in piece), np.uint16),
            weight=np.repeat(np.array(pieces.weights[:keep], np.float16), lengths),
            kind=np.repeat(np.array(pieces.kinds[:keep], np.uint8), lengths),
            turn=np.repeat(np.array(pieces.turns[:keep], np.uint16), lengths),
        )


class _Pieces:
    """Stretches of text and single special tokens, with what is learned from each."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.weights: list[float] = []
        self.kinds: list[int] = []
        self.turns: list[int] = []
        self.ends_well = False
        """The last message was an answer, so that the next role token ends it."""
        self.kind = 0
        self.turn = 0

    def add(self, text: str, weight: float, kind: int, turn: int) -> None:
        if text:
            self.texts.append(text)
            self.weights.append(weight)
            self.kinds.append(kind)
            self.turns.append(turn)


def messages(talk: Conversation, upto: int | None = None) -> list[dict[str, Any]]:
    """The conversation as a client sends it, its first `upto` messages after the systems."""
    sent: list[dict[str, Any]] = [{"role": "system", "content": text} for text in talk.systems]
    flat = [
        (message, kept)
        for turn, kept in zip(talk.turns, talk.kept, strict=True)
        for message in turn
    ]
    for number, (message, kept) in enumerate(flat[:upto]):
        if isinstance(message, Said):
            sent.append({"role": "user", "content": message.text})
        elif isinstance(message, Answer):
            sent.append(_assistant(message, talk.effort if kept else None, number))
        else:
            calls = sent[-1]["tool_calls"]
            sent.extend(
                {"role": "tool", "tool_call_id": call["id"], "content": text}
                for call, text in zip(calls, message.texts, strict=True)
            )
    return sent


def _assistant(answer: Answer, effort: Effort | None, number: int) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if effort is not None:
        sent["reasoning_content"] = answer.thought.at(effort)
    if answer.calls:
        sent["tool_calls"] = [
            {
                "id": f"call_{number}_{i}",
                "type": "function",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for i, call in enumerate(answer.calls)
        ]
    return sent


def render(template: str, talk: Conversation) -> str:
    """The whole conversation through the template itself."""
    return compiled(template).render(
        messages=messages(talk),
        tools=talk.tools or None,
        reasoning_effort=talk.effort.name.lower(),
        add_generation_prompt=False,
    )


def _around_tools(template: str) -> tuple[str, str]:
    """What the template writes before and after the lines of the tools."""
    tool: Mapping[str, Any] = {"type": "function", "function": {"name": "x"}}
    text = compiled(template).render(messages=[], tools=[tool], add_generation_prompt=False)
    block = text.split("<|system|>")[-1]
    before, after = block.split('{"name": "x"}')
    return before, after


def compiled(source: str) -> jinja2.Template:
    """A chat template, ready to render, set up as the usual libraries set it up."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(source)


KINDS = {kind.value: kind.name.lower() for kind in Kind}
"""Names of the scores."""
