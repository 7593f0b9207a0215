"""The JSON of replies: chunks of a stream, and whole bodies.

Owns the shapes of OpenAI's chat and text completions. Knows no events and no sockets. What is the
same in every chunk of a stream is encoded once; a chunk of text costs one JSON string. Invariant:
each `data:` line is one JSON object in valid UTF-8, with one `id`, `created` and `model` a reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from streamglm.edge.prepare import Ask
from streamglm.edge.served import ServedModel
from streamglm.text.markup import Kind, Piece

DONE = b"data: [DONE]\n\n"


def event(value: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


class Frames(Protocol):
    """What one reply is written with. `ids` are the token ids to name in a chunk, or None."""

    def opening(self) -> bytes:
        """The chunk before the first text, or nothing."""
        ...

    def chunk(self, piece: Piece, ids: Sequence[int] | None) -> bytes: ...

    def finish(self, reason: str, ids: Sequence[int] | None, figures: Mapping[str, Any]) -> bytes:
        """The one chunk with a `finish_reason`."""
        ...

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """The chunk of `include_usage`: no choices."""
        ...

    def whole(
        self,
        texts: Mapping[Kind, str],
        reason: str,
        ids: Sequence[int] | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The body of a reply that is not streamed."""
        ...


class _Head:
    """What both shapes begin with."""

    def __init__(self, ask: Ask, model: ServedModel, kind: str, chunk_kind: str) -> None:
        self.ask = ask
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

    def _prompt_ids(self) -> dict[str, Any]:
        if not self.ask.return_token_ids:
            return {}
        return {"prompt_token_ids": self.ask.request.prompt}

    def _finish(
        self,
        empty: Mapping[str, Any],
        reason: str,
        ids: Sequence[int] | None,
        figures: Mapping[str, Any],
    ) -> bytes:
        choice = {"index": 0, **empty, "logprobs": None, "finish_reason": reason, **_ids(ids)}
        return event({**self._chunk, "choices": [choice], "streamglm": figures})

    def _whole(
        self,
        said: Mapping[str, Any],
        reason: str,
        ids: Sequence[int] | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason, **_ids(ids)}
        return {**self._named, "choices": [choice], **totals, **self._prompt_ids()}


class ChatFrames(_Head):
    """`chat.completion` and `chat.completion.chunk`."""

    def __init__(self, ask: Ask, model: ServedModel) -> None:
        super().__init__(ask, model, "chat.completion", "chat.completion.chunk")
        self._before = {
            Kind.CONTENT: self._head + b'"delta":{"content":',
            Kind.REASONING: self._head + b'"delta":{"reasoning_content":',
        }

    def opening(self) -> bytes:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return event({**self._chunk, "choices": [choice], **self._prompt_ids()})

    def chunk(self, piece: Piece, ids: Sequence[int] | None) -> bytes:
        text = orjson.dumps(piece.text)
        return self._before[piece.kind] + text + b"}" + _tail(ids)

    def finish(self, reason: str, ids: Sequence[int] | None, figures: Mapping[str, Any]) -> bytes:
        return self._finish({"delta": {}}, reason, ids, figures)

    def whole(
        self,
        texts: Mapping[Kind, str],
        reason: str,
        ids: Sequence[int] | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        message = {"role": "assistant", "content": texts.get(Kind.CONTENT, "")}
        if self.ask.thinking:
            message["reasoning_content"] = texts.get(Kind.REASONING, "")
        return self._whole({"message": message}, reason, ids, totals)


class TextFrames(_Head):
    """`text_completion`, the same object streamed and whole."""

    def __init__(self, ask: Ask, model: ServedModel) -> None:
        super().__init__(ask, model, "text_completion", "text_completion")

    def opening(self) -> bytes:
        if not self.ask.return_token_ids:
            return b""
        choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": None}
        return event({**self._chunk, "choices": [choice], **self._prompt_ids()})

    def chunk(self, piece: Piece, ids: Sequence[int] | None) -> bytes:
        return self._head + b'"text":' + orjson.dumps(piece.text) + _tail(ids)

    def finish(self, reason: str, ids: Sequence[int] | None, figures: Mapping[str, Any]) -> bytes:
        return self._finish({"text": ""}, reason, ids, figures)

    def whole(
        self,
        texts: Mapping[Kind, str],
        reason: str,
        ids: Sequence[int] | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        return self._whole({"text": texts.get(Kind.CONTENT, "")}, reason, ids, totals)


def frames_of(ask: Ask, model: ServedModel) -> Frames:
    """The shape that the request's route answers in."""
    return ChatFrames(ask, model) if ask.chat else TextFrames(ask, model)


def _tail(ids: Sequence[int] | None) -> bytes:
    if ids is None:
        return b',"logprobs":null,"finish_reason":null}]}\n\n'
    listed = orjson.dumps(ids)
    return b',"logprobs":null,"finish_reason":null,"token_ids":' + listed + b"}]}\n\n"


def _ids(ids: Sequence[int] | None) -> dict[str, Any]:
    return {} if ids is None else {"token_ids": ids}
