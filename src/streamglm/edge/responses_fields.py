"""Every field of OpenAI's Responses, once: honoured, inert, or refused by name.

Owns the table that bodies of `/v1/responses` are checked against, that a test walks and that
`docs/responses.md` shows. Knows no shapes; those are in `edge/responses_schemas.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamglm.edge.fields import Field, Verdict, by_name, checked

RESPONSES = "/v1/responses"
PAGE = "docs/responses.md"

_ONE = (RESPONSES,)
_H, _I, _R = Verdict.HONOURED, Verdict.INERT, Verdict.REFUSED
_SENT_AGAIN = "nothing is stored; send the items again"

FIELDS = (
    Field("model", _ONE, _H, "the served model's name; another name is 404; may be left out"),
    Field("input", _ONE, _H, "a text, or items: messages, function calls and outputs, reasoning"),
    Field("instructions", _ONE, _H, "a system message before the input"),
    Field("max_output_tokens", _ONE, _H, "left out: the rest of the window"),
    Field("stream", _ONE, _H, "server-sent events with sequence numbers"),
    Field("stream_options", _ONE, _H, "`include_obfuscation`, which is inert"),
    Field("temperature", _ONE, _H, "0 to 2; 0 is greedy"),
    Field("top_p", _ONE, _H, "above 0, at most 1"),
    Field("tools", _ONE, _H, "functions alone; the tools of OpenAI's servers are 400"),
    Field("tool_choice", _ONE, _H, "`auto`, `none`, `required`, or a function by name"),
    Field("parallel_tool_calls", _ONE, _H, "as on chat completions"),
    Field("reasoning", _ONE, _H, "`effort`, handed to the chat template; `summary` is inert"),
    Field("text", _ONE, _H, "`format`: text, json_object or json_schema"),
    Field("include", _ONE, _H, "`reasoning.encrypted_content`; other values are 400"),
    Field("seed", _ONE, _H, "ours: 0 to 2^63 - 1; left out: random, and reported"),
    Field("stop", _ONE, _H, "ours: as on chat completions"),
    Field("top_k", _ONE, _H, "ours: 0 or -1 is off"),
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
    Field("chat_template_kwargs", _ONE, _H, "ours: more variables of the chat template"),
    Field("priority", _ONE, _H, "ours: as on chat completions"),
    Field("cache_salt", _ONE, _H, "ours: as on chat completions"),
    Field("metadata", _ONE, _I, "nothing is stored"),
    Field("user", _ONE, _I, "nothing is kept for each user"),
    Field("safety_identifier", _ONE, _I, "nothing is kept for each user"),
    Field("service_tier", _ONE, _I, "there is one tier"),
    Field("prompt_cache_key", _ONE, _I, "a prompt is found by its tokens"),
    Field("prompt_cache_options", _ONE, _I, "a prompt is found by its tokens"),
    Field("prompt_cache_retention", _ONE, _I, "a prompt is found by its tokens"),
    Field("max_tool_calls", _ONE, _I, "it counts calls that OpenAI's servers run; none are run"),
    Field("store", _ONE, _R, _SENT_AGAIN, (False,)),
    Field("previous_response_id", _ONE, _R, _SENT_AGAIN),
    Field("conversation", _ONE, _R, _SENT_AGAIN),
    Field("prompt", _ONE, _R, "no prompts are stored; send `instructions` and `input`"),
    Field("background", _ONE, _R, "nothing is stored to come back for", (False,)),
    Field("background_options", _ONE, _R, "nothing is stored to come back for"),
    Field("truncation", _ONE, _R, "a prompt is never shortened", ("disabled",)),
    Field("context_management", _ONE, _R, "a prompt is never shortened", ([],)),
    Field("top_logprobs", _ONE, _R, "log-probabilities are told on chat completions", (0,)),
    Field("moderation", _ONE, _R, "no moderation"),
    Field("image", _ONE, _R, "text alone"),
    Field("access_programs", _ONE, _R, "there are none"),
)

_TABLE = by_name(FIELDS, RESPONSES)


def honoured(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `body` that the server acts on, without nulls. Raises `InvalidRequest`."""
    return checked(_TABLE, body, route=RESPONSES, page=PAGE)
