"""A field table walked: what a test sends for each row, and what a docs page says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamglm.edge.fields import Field, Verdict
from support.world import World


@dataclass(frozen=True)
class Walk:
    """One route's table. `given` is a body that is served; `wanted` has a value that a client would
    really send for each refused field, `right` and `wrong` values of each honoured one."""

    route: str
    fields: Sequence[Field]
    given: Mapping[str, Any]
    wanted: Mapping[str, Any]
    right: Mapping[str, Sequence[Any]]
    wrong: Mapping[str, Sequence[Any]]

    def rows(self, verdict: Verdict) -> Iterator[Field]:
        """The rows of the route with this verdict."""
        for field in self.fields:
            if self.route in field.routes and field.verdict is verdict:
                yield field

    async def status(self, world: World, **fields: Any) -> tuple[int, str | None]:
        """Status of the body with these fields, and what an error names."""
        answer = await world.http.post(self.route, json={**self.given, **fields})
        assert len(answer.content) < 10_000
        if answer.status_code == 200:
            return 200, None
        return answer.status_code, answer.json()["error"]["param"]


def top(param: str | None) -> str:
    """The field that a path lies in."""
    return (param or "").partition(".")[0].partition("[")[0]


def page_rows(fields: Sequence[Field], *, routes: bool) -> list[str]:
    """The lines of a page's table; with a column of routes where there are several."""
    return [_page_row(field, routes=routes) for field in fields]


def _page_row(field: Field, *, routes: bool) -> str:
    neutral = ", ".join(f"`{json.dumps(value)}`" for value in field.neutral)
    note = f"{field.note}; accepted: {neutral}" if neutral else field.note
    where = [", ".join(f"`{route}`" for route in field.routes)] if routes else []
    return "| " + " | ".join([f"`{field.name}`", *where, field.verdict.value, note]) + " |"
