"""The output items of OpenAI's Responses: reasoning, a message, a function call.

Owns an item's shape when it begins and when it is done, and the names of its events. Knows no
sequence and no sockets. Invariant: the last state of an item in a stream is the item of the whole
response.
"""

from __future__ import annotations

from typing import Any

from streamglm.edge.parts import Part
from streamglm.edge.responses_convert import sealed
from streamglm.text.pieces import Kind

PREFIXES = {Kind.REASONING: "rs_", Kind.CONTENT: "msg_", Kind.CALL: "fc_"}
DELTAS = {
    Kind.REASONING: "response.reasoning_text",
    Kind.CONTENT: "response.output_text",
    Kind.CALL: "response.function_call_arguments",
}
"""What is written piece by piece: with `.delta`, and at its end with `.done`."""


class OutputItem:
    """One item. `number` counts the items of the response that `reply` (hex digits) belongs to."""

    def __init__(self, part: Part, reply: str, number: int, *, seals: bool) -> None:
        self.part = part
        self.number = number
        self._own = f"{reply}{number:02d}"
        self._seals = seals

    @property
    def id(self) -> str:
        return PREFIXES[self.part.kind] + self._own

    @property
    def place(self) -> dict[str, Any]:
        """What every event of the item's text says of where it belongs."""
        place: dict[str, Any] = {"item_id": self.id, "output_index": self.number}
        return place if self.part.kind is Kind.CALL else {**place, "content_index": 0}

    def begun(self) -> dict[str, Any]:
        """The item before its first text."""
        return self._shape("in_progress", "", [])

    def ended(self, status: str) -> dict[str, Any]:
        """The item as it stays."""
        text = self.part.text
        item = self._shape(status, text, [self.content(text)])
        if self.part.kind is Kind.REASONING and self._seals:
            item["encrypted_content"] = sealed(text)
        return item

    def content(self, text: str) -> dict[str, Any]:
        """The one part of the item's content."""
        if self.part.kind is Kind.REASONING:
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def done(self) -> dict[str, Any]:
        """What the `.done` event of the item's text says beside its place."""
        match self.part.kind:
            case Kind.REASONING:
                return {"text": self.part.text}
            case Kind.CALL:
                return {"name": self.part.name, "arguments": self.part.text}
            case _:
                return {"text": self.part.text, "logprobs": []}

    def _shape(self, status: str, arguments: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        """The item; a call has arguments and no content, any other one content alone."""
        match self.part.kind:
            case Kind.REASONING:
                own: dict[str, Any] = {"type": "reasoning", "summary": [], "content": content}
            case Kind.CALL:
                own = {
                    "type": "function_call",
                    "call_id": "call_" + self._own,
                    "name": self.part.name,
                    "arguments": arguments,
                }
            case _:
                own = {"type": "message", "role": "assistant", "content": content}
        return {"id": self.id, "status": status, **own}
