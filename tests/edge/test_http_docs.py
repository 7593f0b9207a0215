"""docs/http.md says what the code does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.routing import Route

from streamglm.edge.fields import FIELDS, LONGEST_ECHO, Field
from streamglm.edge.frames import DONE
from streamglm.edge.refusals import error_object
from streamglm.errors import InvalidRequest
from support.world import World

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


def row(field: Field) -> str:
    """The line of the page's table."""
    routes = ", ".join(f"`{route}`" for route in field.routes)
    neutral = ", ".join(f"`{json.dumps(value)}`" for value in field.neutral)
    note = f"{field.note}; accepted: {neutral}" if neutral else field.note
    return f"| `{field.name}` | {routes} | {field.verdict.value} | {note} |"


def test_the_field_table_is_the_codes(page: str) -> None:
    section = page.partition("### Fields")[2].partition("### Messages")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    assert lines == [row(field) for field in FIELDS]


def test_every_route_is_listed_with_its_method(page: str, world: World) -> None:
    routes = [route for route in world.app.routes if isinstance(route, Route)]
    wanted = {
        f"| `{method} {route.path.replace('{name:path}', '{id}').replace('{name}', '{file}')}` |"
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }
    section = page.partition("## Routes")[2].partition("\n## ")[0]
    assert {
        line[: line.index("|", 1) + 1] for line in section.splitlines() if "` |" in line
    } == wanted


async def test_every_figure_of_a_reply_is_explained(page: str, world: World) -> None:
    world.say("a")
    whole = await world.whole()
    for name in [*whole["streamglm"], *whole["usage"]]:
        assert name in page, name


def test_the_example_error_has_the_fields_of_an_error(page: str) -> None:
    example = page.partition("## Errors")[2].partition("```json")[2].partition("```")[0]
    assert set(json.loads(example)["error"]) == set(error_object(InvalidRequest("x"))["error"])


def test_numbers_and_the_last_event_are_the_codes(page: str) -> None:
    assert f"at most {LONGEST_ECHO} characters" in page
    assert DONE.decode().strip() in page
