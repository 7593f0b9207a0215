"""The official openai client's Responses, on a real port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from support.live import live
from support.world import Make, World

ASK: Any = {"model": "tiny", "input": "hi"}


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


def test_a_response_streamed_and_not(served: Served) -> None:
    whole = served.client.responses.create(**ASK)
    assert whole.output_text == "the answer é"
    assert whole.status == "completed"
    events = list(served.client.responses.create(**ASK, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "the answer é"
    thoughts = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(thoughts) == "weigh it 🦉"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.usage == whole.usage
    assert (last.response.model_extra or {})["streamglm"]["token_sha"]


def test_the_clients_own_accumulator_reads_a_stream(served: Served) -> None:
    with served.client.responses.stream(**ASK) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.output_text == "the answer é"


def test_a_conversation_is_sent_again_with_what_was_answered(served: Served) -> None:
    """What `previous_response_id` would do, without anything being stored."""
    first = served.client.responses.create(**ASK, include=["reasoning.encrypted_content"])
    items: list[Any] = [
        {"role": "user", "content": "hi"},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"role": "user", "content": "and then?"},
    ]
    served.client.responses.create(model="tiny", input=items, store=False)
    prompt = served.world.tokenizer.decode(served.world.engine.replies[-1].request.prompt)
    assert "weigh it 🦉</think>the answer é<|user|>and then?" in prompt


@pytest.mark.parametrize(
    "fields",
    [
        {"store": True},
        {"previous_response_id": "resp_1"},
        {"background": True},
        {"tools": [{"type": "web_search"}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_not_kept_is_refused_by_name(served: Served, fields: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        served.client.responses.create(**ASK, **fields)
    assert (refused.value.param or "").startswith(next(iter(fields)))
