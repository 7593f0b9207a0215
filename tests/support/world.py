"""One application around an engine in memory, and the ways a test asks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette

from streamglm.edge.served import ServedModel
from streamglm.text.tokenizer import Tokenizer
from support.asgi import Call, sse_objects
from support.engine import FakeEngine, says
from support.manual import ManualClock

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]


@dataclass
class World:
    """One application and all that it was made of."""

    app: Starlette
    engine: FakeEngine
    model: ServedModel
    clock: ManualClock
    http: httpx.AsyncClient

    @property
    def tokenizer(self) -> Tokenizer:
        assert self.model.tokenizer is not None
        return self.model.tokenizer

    @property
    def end(self) -> int:
        """An end token."""
        return min(self.model.eos_ids)

    def say(self, text: str, *, end: bool = True, cached: int = 0, a_round: int = 1) -> int:
        """Every reply says `text` from now on; the number of its ids, end token and all."""
        ids = [*self.tokenizer.encode(text), *([self.end] if end else [])]
        self.engine.script = says(ids, cached=cached, a_round=a_round)
        return len(ids)

    async def ask(self, path: str = CHAT, **body: Any) -> httpx.Response:
        """POST; a chat without messages says hi."""
        given = {} if path != CHAT else {"messages": HELLO}
        return await self.http.post(path, json=given | body)

    async def ask_as(self, headers: dict[str, str], **body: Any) -> httpx.Response:
        """A chat with headers of its own."""
        return await self.http.post(CHAT, json={"messages": HELLO} | body, headers=headers)

    async def whole(self, path: str = CHAT, **body: Any) -> dict[str, Any]:
        """The body of a reply that is not streamed."""
        answer = await self.ask(path, **body)
        assert answer.status_code == 200, answer.text
        value = answer.json()
        assert isinstance(value, dict)
        return value

    async def stream(self, path: str = CHAT, **body: Any) -> list[dict[str, Any]]:
        """The objects of a streamed reply."""
        answer = await self.ask(path, stream=True, **body)
        assert answer.status_code == 200, answer.text
        return sse_objects(answer.content.decode())

    async def refused(self, status: int = 400, path: str = CHAT, **body: Any) -> dict[str, Any]:
        """The `error` of a request that must be refused, streamed and not alike."""
        answers = [await self.ask(path, **body), await self.ask(path, **body, stream=True)]
        for answer in answers:
            assert answer.status_code == status, answer.text
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            assert len(answer.content) < 10_000
        assert answers[0].json() == answers[1].json()
        error = answers[0].json()["error"]
        assert isinstance(error, dict)
        return error

    def call(self, path: str = CHAT, **body: Any) -> Call:
        """A request driven by hand."""
        given = {} if path != CHAT else {"messages": HELLO}
        return Call(self.app, path, given | body)


Make = Callable[..., World]
"""Makes worlds: `make(context=64, text=False, api_key="k")`."""
