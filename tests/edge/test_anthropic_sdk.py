"""The official anthropic client, and requests in the shapes of Claude Code, on a real port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import pytest

from streamglm.errors import EngineFailed, Overloaded
from streamglm.request import Failed, Started, Tokens
from support.live import live
from support.world import HELLO, Make, World

ASK: Any = {"model": "tiny", "messages": HELLO, "max_tokens": 200}
THINKS: Any = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


@dataclass
class Served:
    client: anthropic.Anthropic
    world: World


@pytest.fixture
def served(make: Make) -> Iterator[Served]:
    world = make(api_key="k1")
    world.say("weigh it 🦉</think>the answer é")
    with (
        live(world.app) as (host, port),
        anthropic.Anthropic(
            base_url=f"http://{host}:{port}", api_key="k1", max_retries=0
        ) as client,
    ):
        yield Served(client, world)


def test_a_message_streamed_and_not(served: Served) -> None:
    whole = served.client.messages.create(**ASK, **THINKS)
    thought, answer = whole.content
    assert thought.type == "thinking"
    assert answer.type == "text"
    assert (thought.thinking, answer.text) == ("weigh it 🦉", "the answer é")
    assert whole.stop_reason == "end_turn"
    with served.client.messages.stream(**ASK, **THINKS) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(texts) == "the answer é"
    kept = [block.model_dump(exclude={"parsed_output"}) for block in final.content]
    assert kept == [block.model_dump() for block in whole.content]
    assert final.usage.input_tokens == whole.usage.input_tokens
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.cache_read_input_tokens == 0
    assert (whole.model_extra or {})["streamglm"]["token_sha"]


def test_the_raw_events_of_a_stream_have_the_figures_last(served: Served) -> None:
    events = list(served.client.messages.create(**ASK, **THINKS, stream=True))
    assert [events[0].type, events[-1].type] == ["message_start", "message_stop"]
    assert (events[-1].model_extra or {})["streamglm"]["token_sha"]


def test_counted_tokens(served: Served) -> None:
    counted = served.client.messages.count_tokens(model="tiny", messages=ASK["messages"])
    whole = served.client.messages.create(**ASK)
    assert counted.input_tokens == whole.usage.input_tokens


def test_models_are_listed(served: Served) -> None:
    assert [model.id for model in served.client.models.list()] == ["tiny"]
    assert served.client.models.retrieve("tiny").display_name == "tiny"


def test_errors_are_the_clients_own_exceptions(served: Served) -> None:
    with pytest.raises(anthropic.BadRequestError, match="top_p"):
        served.client.messages.create(**ASK, extra_body={"top_p": 5})
    with pytest.raises(anthropic.NotFoundError):
        served.client.messages.create(**ASK | {"model": "claude-other"})
    with pytest.raises(anthropic.AuthenticationError):
        served.client.with_options(api_key="no").messages.create(**ASK)
    served.world.engine.refusal = Overloaded("full")
    with pytest.raises(anthropic.InternalServerError) as full:
        served.client.messages.create(**ASK)
    assert full.value.response.headers["retry-after"]


def test_a_failure_inside_a_stream_is_raised(served: Served) -> None:
    failure = Failed(EngineFailed("rank 0 is gone"))
    served.world.engine.script = lambda _: [Started(0), Tokens((40,)), failure]
    with pytest.raises(anthropic.APIStatusError, match="rank 0 is gone"):
        for _ in served.client.messages.create(**ASK, stream=True):
            pass
