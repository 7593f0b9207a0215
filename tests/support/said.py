"""Replies in the model's own markup, for clients to read through the server."""

from __future__ import annotations

ANSWERS = "weigh it</think>the answer é"
CALLS = (
    "add them</think><tool_call>add<arg_key>a</arg_key><arg_value>4</arg_value>"
    "<arg_key>b</arg_key><arg_value>9</arg_value></tool_call>"
)
CALLS_AT_ONCE = CALLS.partition("</think>")[2]
"""The same where the prompt opens no thought."""
ADDS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
"""The schema of `add`."""
