"""The server and its own OpenAPI document agree, for bodies that nobody thought of.

Over real HTTP, with an engine that has its answer ready: requests are made of the document, right
and wrong ones. Red when a route fails, or answers what its document does not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from streamglm.clock import SystemClock
from streamglm.edge.anthropic_fields import COUNT_TOKENS, MESSAGES
from streamglm.edge.fields import Verdict
from streamglm.edge.openapi import BODIES, FIELDS, PATH
from streamglm.edge.responses_fields import RESPONSES
from support.live import live
from support.world import Make, World

Case = schemathesis.Case[Any]


@pytest.fixture
def served(make: Make) -> Iterator[str]:
    world = make(clock=SystemClock())
    world.say("thought</think>an answer <tool_call>f</tool_call>", a_round=3)
    with live(world.app) as (host, port):
        yield f"http://{host}:{port}"


EXAMPLES = dict.fromkeys(BODIES, 60) | {
    "/v1/chat/completions": 180,
    MESSAGES: 20,
    COUNT_TOKENS: 10,
    RESPONSES: 20,
}
"""The last three hand on what chat completions are tried with; their own shapes are tried in
`test_api_bodies.py` as well."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_request_made_of_the_document_breaks_it(served: str, mode: GenerationMode) -> None:
    right = mode is GenerationMode.POSITIVE
    checks = CHECKS if right else [*CHECKS, negative_data_rejection]
    statuses: dict[str, set[int]] = {}
    for found in schemathesis.openapi.from_url(served + PATH).get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path not in BODIES and not right:
            continue  # nothing to send, so nothing to send wrongly

        @settings(
            max_examples=EXAMPLES.get(operation.path, 5),
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def one(case: Case) -> None:
            answer = case.call_and_validate(checks=checks)
            statuses.setdefault(case.path, set()).add(answer.status_code)

        one()
    for path in BODIES:
        assert (200 if right else 400) in statuses[path], statuses


async def test_every_route_is_in_the_document(world: World) -> None:
    document = (await world.http.get(PATH)).json()
    wanted = {
        (route.path.replace(":path}", "}"), method.lower())
        for route in world.app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    found = {(path, method) for path, entry in document["paths"].items() for method in entry}
    assert found == wanted


@pytest.mark.parametrize("path", list(BODIES))
async def test_a_body_has_exactly_its_fields(world: World, path: str) -> None:
    document = (await world.http.get(PATH)).json()
    body = document["components"]["schemas"][BODIES[path].__name__]
    fields = {field.name: field for field in FIELDS if path in field.routes}
    assert set(body["properties"]) == set(fields)
    assert body["additionalProperties"] is False
    for name, field in fields.items():
        if field.verdict is Verdict.REFUSED:
            assert body["properties"][name]["enum"] == [None, *field.neutral]


async def test_the_document_is_served_like_any_other_page(make: Make) -> None:
    world = make(api_key="k")
    assert (await world.http.get(PATH)).status_code == 401
    answer = await world.http.get(PATH, headers={"authorization": "Bearer k"})
    assert isinstance(answer, httpx.Response)
    assert answer.json()["info"]["title"] == "streamglm"
