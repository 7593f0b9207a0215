"""The functions that a request offers, as the text of a reply is read by them.

Owns the values only. Knows no HTTP and no markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON schema of its arguments, an
    object's; empty where the client gave none."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the reply has to call: `auto` may, `none` does not, `required` calls any of the
    tools, and `named` calls the one of `name`."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""


AUTO = ToolChoice()
