"""The official openai client, against the application on a real port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from streamglm.errors import EngineFailed, Overloaded
from streamglm.request import Failed, Started, Tokens
from support.live import live
from support.world import HELLO, Make, World

ASK: Any = {"model": "tiny", "messages": HELLO}


@dataclass
class Served:
    client: openai.OpenAI
    world: World


@pytest.fixture
def served(make: Make) -> Iterator[Served]:
    world = make(api_key="k1")
    world.say("weigh it 🦉</think>the answer é")
    with (
        live(world.app) as (host, port),
        openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="k1", max_retries=0) as client,
    ):
        yield Served(client, world)


def test_a_chat_streamed_and_not(served: Served) -> None:
    whole = served.client.chat.completions.create(**ASK)
    message = whole.choices[0].message
    chunks = list(
        served.client.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **ASK
        )
    )
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == message.content == "the answer é"
    reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert reasoning == message.model_extra["reasoning_content"] == "weigh it 🦉"
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.prompt_tokens_details is not None
    assert whole.usage.prompt_tokens_details.cached_tokens == 0


def test_the_clients_own_accumulator_reads_a_stream(served: Served) -> None:
    with served.client.chat.completions.stream(**ASK) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "the answer é"
    assert final.choices[0].finish_reason == "stop"


def test_completions_and_models(served: Served) -> None:
    reply = served.client.completions.create(model="tiny", prompt="x", max_tokens=3)
    assert reply.choices[0].finish_reason == "length"
    texts = [
        chunk.choices[0].text
        for chunk in served.client.completions.create(
            model="tiny", prompt="x", max_tokens=3, stream=True
        )
    ]
    assert "".join(texts) == reply.choices[0].text
    assert served.client.models.retrieve("tiny").id == "tiny"
    assert [model.id for model in served.client.models.list()] == ["tiny"]


def test_errors_are_the_clients_own_exceptions(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        served.client.chat.completions.create(n=2, **ASK)
    assert bad.value.param == "n"
    with pytest.raises(openai.NotFoundError):
        served.client.chat.completions.create(**ASK | {"model": "other"})
    with pytest.raises(openai.AuthenticationError):
        served.client.with_options(api_key="no").models.list()
    served.world.engine.refusal = Overloaded("full")
    with pytest.raises(openai.InternalServerError) as full:
        served.client.chat.completions.create(**ASK)
    assert full.value.response.headers["retry-after"]


def test_a_failure_inside_a_stream_is_raised(served: Served) -> None:
    failure = Failed(EngineFailed("rank 0 is gone"))
    served.world.engine.script = lambda _: [Started(0), Tokens((40,)), failure]
    with pytest.raises(openai.APIError, match="rank 0 is gone"):
        for _ in served.client.chat.completions.create(stream=True, **ASK):
            pass


def test_the_clients_own_accumulator_reads_calls(served: Served) -> None:
    """CO-20: two streams at once, each reasoning, prose, and a call of two arguments."""
    served.world.say(
        'plan</think>I look.<tool_call>f<arg_key>q</arg_key><arg_value>é "x"</arg_value>'
        "<arg_key>n</arg_key><arg_value>12</arg_value></tool_call>",
        a_round=2,
    )
    properties = {"q": {"type": "string"}, "n": {"type": "integer"}}
    parameters = {"type": "object", "properties": properties}
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    create = served.client.chat.completions
    with (
        create.stream(tools=tools, **ASK) as first,
        create.stream(tools=tools, **ASK) as second,
    ):
        finals = [first.get_final_completion(), second.get_final_completion()]
    whole = create.create(tools=tools, **ASK)
    found = []
    for reply in (*finals, whole):
        (choice,) = reply.choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
        assert choice.message.tool_calls is not None
        (call,) = choice.message.tool_calls
        assert call.type == "function"
        assert json.loads(call.function.arguments) == {"q": 'é "x"', "n": 12}
        found.append((call.id, call.function.name))
    assert len({one for one, _ in found}) == 3
    assert {name for _, name in found} == {"f"}


def test_a_required_call_and_a_response_format_go_through_the_client(served: Served) -> None:
    tools: Any = [{"type": "function", "function": {"name": "f"}}]
    served.client.chat.completions.create(tools=tools, tool_choice="required", **ASK)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    served.client.chat.completions.create(response_format=form, **ASK)
    guides = [reply.request.sampling.guide for reply in served.world.engine.replies]
    asked = [json.loads(guide.grammar) for guide in guides if guide is not None]
    assert [one.get("form") for one in asked] == [None, "json"]
    with pytest.raises(openai.BadRequestError) as bad:
        served.client.chat.completions.create(tool_choice="required", **ASK)
    assert bad.value.param == "tool_choice"
