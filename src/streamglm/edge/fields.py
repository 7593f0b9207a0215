"""Every field of a request body, once: honoured, inert, or refused by name.

Owns the table that bodies are checked against, that a test walks and that `docs/http.md` shows.
Knows no shapes; those are in `edge/schemas.py`. Invariant: a field that is not in the table is
refused, so that a misspelt option is never ignored without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from streamglm.errors import InvalidRequest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"
ROUTES = (CHAT, COMPLETIONS, TOKENIZE, DETOKENIZE)
LONGEST_ECHO = 60


class Verdict(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    INERT = "inert"  # accepted, and changes nothing
    REFUSED = "refused"  # 400, unless the value asks for nothing


@dataclass(frozen=True, slots=True)
class Field:
    """One row of the table. `neutral`: values of a refused field that ask for nothing; null is
    one of them everywhere."""

    name: str
    routes: tuple[str, ...]
    verdict: Verdict
    note: str
    neutral: tuple[Any, ...] = ()


_BOTH = (CHAT, COMPLETIONS)
_RENDERED = (CHAT, TOKENIZE)
_H, _I, _R = Verdict.HONOURED, Verdict.INERT, Verdict.REFUSED

FIELDS = (
    Field("model", ROUTES, _H, "the served model's name; another name is 404; may be left out"),
    Field("messages", _RENDERED, _H, "roles system, developer, user, assistant, tool; text only"),
    Field("prompt", (COMPLETIONS,), _H, "a text or a list of token ids; one prompt a request"),
    Field("prompt", (TOKENIZE,), _H, "the text to encode, in place of `messages`"),
    Field("tokens", (DETOKENIZE,), _H, "the ids to decode"),
    Field("add_generation_prompt", (TOKENIZE,), _H, "false leaves the last turn closed"),
    Field("add_special_tokens", (TOKENIZE,), _I, "the tokenizer adds none by itself"),
    Field("max_tokens", _BOTH, _H, "left out: the rest of the window"),
    Field("max_completion_tokens", (CHAT,), _H, "another name of `max_tokens`"),
    Field("temperature", _BOTH, _H, "0 to 2; 0 is greedy"),
    Field("top_p", _BOTH, _H, "above 0, at most 1"),
    Field("top_k", _BOTH, _H, "0 or -1 is off"),
    Field("min_p", _BOTH, _H, "0 to 1; 0 is off"),
    Field("seed", _BOTH, _H, "0 to 2^63 - 1; left out: random, and reported"),
    Field(
        "repetition_penalty", _BOTH, _H, "0.01 to 100; 1 is off; of ids in the prompt or the reply"
    ),
    Field("presence_penalty", _BOTH, _H, "-2 to 2; 0 is off; of ids in the reply"),
    Field("frequency_penalty", _BOTH, _H, "-2 to 2; 0 is off; of ids in the reply"),
    Field("logit_bias", _BOTH, _H, "up to 1,024 token ids, written as texts, each to -100 to 100"),
    Field("allowed_token_ids", _BOTH, _H, "the ids that are drawn; no others, end tokens included"),
    Field("logprobs", (CHAT,), _H, "true adds an entry for each token"),
    Field("top_logprobs", (CHAT,), _H, "0 to 20 alternatives in each entry; with `logprobs` true"),
    Field("logprobs", (COMPLETIONS,), _H, "0 to 20 alternatives to each token"),
    Field("stop", _BOTH, _H, "a text or up to 16 of them, each 1 to 1,000 characters"),
    Field("stream", _BOTH, _H, "server-sent events"),
    Field("stream_options", _BOTH, _H, "`include_usage`; `include_obfuscation` is inert"),
    Field("ignore_eos", _BOTH, _H, "the model's end tokens do not end the reply"),
    Field("return_token_ids", _BOTH, _H, "adds `prompt_token_ids` and `token_ids`"),
    Field("tools", _RENDERED, _H, "functions, up to 1,024; `strict` is inert"),
    Field(
        "tool_choice",
        (CHAT,),
        _H,
        "`auto`, `none`, `required`, or one function by its name; the last two are constrained",
    ),
    Field("parallel_tool_calls", (CHAT,), _H, "false ends the reply with its first call"),
    Field(
        "reasoning_effort",
        _RENDERED,
        _H,
        "handed to the chat template; `none` is without thinking, `minimal` is `low`",
    ),
    Field(
        "thinking",
        _RENDERED,
        _H,
        "`type` `enabled` or `disabled`; `budget_tokens`; `clear_thinking` for the template",
    ),
    Field("thinking_token_budget", (CHAT,), _H, "tokens of reasoning after which it is closed"),
    Field("chat_template_kwargs", _RENDERED, _H, "more variables of the chat template"),
    Field(
        "response_format",
        (CHAT,),
        _H,
        "`type` `text`, `json_object`, or `json_schema` with `json_schema.schema`",
    ),
    Field(
        "structured_outputs",
        _BOTH,
        _H,
        "one of `json`, `regex`, `choice`, `grammar`, `json_object`; `disable_any_whitespace` is "
        "inert",
    ),
    Field("guided_json", _BOTH, _H, "a JSON schema, or the text of one"),
    Field("guided_regex", _BOTH, _H, "a regular expression that the whole answer matches"),
    Field("guided_choice", _BOTH, _H, "up to 4,096 texts, of which the answer is one"),
    Field("guided_grammar", _BOTH, _H, "EBNF with a rule `root`, or Lark's form with `start`"),
    Field(
        "priority",
        _BOTH,
        _H,
        "`background` yields to every other request and runs on what they leave; `foreground` or "
        "0 is the default",
    ),
    Field(
        "cache_salt",
        _BOTH,
        _H,
        "a text of 1 to 256 characters; the prompt resumes from prompts of the same salt alone",
    ),
    Field(
        "learn",
        _BOTH,
        _H,
        "false keeps the prompt off the disk, where `--learn-conversations` is on",
    ),
    Field("draft", _BOTH, _H, "false decodes one row at a time; the reply is the same"),
    Field("user", _BOTH, _I, "nothing is kept for each user"),
    Field("metadata", (CHAT,), _I, "nothing is stored"),
    Field("store", (CHAT,), _I, "nothing is stored"),
    Field("service_tier", (CHAT,), _I, "there is one tier"),
    Field("safety_identifier", (CHAT,), _I, "nothing is kept for each user"),
    Field("prompt_cache_key", (CHAT,), _I, "a prompt is found by its tokens"),
    Field("prompt_cache_options", (CHAT,), _I, "a prompt is found by its tokens"),
    Field("prompt_cache_retention", (CHAT,), _I, "a prompt is found by its tokens"),
    Field("prediction", (CHAT,), _I, "a hint for speed; replies do not depend on it"),
    Field("skip_special_tokens", _BOTH, _R, "special tokens are never shown", (True,)),
    Field("n", _BOTH, _R, "one reply a request", (1,)),
    Field("best_of", (COMPLETIONS,), _R, "one reply a request", (1,)),
    Field("prompt_logprobs", _BOTH, _R, "only a reply's tokens have log-probabilities"),
    Field("echo", (COMPLETIONS,), _R, "the prompt is not sent back", (False,)),
    Field("suffix", (COMPLETIONS,), _R, "text is continued, not filled in", ("",)),
    Field("functions", (CHAT,), _R, "use `tools`", ([],)),
    Field("function_call", (CHAT,), _R, "use `tool_choice`", ("none",)),
    Field("min_tokens", _BOTH, _R, "a reply may end at any token; see `ignore_eos`", (0,)),
    Field("stop_token_ids", _BOTH, _R, "use `stop`", ([],)),
    Field("include_stop_str_in_output", _BOTH, _R, "stop strings are dropped", (False,)),
    Field("modalities", (CHAT,), _R, "text alone", (["text"],)),
    Field("audio", (CHAT,), _R, "text alone"),
    Field("verbosity", (CHAT,), _R, "the model has no such control", ("medium",)),
    Field("web_search_options", (CHAT,), _R, "no web search"),
    Field("moderation", (CHAT,), _R, "no moderation"),
    Field("add_generation_prompt", (CHAT,), _R, "a reply always opens a new turn", (True,)),
    Field("continue_final_message", _RENDERED, _R, "a reply always opens a new turn", (False,)),
    Field("chat_template", _RENDERED, _R, "the checkpoint's own template is used"),
    Field("documents", _RENDERED, _R, "text alone", ([],)),
)


def by_name(fields: Iterable[Field], route: str) -> Mapping[str, Field]:
    """The rows of one route."""
    return MappingProxyType({field.name: field for field in fields if route in field.routes})


_TABLES = MappingProxyType({route: by_name(FIELDS, route) for route in ROUTES})


def honoured(route: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `body` that the server acts on, without nulls.

    Raises `InvalidRequest` naming the first field that is unknown or refused.
    """
    return checked(_TABLES[route], body, route=route, page="docs/http.md")


def checked(
    table: Mapping[str, Field], body: Mapping[str, Any], *, route: str, page: str
) -> dict[str, Any]:
    """`honoured`, by any table; `page` is where the fields are listed."""
    kept: dict[str, Any] = {}
    for name, value in body.items():
        field = table.get(name)
        if field is None:
            shown = clip(name)
            raise InvalidRequest(
                f"{route} has no field `{shown}`; {page} lists the fields.", param=shown
            )
        if value is None or field.verdict is Verdict.INERT:
            continue
        if field.verdict is Verdict.HONOURED:
            kept[name] = value
        elif not _asks_for_nothing(field, value):
            raise InvalidRequest(
                f"`{name}` is not served with this value: {field.note}. Leave it out.", param=name
            )
    return kept


def _asks_for_nothing(field: Field, value: Any) -> bool:
    # typed, because 0 == False and 1 == True in Python
    return any(type(value) is type(one) and value == one for one in field.neutral)


def clip(text: str, longest: int = LONGEST_ECHO) -> str:
    """A client's own text as an error may repeat it: short, and without lone surrogates."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return short.encode("utf-8", "replace").decode()
