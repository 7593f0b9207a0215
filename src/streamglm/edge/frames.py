"""The JSON of replies: chunks of a stream, and whole bodies.

Owns the shapes of OpenAI's chat and text completions, but for the log-probabilities in them
(`edge/logprobs.py`). Knows no events and no sockets. What is the
same in every chunk of a stream is encoded once; a chunk of text costs one JSON string. Invariant:
each `data:` line is one JSON object in valid UTF-8, with one `id`, `created` and `model` a reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from streamglm.edge.logprobs import ChatLogprobs, Named, Shapes, TextLogprobs
from streamglm.edge.prepare import Ask
from streamglm.edge.refusals import error_object
from streamglm.edge.served import ServedModel
from streamglm.errors import StreamglmError
from streamglm.text.markup import Kind, Piece

COMMENT = b": \n\n"
DONE = b"data: [DONE]\n\n"
PLAIN = b',"logprobs":null,"finish_reason":null}]}\n\n'
"""The rest of a chunk behind its text, where it names no tokens."""


def event(value: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


def joined(pieces: Iterable[Piece], kind: Kind) -> str:
    """The text of one kind."""
    return "".join([piece.text for piece in pieces if piece.kind is kind])


def calls_of(pieces: Iterable[Piece]) -> list[tuple[str, str]]:
    """(name, arguments as JSON) of each call, in order."""
    calls: list[tuple[str, list[str]]] = []
    for kind, text in pieces:
        if kind is Kind.CALL:
            calls.append((text, []))
        elif kind is Kind.ARGUMENTS:
            calls[-1][1].append(text)
    return [(name, "".join(fragments)) for name, fragments in calls]


class Frames(Protocol):
    """What one reply is written with. `named` are the tokens to name in a chunk, or None."""

    beat: bytes
    """What is sent when there is nothing to say."""
    done: bytes
    """What ends every stream."""

    def opening(self) -> bytes:
        """The chunk before the first text, or nothing."""
        ...

    def chunk(self, piece: Piece, named: Named | None) -> bytes: ...

    def finish(self, reason: str, named: Named | None, figures: Mapping[str, Any]) -> bytes:
        """The one chunk with a `finish_reason`."""
        ...

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """The chunk of `include_usage`: no choices."""
        ...

    def failure(self, error: StreamglmError) -> bytes:
        """The event of a reply that failed after its start."""
        ...

    def whole(
        self,
        pieces: Sequence[Piece],
        reason: str,
        named: Named | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The body of a reply that is not streamed."""
        ...


class _Head:
    """What both shapes begin with."""

    beat = COMMENT
    done = DONE

    def __init__(
        self, ask: Ask, model: ServedModel, kind: str, chunk_kind: str, logprobs: Shapes
    ) -> None:
        self.ask = ask
        self._logprobs = logprobs
        self._named: dict[str, Any] = {
            "id": ask.request.id,
            "object": kind,
            "created": ask.created,
            "model": model.name,
        }
        if model.fingerprint is not None:
            self._named["system_fingerprint"] = model.fingerprint
        self._chunk = self._named | {"object": chunk_kind}
        self._head = b"data: " + orjson.dumps(self._chunk)[:-1] + b',"choices":[{"index":0,'

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        return event({**self._chunk, "choices": [], "usage": usage})

    def failure(self, error: StreamglmError) -> bytes:
        return event(error_object(error))

    def _prompt_ids(self) -> dict[str, Any]:
        if not self.ask.return_token_ids:
            return {}
        return {"prompt_token_ids": self.ask.request.prompt}

    def _tail(self, named: Named) -> bytes:
        """The rest of a chunk behind its text, where it names tokens."""
        return b"," + orjson.dumps(self._told(None, named))[1:] + b"]}\n\n"

    def _told(self, reason: str | None, named: Named | None) -> dict[str, Any]:
        """What stands in a choice behind its text."""
        told: dict[str, Any] = {"logprobs": None, "finish_reason": reason}
        if named is not None and named.logprobs:
            told["logprobs"] = self._logprobs.shape(named)
        if named is not None and self.ask.return_token_ids:
            told["token_ids"] = named.ids
        return told

    def _finish(
        self,
        empty: Mapping[str, Any],
        reason: str,
        named: Named | None,
        figures: Mapping[str, Any],
    ) -> bytes:
        choice = {"index": 0, **empty, **self._told(reason, named)}
        return event({**self._chunk, "choices": [choice], "streamglm": figures})

    def _whole(
        self,
        said: Mapping[str, Any],
        reason: str,
        named: Named | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        choice = {"index": 0, **said, **self._told(reason, named)}
        return {**self._named, "choices": [choice], **totals, **self._prompt_ids()}


class ChatFrames(_Head):
    """`chat.completion` and `chat.completion.chunk`. One object a reply: it counts the calls."""

    def __init__(self, ask: Ask, model: ServedModel) -> None:
        logprobs = ChatLogprobs(model.tokenizer)
        super().__init__(ask, model, "chat.completion", "chat.completion.chunk", logprobs)
        self._before = {
            Kind.CONTENT: self._head + b'"delta":{"content":',
            Kind.REASONING: self._head + b'"delta":{"reasoning_content":',
        }
        self._calls = 0

    def opening(self) -> bytes:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return event({**self._chunk, "choices": [choice], **self._prompt_ids()})

    def chunk(self, piece: Piece, named: Named | None) -> bytes:
        tail = PLAIN if named is None else self._tail(named)
        if piece.kind in self._before:
            return self._before[piece.kind] + orjson.dumps(piece.text) + b"}" + tail
        delta = orjson.dumps({"tool_calls": [self._call_delta(piece)]})
        return self._head + b'"delta":' + delta + tail

    def _call_delta(self, piece: Piece) -> dict[str, Any]:
        """A call's first fragment names it; those that follow have its index and no more."""
        if piece.kind is Kind.CALL:
            self._calls += 1
            return {"index": self._calls - 1, **self._call(self._calls - 1, piece.text, "")}
        return {"index": self._calls - 1, "function": {"arguments": piece.text}}

    def _call(self, index: int, name: str, arguments: str) -> dict[str, Any]:
        return {
            "id": f"call_{self.ask.request.id.rpartition('-')[2]}{index}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }

    def finish(self, reason: str, named: Named | None, figures: Mapping[str, Any]) -> bytes:
        return self._finish({"delta": {}}, reason, named, figures)

    def whole(
        self,
        pieces: Sequence[Piece],
        reason: str,
        named: Named | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": joined(pieces, Kind.CONTENT)}
        if self.ask.thinking:
            message["reasoning_content"] = joined(pieces, Kind.REASONING)
        if calls := calls_of(pieces):
            message["content"] = message["content"] or None
            message["tool_calls"] = [self._call(i, *call) for i, call in enumerate(calls)]
        return self._whole({"message": message}, reason, named, totals)


class TextFrames(_Head):
    """`text_completion`, the same object streamed and whole."""

    def __init__(self, ask: Ask, model: ServedModel) -> None:
        logprobs = TextLogprobs(model.tokenizer, ask.request.stop_ids)
        super().__init__(ask, model, "text_completion", "text_completion", logprobs)
        self._before = self._head + b'"text":'

    def opening(self) -> bytes:
        if not self.ask.return_token_ids:
            return b""
        choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": None}
        return event({**self._chunk, "choices": [choice], **self._prompt_ids()})

    def chunk(self, piece: Piece, named: Named | None) -> bytes:
        tail = PLAIN if named is None else self._tail(named)
        return self._before + orjson.dumps(piece.text) + tail

    def finish(self, reason: str, named: Named | None, figures: Mapping[str, Any]) -> bytes:
        return self._finish({"text": ""}, reason, named, figures)

    def whole(
        self,
        pieces: Sequence[Piece],
        reason: str,
        named: Named | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        return self._whole({"text": joined(pieces, Kind.CONTENT)}, reason, named, totals)


def frames_of(ask: Ask, model: ServedModel) -> Frames:
    """The shape that the request's route answers in."""
    return ChatFrames(ask, model) if ask.chat else TextFrames(ask, model)
