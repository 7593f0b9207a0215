"""Wire shapes of request bodies: types, ranges, and errors that name the field.

Owns the shapes of what `edge/fields.py` honours. Knows no tokens and no model. Invariant: a value
of the wrong type is refused, never converted ("8", true and 1.5 are not whole numbers), and an
error says the field's path and nothing of the input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from streamglm.edge.fields import CHAT, COMPLETIONS, DETOKENIZE, TOKENIZE, clip, honoured
from streamglm.errors import InvalidRequest
from streamglm.step import MOST_LOGPROBS

LONGEST_STOP = 1000
MOST_BIASES = 1024
MOST_STOPS = 16

StopText = Annotated[str, Meta(min_length=1, max_length=LONGEST_STOP)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Effort = Annotated[str, Meta(max_length=64)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Alternatives = Annotated[int, Meta(ge=0, le=MOST_LOGPROBS)]
Choices = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=4096)]
Salt = Annotated[str, Meta(min_length=1, max_length=256)]


class Function(msgspec.Struct, frozen=True):
    """The function of a call in the history."""

    name: str
    arguments: Any = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call in the history."""

    function: Function
    id: str | None = None
    type: str = "function"


class Message(msgspec.Struct, frozen=True):
    """One message; keys that are not here are inert."""

    role: str
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: Any = None
    audio: Any = None


Messages = Annotated[list[Message], Meta(min_length=1)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`stream_options`; the padding of `include_obfuscation` is never sent."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ThinkingWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`thinking`."""

    type: Literal["enabled", "disabled"]
    budget_tokens: Count | None = None
    clear_thinking: bool | None = None


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What chat and completions share."""

    model: str | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=MOST_BIASES)] | None = None
    allowed_token_ids: Annotated[list[int], Meta(min_length=1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=MOST_STOPS)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    return_token_ids: bool = False
    draft: bool = True
    priority: Literal["background", "foreground", 0] = 0
    cache_salt: Salt | None = None
    learn: bool = True
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Annotated[str, Meta(min_length=1)] | None = None
    guided_choice: Choices | None = None
    guided_grammar: Annotated[str, Meta(min_length=1)] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings, none or one or several."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatBody(Generation, frozen=True, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Messages
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    reasoning_effort: Effort | None = None
    thinking: ThinkingWish | None = None
    thinking_token_budget: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: Alternatives | None = None

    @property
    def alternatives(self) -> int | None:
        """Alternatives to report with each token; None: no log-probabilities."""
        return self.top_logprobs or 0 if self.logprobs else None


class CompletionBody(Generation, frozen=True, kw_only=True):
    """`POST /v1/completions`. The prompt's shape is read by `prompt_of`."""

    prompt: Any
    logprobs: Alternatives | None = None

    @property
    def alternatives(self) -> int | None:
        """Alternatives to report with each token; None: no log-probabilities."""
        return self.logprobs


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /tokenize`: either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    reasoning_effort: Effort | None = None
    thinking: ThinkingWish | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /detokenize`."""

    tokens: list[int]
    model: str | None = None


Body = TypeVar("Body")


def chat_body(body: Mapping[str, Any]) -> ChatBody:
    """Raises `InvalidRequest` naming the field."""
    read = shaped(honoured(CHAT, body), ChatBody)
    if read.top_logprobs and not read.logprobs:
        raise InvalidRequest(
            "`top_logprobs` is told with `logprobs` alone; send `logprobs` true beside it.",
            param="top_logprobs",
        )
    return read


def completion_body(body: Mapping[str, Any]) -> CompletionBody:
    """Raises `InvalidRequest` naming the field."""
    return shaped(honoured(COMPLETIONS, body), CompletionBody)


def tokenize_body(body: Mapping[str, Any]) -> TokenizeBody:
    """Raises `InvalidRequest` naming the field."""
    read = shaped(honoured(TOKENIZE, body), TokenizeBody)
    if (read.prompt is None) == (read.messages is None):
        raise InvalidRequest("Send either `prompt` or `messages`.", param="prompt")
    return read


def detokenize_body(body: Mapping[str, Any]) -> DetokenizeBody:
    """Raises `InvalidRequest` naming the field."""
    return shaped(honoured(DETOKENIZE, body), DetokenizeBody)


def prompt_of(prompt: Any) -> str | list[int]:
    """The one prompt of a completion: a text, a list of ids, or a list that holds one of these.

    Raises `InvalidRequest` for several prompts and for anything else.
    """
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise InvalidRequest("One prompt a request is served.", param="prompt")
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list):
        raise InvalidRequest("`prompt` is neither a text nor a list of token ids.", param="prompt")
    return shaped(prompt, list[int], at="prompt")


def shaped(value: Any, shape: type[Body], at: str = "") -> Body:
    """`value` as `shape`; `at` is the path of the value itself.

    Raises `InvalidRequest` with the path of the first part that does not fit.
    """
    try:
        read: Body = msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _named(str(error), at) from None
    return read


_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>\w+)`$")
_CHOICE = re.compile(r"^Invalid enum value (?P<value>.*)$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `.*`$", re.DOTALL)


def _named(message: str, at: str) -> InvalidRequest:
    """The library's message, with the path as clients spell it: `messages[0].content`."""
    parts = _PATH.match(message)
    assert parts is not None
    what, path = parts["what"], (at + (parts["path"] or "")).removeprefix(".")
    if missing := _MISSING.match(what):
        path = f"{path}.{missing['name']}".removeprefix(".")
        return InvalidRequest(f"`{path}` is missing.", param=path)
    if _UNKNOWN.match(what):
        what = "It holds an unknown field"
    if wrong := _CHOICE.match(what):  # the one message that repeats the input
        what = f"Invalid value {clip(wrong['value'])}"
    return InvalidRequest(f"`{path}`: {what[:1].lower()}{what[1:]}.", param=path or None)
