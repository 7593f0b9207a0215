"""`/v1/conversations`: what is learned is shown in numbers, and deleted on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from streamglm.config import Settings
from streamglm.core.engine import ConversationView, StateView
from streamglm.edge.app import build_app
from streamglm.edge.served import ServedModel
from streamglm.errors import DiskError
from streamglm.request import SamplingParams
from support.engine import FakeEngine
from support.manual import ManualClock
from support.world import World


def view(name: str) -> ConversationView:
    state = StateView(tokens=128, bytes=50, created=1.0, used=2.0)
    return ConversationView(name, 128, 900, 2, 1.0, 2.0, (state,))


class Shelf:
    """A library of names."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.stuck = False

    def conversations(self) -> list[ConversationView]:
        return [view(name) for name in self.names]

    async def forget(self, ids: Sequence[str]) -> None:
        if self.stuck:
            raise DiskError("the conversations cannot be removed: read-only")
        self.names = [name for name in self.names if name not in ids]


def client(library: Shelf | None) -> httpx.AsyncClient:
    model = ServedModel("m", 64, 8, None, None, frozenset(), SamplingParams(), 0)
    app = build_app(FakeEngine(), model, Settings(), ManualClock(), library=library)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


async def test_conversations_are_listed_shown_and_deleted() -> None:
    shelf = Shelf("aa", "bb", "cc")
    async with client(shelf) as http:
        listed = (await http.get("/v1/conversations")).json()
        assert [one["id"] for one in listed["data"]] == ["aa", "bb", "cc"]
        one = (await http.get("/v1/conversations/bb")).json()
        assert one == {
            "object": "conversation",
            "id": "bb",
            "tokens": 128,
            "bytes": 900,
            "pages": 2,
            "created": 1.0,
            "used": 2.0,
            "states": [{"tokens": 128, "bytes": 50, "created": 1.0, "used": 2.0}],
        }
        gone = await http.delete("/v1/conversations/bb")
        assert gone.json() == {"object": "conversation.deleted", "id": "bb", "deleted": True}
        assert shelf.names == ["aa", "cc"]
        assert (await http.delete("/v1/conversations")).json()["deleted"] == 2
        assert not shelf.names


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    ("shelf", "path", "said"),
    [
        (Shelf("aa"), "/v1/conversations/zz", "No conversation `zz`"),
        (None, "/v1/conversations", "--learn-conversations"),
        (None, "/v1/conversations/aa", "--learn-conversations"),
    ],
)
async def test_what_is_not_there_is_404(
    method: str, shelf: Shelf | None, path: str, said: str
) -> None:
    async with client(shelf) as http:
        answer = await http.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "conversation_not_found"
    assert said in answer.json()["error"]["message"]


async def test_a_deletion_that_fails_says_so() -> None:
    shelf = Shelf("aa")
    shelf.stuck = True
    async with client(shelf) as http:
        answer = await http.delete("/v1/conversations/aa")
    assert answer.status_code == 500
    assert shelf.names == ["aa"]


async def test_learn_reaches_the_engine(world: World) -> None:
    world.say("a")
    cases: tuple[tuple[dict[str, Any], bool], ...] = (
        ({}, True),
        ({"learn": True}, True),
        ({"learn": False}, False),
    )
    for given, learn in cases:
        await world.whole(**given)
        assert world.engine.replies[-1].request.learn is learn
    error = await world.refused(learn="no")
    assert error["param"] == "learn"
