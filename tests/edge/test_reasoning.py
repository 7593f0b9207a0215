"""How much a reply thinks: effort, off, and at most so many tokens."""

from __future__ import annotations

from typing import Any

import pytest

from streamglm.edge.prepare import chat_prompt
from streamglm.edge.schemas import chat_body
from streamglm.edge.served import ServedModel
from streamglm.request import SamplingParams
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer
from support.world import World

OPEN, SHUT = "<|assistant|><think>", "<|assistant|><think></think>"


async def prompt(world: World, tokenizer: Tokenizer, **body: Any) -> str:
    """The text of the prompt that a chat of `body` is drawn from."""
    await world.whole(**body)
    return tokenizer.decode(world.engine.replies[-1].request.prompt)


@pytest.mark.parametrize(
    "body",
    [
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"thinking": {"type": "disabled"}},
        {"reasoning_effort": "none"},
        {"thinking": {"type": "disabled"}, "reasoning_effort": "none"},
    ],
)
async def test_thinking_off_closes_the_block(
    world: World, tokenizer: Tokenizer, body: dict[str, Any]
) -> None:
    world.say("plain</think>text")
    assert (await prompt(world, tokenizer, **body)).endswith(SHUT)
    message = (await world.whole(**body))["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "plain</think>text"}


async def test_a_template_without_the_word_is_closed_by_the_server(tokenizer: Tokenizer) -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}<think>")
    model = ServedModel("m", 99, 512, tokenizer, template, frozenset(), SamplingParams(), created=0)
    for off, text in ((True, "hi<think></think>"), (False, "hi<think>")):
        body = chat_body(
            {
                "messages": [{"role": "user", "content": "hi"}],
                "chat_template_kwargs": {"enable_thinking": not off},
            }
        )
        made = chat_prompt(body.messages, body, model)
        assert (tokenizer.decode(made.ids), made.thinking) == (text, not off)


@pytest.mark.parametrize(
    ("effort", "word"),
    [("low", "Low"), ("high", "High"), ("minimal", "Low"), ("none", "Low"), ("max", "Max")],
)
async def test_effort_reaches_the_template(
    world: World, tokenizer: Tokenizer, effort: str, word: str
) -> None:
    world.say("a")
    text = await prompt(world, tokenizer, reasoning_effort=effort)
    assert f"Reasoning Effort: {word}<" in text


async def test_clear_thinking_reaches_the_template(world: World, tokenizer: Tokenizer) -> None:
    world.say("a")
    history = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y", "reasoning_content": "why"},
        {"role": "user", "content": "z"},
    ]
    wish = {"type": "enabled", "clear_thinking": True}
    assert "why" in await prompt(world, tokenizer, messages=history)
    assert "why" not in await prompt(world, tokenizer, messages=history, thinking=wish)


@pytest.mark.parametrize(
    "body",
    [
        {"thinking_token_budget": 7},
        {"thinking": {"type": "enabled", "budget_tokens": 7}},
        {"thinking": {"type": "enabled", "budget_tokens": 7}, "thinking_token_budget": 7},
    ],
)
async def test_a_budget_guides_the_reply(
    world: World, tokenizer: Tokenizer, body: dict[str, Any]
) -> None:
    world.say("a")
    await world.whole(**body)
    guide = world.engine.replies[-1].request.sampling.guide
    assert guide is not None
    assert (guide.thinking, guide.budget, guide.grammar) == (True, 7, b"")
    assert tokenizer.decode(guide.close) == "</think>"
    await world.whole(**body, chat_template_kwargs={"enable_thinking": True})
    assert world.engine.replies[-1].request.sampling.guide == guide


async def test_without_thought_a_budget_means_nothing(world: World) -> None:
    world.say("a")
    await world.whole(thinking_token_budget=7, reasoning_effort="none")
    assert world.engine.replies[-1].request.sampling.guide is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (
            {"thinking": {"type": "enabled"}, "reasoning_effort": "none"},
            "reasoning_effort",
        ),
        (
            {
                "thinking": {"type": "enabled"},
                "chat_template_kwargs": {"enable_thinking": False},
            },
            "thinking.type",
        ),
        (
            {
                "thinking": {"type": "enabled", "budget_tokens": 3},
                "thinking_token_budget": 4,
            },
            "thinking_token_budget",
        ),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            "reasoning_effort",
        ),
    ],
)
async def test_two_wishes_that_differ_are_refused(
    world: World, body: dict[str, Any], param: str
) -> None:
    assert (await world.refused(**body))["param"] == param
