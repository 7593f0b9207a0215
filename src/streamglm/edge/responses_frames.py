"""The JSON of a reply in OpenAI's Responses: numbered events of a stream, and the whole response.

Owns the order of events and the response around the items (`edge/responses_items.py`). Knows no
sockets. What is the same in every delta of an item is encoded once, when the item begins.
Invariant: `sequence_number` counts every event from 0, and the response of the last event is the
whole response.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from streamglm.edge.frames import COMMENT
from streamglm.edge.logprobs import Named
from streamglm.edge.parts import Parts
from streamglm.edge.responses_ask import Told
from streamglm.edge.responses_items import DELTAS, OutputItem
from streamglm.edge.served import ServedModel
from streamglm.edge.telling import Telling
from streamglm.errors import StreamglmError
from streamglm.text.pieces import Kind, Piece


class ResponseFrames:
    """One response, streamed or whole. `telling` is read for what it has come to."""

    beat = COMMENT
    done = b""

    def __init__(self, telling: Telling, model: ServedModel, told: Told) -> None:
        self._telling = telling
        self._model = model
        self._told = told
        self._parts = Parts()
        self._items: list[OutputItem] = []
        self._output: list[dict[str, Any]] = []  # items that have ended, as they stay
        self._events = 0
        self._before, self._behind = b"", b""  # the number of a delta of the open item

    def opening(self) -> bytes:
        response = self._response("in_progress")
        created = self._event("response.created", response=response)
        return created + self._event("response.in_progress", response=response)

    def chunk(self, piece: Piece, named: Named | None) -> bytes:
        begun = self._close("completed") + self._open() if self._parts.add(piece) else b""
        if piece.kind is Kind.CALL or not piece.text:
            return begun
        text = orjson.dumps(piece.text)
        return begun + self._before + b"%d" % self._count() + self._behind + text + b"}\n\n"

    def finish(self, reason: str, named: Named | None, figures: Mapping[str, Any]) -> bytes:
        status = _status(reason)
        closed = self._close(status)
        response = self._response(status, figures)
        return closed + self._event("response." + status, response=response)

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        return b""  # every response tells its usage

    def failure(self, error: StreamglmError) -> bytes:
        if not self._events:  # there is no response yet that could fail
            told = {"code": error.code, "message": error.message, "param": error.param}
            return self._event("error", **told)
        failed = {"code": "server_error", "message": error.message}
        return self._event("response.failed", response=self._response("failed") | {"error": failed})

    def whole(
        self,
        pieces: Sequence[Piece],
        reason: str,
        named: Named | None,
        totals: Mapping[str, Any],
    ) -> dict[str, Any]:
        status = _status(reason)
        for piece in pieces:
            if self._parts.add(piece):
                self._end("completed")
                self._begin()
        self._end(status)
        return self._response(status, totals["streamglm"])

    # -- items

    def _begin(self) -> OutputItem:
        reply = self._telling.ask.request.id.removeprefix("resp_")
        number = len(self._items)
        item = OutputItem(self._parts.all[number], reply, number, seals=self._told.seals)
        self._items.append(item)
        return item

    def _end(self, status: str) -> OutputItem | None:
        """The item that was open and has ended now, if one was."""
        if len(self._items) == len(self._output):
            return None
        item = self._items[-1]
        self._output.append(item.ended(status))
        return item

    def _open(self) -> bytes:
        item = self._begin()
        kind = DELTAS[item.part.kind] + ".delta"
        place = {"type": kind, **item.place}
        if item.part.kind is Kind.CONTENT:
            place["logprobs"] = []
        head = b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(place)[:-1]
        self._before, self._behind = head + b',"sequence_number":', b',"delta":'
        added = self._event(
            "response.output_item.added", output_index=item.number, item=item.begun()
        )
        if item.part.kind is Kind.CALL:
            return added
        part = item.content("")
        return added + self._event("response.content_part.added", **item.place, part=part)

    def _close(self, status: str) -> bytes:
        """The events of the end of the open item, if one is open."""
        item = self._end(status)
        if item is None:
            return b""
        done = self._event(DELTAS[item.part.kind] + ".done", **item.place, **item.done())
        if item.part.kind is not Kind.CALL:
            part = item.content(item.part.text)
            done += self._event("response.content_part.done", **item.place, part=part)
        ended = self._output[-1]
        return done + self._event("response.output_item.done", output_index=item.number, item=ended)

    # -- what stands around them

    def _event(self, kind: str, **value: Any) -> bytes:
        data = orjson.dumps({"type": kind, "sequence_number": self._count(), **value})
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

    def _count(self) -> int:
        self._events += 1
        return self._events - 1

    def _response(self, status: str, figures: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The response as it stands; with `figures` it is complete."""
        ask = self._telling.ask
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        response = {
            "id": ask.request.id,
            "object": "response",
            "created_at": ask.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": self._model.name,
            "output": list(self._output),
            "usage": None if figures is None else self._usage(),
            **self._told.echo,
        }
        if figures is not None:
            response["streamglm"] = figures
        if ask.return_token_ids:
            response["prompt_token_ids"] = ask.request.prompt
            response["token_ids"] = list(self._telling.ids)
        return response

    def _usage(self) -> dict[str, Any]:
        prompt, reply = len(self._telling.ask.request.prompt), len(self._telling.ids)
        cached = {"cached_tokens": self._telling.cached_tokens}
        return {
            "input_tokens": prompt,
            "input_tokens_details": {**cached, "cache_write_tokens": 0},
            "output_tokens": reply,
            "output_tokens_details": {"reasoning_tokens": self._telling.reasoning_tokens},
            "total_tokens": prompt + reply,
            "prompt_tokens_details": cached,
        }


def _status(reason: str) -> str:
    return "incomplete" if reason == "length" else "completed"
