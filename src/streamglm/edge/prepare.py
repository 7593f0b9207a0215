"""A checked body -> the engine's request: prompt ids, room in the window, sampling, stops.

Owns the policies: that prompt and reply must fit the window together, and what an omitted limit
means. Sampling fields are `edge/sampling.py`. Knows no events. Everything that a client did wrong
is raised here, before a byte of a reply is sent. Long texts are rendered and encoded in a worker
thread.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import anyio.to_thread

from streamglm.edge.fields import clip
from streamglm.edge.guide import guide_of
from streamglm.edge.messages import for_template
from streamglm.edge.reasoning import budget_of, thinking_of
from streamglm.edge.sampling import check_ids, sampling_of
from streamglm.edge.schemas import (
    ChatBody,
    CompletionBody,
    Message,
    TokenizeBody,
    prompt_of,
)
from streamglm.edge.served import ServedModel
from streamglm.edge.structured import constraint_of, wanted_of
from streamglm.edge.tools import Calling, tools_of
from streamglm.errors import ContextLengthExceeded, InvalidRequest, ModelNotFound
from streamglm.request import Request
from streamglm.step import Guide
from streamglm.text.markup import CLOSE
from streamglm.text.template import Rendered
from streamglm.text.tools import AUTO
from streamglm.text.tools import Tool as Tool
from streamglm.text.tools import ToolChoice as ToolChoice

LONG_BODY = 4096
"""Bytes of a body from which on its text is encoded off the loop: about 2 ms of work."""

Result = TypeVar("Result")
Rendering = ChatBody | TokenizeBody
"""The bodies that say how messages are rendered."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids of a prompt; `thinking` when it ends inside an open think block."""

    ids: tuple[int, ...]
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """One reply that is wanted: for the engine, and what its text and its frames need to know."""

    request: Request
    created: int
    chat: bool
    thinking: bool
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    return_token_ids: bool
    tools: tuple[Tool, ...] = ()
    """What is offered; nothing is called where `tool_choice` says so."""
    tool_choice: ToolChoice = AUTO
    single_call: bool = False
    """The reply ends with its first call."""

    @property
    def logprobs(self) -> bool:
        """Each token comes with its log-probability."""
        return self.request.sampling.logprobs is not None

    @property
    def names_tokens(self) -> bool:
        """Chunks say which tokens they follow from."""
        return self.return_token_ids or self.logprobs


async def chat_ask(body: ChatBody, size: int, model: ServedModel) -> Ask:
    """The request of a chat. `size` is that of the raw body. Raises `RequestError`."""
    check_model(body.model, model)
    calling = Calling.of(body)
    wanted = wanted_of(body)
    budget = budget_of(body)
    prompt = await _aside(size, lambda: chat_prompt(body.messages, body, model))
    limit, name = body.max_tokens, "max_tokens"
    if body.max_completion_tokens is not None:
        if limit not in (None, body.max_completion_tokens):
            raise InvalidRequest(
                "`max_tokens` and `max_completion_tokens` differ; send one of them.",
                param="max_completion_tokens",
            )
        limit, name = body.max_completion_tokens, "max_completion_tokens"
    room = room_of(len(prompt.ids), limit, ("messages", name), model.context)
    held = constraint_of(wanted, calling.tools, calling.choice, single=calling.single)
    guide = await guide_of(held, prompt.thinking, budget, body, model)
    return _ask(body, prompt, room, model, guide, calling)


async def completion_ask(body: CompletionBody, size: int, model: ServedModel) -> Ask:
    """The request of a completion. Raises `RequestError`."""
    check_model(body.model, model)
    given = prompt_of(body.prompt)
    held = constraint_of(wanted_of(body), (), AUTO, single=False)
    prompt = Prompt(await _aside(size, lambda: _completion_ids(given, model)))
    room = room_of(len(prompt.ids), body.max_tokens, ("prompt", "max_tokens"), model.context)
    guide = await guide_of(held, False, None, body, model)
    return _ask(body, prompt, room, model, guide)


async def tokenize_ids(body: TokenizeBody, size: int, model: ServedModel) -> tuple[int, ...]:
    """The ids of `/tokenize`: exactly those of the same prompt in a request for a reply."""
    check_model(body.model, model)
    tools_of(body.tools)
    if body.messages is not None:
        messages, opens = body.messages, body.add_generation_prompt
        prompt = await _aside(size, lambda: chat_prompt(messages, body, model, opens=opens))
        return prompt.ids
    text = body.prompt or ""
    return await _aside(size, lambda: _encode(text, model))


def check_model(name: str | None, model: ServedModel) -> None:
    """Raises `ModelNotFound` for any name but the served model's."""
    if name is not None and name != model.name:
        raise ModelNotFound(
            f"The model `{clip(name)}` is not served here; `{model.name}` is.", param="model"
        )


def chat_prompt(
    messages: Sequence[Message], rendering: Rendering, model: ServedModel, *, opens: bool = True
) -> Prompt:
    """Render and encode. `opens`: the prompt ends where the reply begins."""
    if model.template is None:
        raise InvalidRequest(
            "This checkpoint has no chat template; send a prompt to /v1/completions.",
            param="messages",
        )
    thinking = thinking_of(rendering)
    rendered = model.template.render(
        for_template(messages),
        tools=rendering.tools or None,
        add_generation_prompt=opens,
        variables=thinking.variables,
    )
    if rendered.thinking and thinking.off:  # a template that has no word for it
        rendered = Rendered(rendered.text + CLOSE, thinking=False)
    return Prompt(_encode(rendered.text, model), rendered.thinking)


async def _aside(size: int, work: Callable[[], Result]) -> Result:
    return work() if size < LONG_BODY else await anyio.to_thread.run_sync(work)


def _completion_ids(prompt: str | list[int], model: ServedModel) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return _encode(prompt, model)
    check_ids(prompt, model, "prompt")
    return tuple(prompt)


def _encode(text: str, model: ServedModel) -> tuple[int, ...]:
    if model.tokenizer is None:
        raise InvalidRequest(
            "This checkpoint has no tokenizer; send `prompt` as token ids.", param="prompt"
        )
    return tuple(model.tokenizer.encode(text))


def room_of(prompt: int, limit: int | None, params: tuple[str, str], context: int) -> int:
    """Tokens that the reply may take. Raises `ContextLengthExceeded` with both numbers."""
    if prompt == 0:
        raise InvalidRequest(f"`{params[0]}` is empty.", param=params[0])
    if prompt >= context:
        raise ContextLengthExceeded(
            f"The prompt has {prompt} tokens; the maximum context length is {context} tokens, "
            "of which the reply needs at least one.",
            param=params[0],
            prompt=prompt,
            context=context,
        )
    if limit is not None and prompt + limit > context:
        raise ContextLengthExceeded(
            f"The prompt has {prompt} tokens and `{params[1]}` asks for {limit}, together "
            f"{prompt + limit}; the maximum context length is {context} tokens.",
            param=params[1],
            prompt=prompt,
            limit=limit,
            context=context,
        )
    return context - prompt if limit is None else limit


def _ask(
    body: ChatBody | CompletionBody,
    prompt: Prompt,
    room: int,
    model: ServedModel,
    guide: Guide | None,
    calling: Calling | None = None,
) -> Ask:
    """`calling` is that of a chat."""
    if body.stops and model.tokenizer is None:
        raise InvalidRequest("This checkpoint has no tokenizer to find `stop` by.", param="stop")
    chat, calling = calling is not None, calling or Calling()
    request = Request(
        id=("chatcmpl-" if chat else "cmpl-") + secrets.token_hex(12),
        prompt=prompt.ids,
        max_tokens=room,
        sampling=sampling_of(body, model, guide, calling.banned(model.tokenizer)),
        stop_ids=frozenset() if body.ignore_eos else model.eos_ids,
        draft=body.draft,
        background=body.priority == "background",
        salt=body.cache_salt or "",
        learn=body.learn,
    )
    return Ask(
        request=request,
        created=int(time.time()),
        chat=chat,
        thinking=prompt.thinking,
        stops=body.stops,
        stream=body.stream,
        include_usage=body.include_usage,
        return_token_ids=body.return_token_ids,
        tools=calling.tools,
        tool_choice=calling.choice,
        single_call=calling.single,
    )
