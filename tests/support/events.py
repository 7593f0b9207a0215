"""Streams with named events, read and put together as a client does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


def named_events(text: str) -> list[Event]:
    """The objects of a stream, each told by an `event:` line of its type; comments left out."""
    found = []
    for block in text.split("\n\n"):
        if not block.strip() or block.startswith(":"):
            continue
        name, data = block.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        found.append(value)
    return found


def message_of(events: Iterable[Event]) -> dict[str, Any]:
    """The message that a stream of Anthropic's adds up to; fails where the order is wrong."""
    events = [one for one in events if one["type"] != "ping"]
    start, *between, delta, stop = events
    assert [start["type"], delta["type"], stop["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    message: dict[str, Any] = {**start["message"], **delta["delta"], "usage": delta["usage"]}
    blocks: list[dict[str, Any]] = []
    is_open = False
    for one in between:
        if one["type"] == "content_block_start":
            assert not is_open
            assert one["index"] == len(blocks)
            blocks.append(dict(one["content_block"]))
            is_open = True
        elif one["type"] == "content_block_stop":
            assert (is_open, one["index"]) == (True, len(blocks) - 1)
            is_open = False
        else:
            assert (is_open, one["index"]) == (True, len(blocks) - 1)
            _grow(blocks[-1], one["delta"])
    assert not is_open
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = _object(block.pop("json", ""))
    # half of an input is none: such a call is not one
    message["content"] = [block for block in blocks if block.get("input", {}) is not None]
    return message | {k: v for k, v in stop.items() if k != "type"}


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    names = {
        "thinking_delta": ("thinking", "thinking"),
        "signature_delta": ("signature", "signature"),
        "text_delta": ("text", "text"),
        "input_json_delta": ("partial_json", "json"),
    }
    theirs, ours = names[delta["type"]]
    assert delta[theirs]
    block[ours] = block.get(ours, "") + delta[theirs]


def items_of(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The output items that a stream of Responses adds up to; fails where an item's deltas, its
    `done` events and the item itself do not say the same."""
    events = list(events)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    created, progress, *between, last = events
    assert [created["type"], progress["type"]] == ["response.created", "response.in_progress"]
    items: list[dict[str, Any]] = []
    grown = ""
    for one in between:
        match one["type"].removeprefix("response."):
            case "output_item.added":
                assert one["output_index"] == len(items)
                items.append(one["item"])
                grown = ""
            case "reasoning_text.delta" | "output_text.delta" | "function_call_arguments.delta":
                assert one["item_id"] == items[-1]["id"]
                assert one["delta"]
                grown += one["delta"]
            case "reasoning_text.done" | "output_text.done":
                assert one["text"] == grown
            case "function_call_arguments.done":
                assert one["arguments"] == grown
            case "content_part.added":
                assert one["part"]["text"] == ""
            case "content_part.done":
                assert one["part"]["text"] == grown
            case "output_item.done":
                assert one["item"]["id"] == items[-1]["id"]
                items[-1] = one["item"]
                said = one["item"].get("arguments")
                assert grown == (one["item"]["content"][0]["text"] if said is None else said)
            case other:
                raise AssertionError(other)
    assert last["response"]["output"] == items
    return items
