"""One conversation in three APIs has one prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamglm.edge.anthropic_ask import count_tokens, messages_ask
from streamglm.edge.prepare import chat_ask
from streamglm.edge.responses_ask import responses_ask
from streamglm.edge.responses_convert import sealed
from streamglm.edge.schemas import chat_body
from streamglm.edge.served import ServedModel
from streamglm.errors import InvalidRequest
from streamglm.request import SamplingParams
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer

OFF = {"enable_thinking": False}
SYSTEM = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=36ee5;"


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Turn:
    """What a user says, and what the assistant does about it."""

    said: list[str]
    thought: str = ""
    answer: str = ""
    calls: list[Call] = field(default_factory=list)


@dataclass(frozen=True)
class Talk:
    system: str
    turns: list[Turn]
    last: str
    thinks: bool


TEXT = st.text(alphabet="ab \n<>/🦉é", max_size=8)
SAID = st.text(alphabet="ab \n<>/🦉é", min_size=1, max_size=8)
NAME = st.text(alphabet="abc_", min_size=1, max_size=4)
VALUE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAME, inner, max_size=2),
    max_leaves=4,
)
CALL = st.builds(Call, NAME, st.dictionaries(NAME, VALUE, max_size=3), TEXT)
TURN = st.builds(
    Turn, st.lists(SAID, min_size=1, max_size=3), TEXT, TEXT, st.lists(CALL, max_size=2)
)
TALK = st.builds(Talk, TEXT, st.lists(TURN, max_size=3), SAID, st.booleans())


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer, template: ChatTemplate) -> ServedModel:
    ends = frozenset(tokenizer.encode("<|endoftext|>"))
    plain = SamplingParams()
    return ServedModel("tiny", 2**20, tokenizer.size, tokenizer, template, ends, plain, 0)


def as_openai(talk: Talk) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if talk.system:
        messages.append({"role": "system", "content": talk.system})
    for turn in talk.turns:
        parts = [{"type": "text", "text": said} for said in turn.said]
        messages.append({"role": "user", "content": parts})
        spoken: dict[str, Any] = {"role": "assistant", "content": turn.answer}
        if turn.thought:
            spoken["reasoning_content"] = turn.thought
        if turn.calls:
            spoken["tool_calls"] = [
                {
                    "id": f"c{i}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for i, call in enumerate(turn.calls)
            ]
        messages.append(spoken)
        messages += [
            {"role": "tool", "tool_call_id": f"c{i}", "content": call.result}
            for i, call in enumerate(turn.calls)
        ]
    body: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": talk.last}]}
    return body if talk.thinks else body | {"chat_template_kwargs": OFF}


def as_anthropic(talk: Talk) -> dict[str, Any]:
    """Results and what the user says next are one message, as clients of this API send them."""
    messages: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for turn in talk.turns:
        said = [{"type": "text", "text": said} for said in turn.said]
        messages.append({"role": "user", "content": results + said})
        blocks: list[dict[str, Any]] = []
        if turn.thought:
            blocks.append({"type": "thinking", "thinking": turn.thought, "signature": "s"})
        blocks.append({"type": "text", "text": turn.answer})
        blocks += [
            {"type": "tool_use", "id": f"c{i}", "name": call.name, "input": call.arguments}
            for i, call in enumerate(turn.calls)
        ]
        messages.append({"role": "assistant", "content": blocks})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": f"c{i}",
                "content": [{"type": "text", "text": call.result}],
            }
            for i, call in enumerate(turn.calls)
        ]
    last = {"type": "text", "text": talk.last, "cache_control": {"type": "ephemeral"}}
    messages.append({"role": "user", "content": [*results, last]})
    body: dict[str, Any] = {"messages": messages, "max_tokens": 8}
    if talk.system:
        body["system"] = [{"type": "text", "text": SYSTEM}, {"type": "text", "text": talk.system}]
    return body | {"thinking": {"type": "adaptive" if talk.thinks else "disabled"}}


def as_responses(talk: Talk, *, seals: bool = False) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for turn in talk.turns:
        parts = [{"type": "input_text", "text": said} for said in turn.said]
        items.append({"role": "user", "content": parts})
        if turn.thought and seals:
            secret = sealed(turn.thought)
            items.append({"type": "reasoning", "summary": [], "encrypted_content": secret})
        elif turn.thought:
            content = [{"type": "reasoning_text", "text": turn.thought}]
            items.append({"type": "reasoning", "summary": [], "content": content})
        if turn.answer or not turn.calls:
            answer = [{"type": "output_text", "text": turn.answer, "annotations": []}]
            items.append({"type": "message", "role": "assistant", "content": answer})
        items += [
            {
                "type": "function_call",
                "call_id": f"c{i}",
                "name": call.name,
                "arguments": json.dumps(call.arguments),
            }
            for i, call in enumerate(turn.calls)
        ]
        items += [
            {"type": "function_call_output", "call_id": f"c{i}", "output": call.result}
            for i, call in enumerate(turn.calls)
        ]
    body: dict[str, Any] = {"input": [*items, {"role": "user", "content": talk.last}]}
    if talk.system:
        body["instructions"] = talk.system
    return body if talk.thinks else body | {"chat_template_kwargs": OFF}


async def prompts(talk: Talk, model: ServedModel) -> list[tuple[Sequence[int], bool]]:
    """The prompt and whether it opens a thought, in each of the APIs."""
    chat = await chat_ask(chat_body(as_openai(talk)), 0, model)
    message = await messages_ask(as_anthropic(talk), 0, model)
    whole, _ = await responses_ask(as_responses(talk), 0, model)
    opened, _ = await responses_ask(as_responses(talk, seals=True), 0, model)
    return [(ask.request.prompt, ask.thinking) for ask in (chat, message, whole, opened)]


@settings(max_examples=150, deadline=None)
@given(TALK)
async def test_one_conversation_has_one_prompt_in_every_api(model: ServedModel, talk: Talk) -> None:
    chat, *others = await prompts(talk, model)
    assert others == [chat] * 3
    counted = {k: v for k, v in as_anthropic(talk).items() if k != "max_tokens"}
    assert await count_tokens(counted, 0, model) == len(chat[0])


async def text_of(model: ServedModel, **body: Any) -> str:
    """The prompt of a message, as text."""
    ask = await messages_ask({"max_tokens": 8} | body, 0, model)
    assert model.tokenizer is not None
    return model.tokenizer.decode(ask.request.prompt)


USER = {"role": "user", "content": "hi"}


async def test_a_billing_line_is_no_part_of_the_prompt(model: ServedModel) -> None:
    """It differs in every request, so that no prompt would begin like an earlier one."""
    block = {"type": "text", "text": SYSTEM + "\nbe brief"}
    told = await text_of(model, messages=[USER], system=[block])
    assert told == await text_of(model, messages=[USER], system="be brief")
    inside = [{"type": "text", "text": "see " + SYSTEM}]
    assert SYSTEM in await text_of(model, messages=[USER], system=inside)


async def test_a_last_turn_of_the_assistants_is_gone_on_with(model: ServedModel) -> None:
    begun = {"role": "assistant", "content": [{"type": "text", "text": "{"}]}
    plain = await text_of(model, messages=[USER])
    assert await text_of(model, messages=[USER, begun]) == plain + "{"
    body = {"messages": [USER, begun]}
    assert await count_tokens(body, 0, model) == len(
        (await messages_ask(body | {"max_tokens": 8}, 0, model)).request.prompt
    )
    with pytest.raises(InvalidRequest, match="cannot go on behind a thought"):
        await text_of(model, messages=[USER, begun], thinking={"type": "adaptive"})
    asked = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}
    with pytest.raises(InvalidRequest, match="nothing else") as refused:
        await text_of(model, messages=[USER, asked])
    assert refused.value.param == "messages[1].content[0].type"


async def test_results_stand_before_what_the_user_says(model: ServedModel) -> None:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    turn = {"role": "assistant", "content": [call]}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "13", "is_error": True}
    said = {"type": "text", "text": "go on"}
    first = await text_of(model, messages=[USER, turn, {"role": "user", "content": [result, said]}])
    last = await text_of(model, messages=[USER, turn, {"role": "user", "content": [said, result]}])
    assert first == last
    assert "<tool_response>13</tool_response><|user|>go on" in first


async def test_sealed_reasoning_of_another_server_is_left_out(model: ServedModel) -> None:
    user = {"role": "user", "content": "hi"}
    answer = {"role": "assistant", "content": "so"}
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    with_it, _ = await responses_ask({"input": [user, foreign, answer, user]}, 0, model)
    without, _ = await responses_ask({"input": [user, answer, user]}, 0, model)
    assert with_it.request.prompt == without.request.prompt
    redacted = {"type": "redacted_thinking", "data": "xyz"}
    blocks = {"role": "assistant", "content": [redacted, {"type": "text", "text": "so"}]}
    assert await text_of(model, messages=[user, blocks, user]) == await text_of(
        model, messages=[user, answer, user]
    )


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}


def output(name: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": name}


async def test_items_are_one_message_as_far_as_their_order_allows(model: ServedModel) -> None:
    """A message has its reasoning, its text, then its calls: what comes later than its place begins
    another one."""
    thought = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    items = [
        USER,
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
        call("c"),
        output("c"),
        thought,
        call("d"),
        call("e"),
        {"role": "assistant", "content": "g"},
        thought,
        USER,
    ]

    def called(*names: str) -> list[dict[str, Any]]:
        function = {"name": "f", "arguments": "{}"}
        return [{"id": name, "type": "function", "function": function} for name in names]

    messages = [
        USER,
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": called("c")},
        {"role": "tool", "tool_call_id": "c", "content": "c"},
        {"role": "assistant", "reasoning_content": "hm", "tool_calls": called("d", "e")},
        {"role": "assistant", "content": "g"},
        {"role": "assistant", "reasoning_content": "hm"},
        USER,
    ]
    response, _ = await responses_ask({"input": items}, 0, model)
    chat = await chat_ask(chat_body({"messages": messages}), 0, model)
    assert response.request.prompt == chat.request.prompt
