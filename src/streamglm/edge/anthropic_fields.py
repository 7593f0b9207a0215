"""Every field of Anthropic's Messages, once: honoured, inert, or refused by name.

Owns the table that bodies of `/v1/messages` and `/v1/messages/count_tokens` are checked against,
that a test walks and that `docs/anthropic.md` shows. Knows no shapes; those are in
`edge/anthropic_schemas.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamglm.edge.fields import Field, Verdict, by_name, checked

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
ROUTES = (MESSAGES, COUNT_TOKENS)
PAGE = "docs/anthropic.md"

_ONE = (MESSAGES,)
_H, _I, _R = Verdict.HONOURED, Verdict.INERT, Verdict.REFUSED

FIELDS = (
    Field("model", ROUTES, _H, "the served model's name; another name is 404; may be left out"),
    Field("messages", ROUTES, _H, "roles user, assistant, system; text, thinking and tool blocks"),
    Field("system", ROUTES, _H, "a text or text blocks; one system message before all others"),
    Field("max_tokens", _ONE, _H, "required, as in Anthropic's API"),
    Field("stop_sequences", _ONE, _H, "up to 16 texts, each 1 to 1,000 characters"),
    Field("stream", _ONE, _H, "server-sent events"),
    Field("temperature", _ONE, _H, "0 to 2; 0 is greedy"),
    Field("top_p", _ONE, _H, "above 0, at most 1"),
    Field("top_k", _ONE, _H, "0 or -1 is off"),
    Field("tools", ROUTES, _H, "tools of the client alone; tools of Anthropic's servers are 400"),
    Field("tool_choice", ROUTES, _H, "`auto`, `any`, `tool`, `none`; `disable_parallel_tool_use`"),
    Field(
        "thinking",
        ROUTES,
        _H,
        "`enabled` (with `budget_tokens`), `adaptive`, `disabled`; left out: off; `display` is "
        "inert",
    ),
    Field("output_config", ROUTES, _H, "`effort`, handed to the chat template, and `format`"),
    Field("output_format", _ONE, _H, "an older name of `output_config.format`"),
    Field(
        "context_management",
        ROUTES,
        _H,
        "`clear_thinking_20251015` that keeps all thinking; other edits are 400",
    ),
    Field("seed", _ONE, _H, "ours: 0 to 2^63 - 1; left out: random, and reported"),
    Field("min_p", _ONE, _H, "ours: 0 to 1; 0 is off"),
    Field("repetition_penalty", _ONE, _H, "ours: as on chat completions"),
    Field("presence_penalty", _ONE, _H, "ours: as on chat completions"),
    Field("frequency_penalty", _ONE, _H, "ours: as on chat completions"),
    Field("logit_bias", _ONE, _H, "ours: as on chat completions"),
    Field("allowed_token_ids", _ONE, _H, "ours: as on chat completions"),
    Field("ignore_eos", _ONE, _H, "ours: the model's end tokens do not end the reply"),
    Field("return_token_ids", _ONE, _H, "ours: adds `prompt_token_ids` and `token_ids`"),
    Field("learn", _ONE, _H, "ours: as on chat completions"),
    Field("draft", _ONE, _H, "ours: as on chat completions"),
    Field("chat_template_kwargs", ROUTES, _H, "ours: more variables of the chat template"),
    Field("priority", _ONE, _H, "ours: as on chat completions"),
    Field("cache_salt", _ONE, _H, "ours: as on chat completions"),
    Field("cache_control", ROUTES, _I, "a prompt is found by its tokens; on blocks and tools too"),
    Field("metadata", _ONE, _I, "nothing is stored"),
    Field("service_tier", _ONE, _I, "there is one tier"),
    Field("inference_geo", _ONE, _I, "there is one place"),
    Field("diagnostics", _ONE, _I, "nothing is reported by it"),
    Field("billing_policy", _ONE, _I, "nothing is billed"),
    Field("fallback_credit_token", _ONE, _I, "nothing is billed"),
    Field("speed", ROUTES, _R, "there is one speed", ("standard",)),
    Field("container", _ONE, _R, "no containers"),
    Field("mcp_servers", ROUTES, _R, "no servers are asked; run the tools in the client", ([],)),
    Field("fallbacks", _ONE, _R, "one model is served", ([],)),
    Field("compaction", _ONE, _R, "a prompt is never shortened"),
    Field("thread", _ONE, _R, "nothing is stored; send the messages again"),
)

_TABLES = {route: by_name(FIELDS, route) for route in ROUTES}


def honoured(route: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `body` that the server acts on, without nulls. Raises `InvalidRequest`."""
    return checked(_TABLES[route], body, route=route, page=PAGE)
