"""What a reply is held to: content of one form, calls, or either.

Owns the values, and calls as a structure that a grammar can be made of. Knows no compiler. A
constraint is about what follows reasoning; reasoning itself is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streamglm.text.calls import END, OPEN
from streamglm.text.tools import Tool

Form = Literal["json", "regex", "choice", "grammar"]


@dataclass(frozen=True, slots=True)
class Content:
    """The form of an answer. `source` is a JSON schema, a regular expression, a JSON list of
    texts, or a grammar."""

    form: Form
    source: str


@dataclass(frozen=True, slots=True)
class Constraint:
    """At least one of the two; both: the reply is either. `calls` is a structure in JSON, empty
    where nothing is to be called."""

    content: Content | None
    calls: str = ""


def call_structure(tools: Sequence[Tool], *, single: bool) -> dict[str, Any]:
    """One call of any of `tools`, or unless `single` several: a structural tag of the grammar
    library."""
    every = [_tag(tool) for tool in tools]
    one = every[0] if len(every) == 1 else {"type": "or", "elements": every}
    return one if single else {"type": "plus", "content": one}


def _tag(tool: Tool) -> dict[str, Any]:
    arguments = {
        "type": "json_schema",
        "json_schema": tool.parameters or {"type": "object"},
        "style": "glm_xml",
        "max_whitespace_cnt": 1,
    }
    return {"type": "tag", "begin": OPEN + tool.name, "content": arguments, "end": END}
