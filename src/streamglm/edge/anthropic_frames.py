"""The JSON of a reply in Anthropic's Messages: events of a stream, and the whole message.

Owns blocks, stop reasons and usage as this API spells them. Knows no sockets. What is the same in
every delta of a block is encoded once, when the block begins. Invariant: the blocks of a stream,
put together as clients do, are those of the whole message, but for a call that was cut: a whole
message leaves it out, since half of its input is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from streamglm.edge.logprobs import Named
from streamglm.edge.parts import Part, Parts, is_whole
from streamglm.edge.refusals import ANTHROPIC, error_object
from streamglm.edge.served import ServedModel
from streamglm.edge.telling import Telling
from streamglm.errors import StreamglmError
from streamglm.text.pieces import Kind, Piece

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
DELTAS = {
    Kind.REASONING: b'{"type":"thinking_delta","thinking":',
    Kind.CONTENT: b'{"type":"text_delta","text":',
    Kind.CALL: b'{"type":"input_json_delta","partial_json":',
}


def event(kind: str, value: Mapping[str, Any]) -> bytes:
    """One server-sent event under its name."""
    data = orjson.dumps({"type": kind, **value})
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


class MessageFrames:
    """One message, streamed or whole. `telling` is read for what it has come to."""

    beat = event("ping", {})
    done = b""

    def __init__(self, telling: Telling, model: ServedModel) -> None:
        self._telling = telling
        self._model = model
        self._parts = Parts()
        self._open: int | None = None  # the number of the block that is not closed yet
        self._before = b""  # what stands before the text of each of its deltas

    def opening(self) -> bytes:
        message = self._message([], None, tokens=0)
        return event("message_start", {"message": {**message, **self._prompt_ids()}})

    def chunk(self, piece: Piece, named: Named | None) -> bytes:
        begun = self._close() + self._begin() if self._parts.add(piece) else b""
        if piece.kind is Kind.CALL or not piece.text:
            return begun
        return begun + self._before + orjson.dumps(piece.text) + b"}}\n\n"

    def finish(self, reason: str, named: Named | None, figures: Mapping[str, Any]) -> bytes:
        usage = self._usage(len(self._telling.ids))
        return (
            self._close()
            + event("message_delta", {"delta": self._end(reason), "usage": usage})
            + event("message_stop", {"streamglm": figures, **self._reply_ids()})
        )

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        return b""  # every message tells its usage

    def failure(self, error: StreamglmError) -> bytes:
        return event("error", error_object(error, ANTHROPIC))

    def whole(
        self,
        pieces: Sequence[Piece],
        reason: str,
        named: Named | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The message, and beside its own fields ours."""
        for piece in pieces:
            self._parts.add(piece)
        blocks = [self._block(number) for number in range(len(self._parts.all))]
        message = self._message(
            [block for block in blocks if block], reason, tokens=len(self._telling.ids)
        )
        figures = {"streamglm": totals["streamglm"]}
        return {**message, **figures, **self._prompt_ids(), **self._reply_ids()}

    # -- blocks

    def _begin(self) -> bytes:
        """The start of the newest block."""
        self._open = len(self._parts.all) - 1
        part = self._parts.all[self._open]
        self._before = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":'
            % self._open
        ) + DELTAS[part.kind]
        block = _empty(part, self._call_id(self._open))
        return event("content_block_start", {"index": self._open, "content_block": block})

    def _close(self) -> bytes:
        """The end of the block that is open, if one is."""
        if self._open is None:
            return b""
        index, part = self._open, self._parts.all[self._open]
        self._open = None
        signed = b""
        if part.kind is Kind.REASONING:
            delta = {"type": "signature_delta", "signature": signature(part.text)}
            signed = event("content_block_delta", {"index": index, "delta": delta})
        return signed + event("content_block_stop", {"index": index})

    def _block(self, number: int) -> dict[str, Any] | None:
        """A block of the whole message; None for a call that was cut."""
        part = self._parts.all[number]
        empty = _empty(part, self._call_id(number))
        match part.kind:
            case Kind.REASONING:
                return {**empty, "thinking": part.text, "signature": signature(part.text)}
            case Kind.CALL:
                # as it was written: numbers of any length, at any depth
                return {**empty, "input": orjson.Fragment(part.text)} if is_whole(part) else None
            case _:
                return {**empty, "text": part.text}

    def _call_id(self, number: int) -> str:
        """No other call of any reply has it."""
        return f"toolu_{self._telling.ask.request.id.removeprefix('msg_')}{number:02d}"

    # -- what stands around them

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, *, tokens: int
    ) -> dict[str, Any]:
        return {
            "id": self._telling.ask.request.id,
            "type": "message",
            "role": "assistant",
            "model": self._model.name,
            "content": content,
            **self._end(reason),
            "usage": self._usage(tokens),
        }

    def _end(self, reason: str | None) -> dict[str, Any]:
        stop = self._telling.stop_string if reason == "stop" else None
        told = "stop_sequence" if stop is not None else STOP_REASONS.get(reason or "")
        return {"stop_reason": told, "stop_sequence": stop}

    def _usage(self, tokens: int) -> dict[str, Any]:
        """Tokens of the prompt are told in two parts: computed, and read from what was kept."""
        cached = self._telling.cached_tokens
        return {
            "input_tokens": len(self._telling.ask.request.prompt) - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": tokens,
            "output_tokens_details": {"thinking_tokens": self._telling.reasoning_tokens},
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _prompt_ids(self) -> dict[str, Any]:
        ask = self._telling.ask
        return {"prompt_token_ids": ask.request.prompt} if ask.return_token_ids else {}

    def _reply_ids(self) -> dict[str, Any]:
        return {"token_ids": self._telling.ids} if self._telling.ask.return_token_ids else {}


def _empty(part: Part, call_id: str) -> dict[str, Any]:
    """A block as it begins."""
    match part.kind:
        case Kind.REASONING:
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Kind.CALL:
            return {"type": "tool_use", "id": call_id, "name": part.name, "input": {}}
        case _:
            return {"type": "text", "text": ""}


def signature(thinking: str) -> str:
    """Of a thinking block: a checksum of its text. It is told because clients keep no block
    without one, and never checked."""
    return hashlib.sha256(thinking.encode()).hexdigest()
