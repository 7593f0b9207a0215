"""docs/anthropic.md and docs/responses.md say what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamglm.edge import anthropic_fields, responses_fields
from streamglm.edge.anthropic_fields import MESSAGES
from streamglm.edge.anthropic_frames import STOP_REASONS
from streamglm.edge.fields import Field
from streamglm.edge.responses_fields import RESPONSES
from support.events import named_events
from support.walk import page_rows
from support.world import HELLO, World

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    ("anthropic.md", anthropic_fields.FIELDS, True),
    ("responses.md", responses_fields.FIELDS, False),
]
ASKS: list[tuple[str, str, dict[str, Any]]] = [
    ("anthropic.md", MESSAGES, {"messages": HELLO, "max_tokens": 9}),
    ("responses.md", RESPONSES, {"input": "hi"}),
]


def section(name: str, head: str) -> str:
    text = (DOCS / name).read_text()
    return text.partition(f"\n## {head}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("name", "fields", "routes"), PAGES)
def test_the_field_table_is_the_codes(name: str, fields: tuple[Field, ...], routes: bool) -> None:
    lines = [line for line in section(name, "Fields").splitlines() if line.startswith("| `")]
    assert lines == page_rows(fields, routes=routes)


@pytest.mark.parametrize(("name", "route", "body"), ASKS)
async def test_usage_and_events_are_explained(
    world: World, name: str, route: str, body: dict[str, Any]
) -> None:
    world.say("a</think>b")
    whole = await world.whole(route, **body)
    replies, streams = section(name, "Replies"), section(name, "Streams")
    for key in whole["usage"]:
        assert f"`{key}" in replies
    answer = await world.ask(route, **body, stream=True)
    for one in named_events(answer.text):
        kind = one["type"]
        assert f"`{kind}`" in streams or f"`event: {kind}`" in streams or kind.endswith(".done")


def test_every_reason_to_stop_is_explained() -> None:
    for reason in (*STOP_REASONS.values(), "stop_sequence"):
        assert f"| `{reason}` |" in section("anthropic.md", "Replies")
