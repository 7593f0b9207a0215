"""An application around an engine in memory, with the built-in model's tokenizer and template."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from streamglm.clock import Clock
from streamglm.config import Settings
from streamglm.edge.app import build_app
from streamglm.edge.served import ServedModel
from streamglm.nano import folder
from streamglm.request import SamplingParams
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer
from support.engine import FakeCompiler, FakeEngine
from support.manual import ManualClock
from support.world import Make, World


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_folder(folder())
    assert found is not None
    return found


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    found = ChatTemplate.from_folder(folder())
    assert found is not None
    return found


@pytest.fixture
async def make(tokenizer: Tokenizer, template: ChatTemplate) -> AsyncIterator[Make]:
    """Makes worlds: `make(context=64, text=False, api_key="k")`. With
    `grammars=False` the grammar library is not there."""
    clients: list[httpx.AsyncClient] = []

    def made(
        *,
        context: int = 4096,
        text: bool = True,
        grammars: bool = True,
        clock: Clock | None = None,
        **settings: Any,
    ) -> World:
        engine, manual = FakeEngine(), ManualClock()
        model = ServedModel(
            name="tiny",
            context=context,
            vocab_size=tokenizer.size,
            tokenizer=tokenizer if text else None,
            template=template if text else None,
            eos_ids=frozenset(tokenizer.encode("<|endoftext|><|user|><|observation|>")),
            defaults=SamplingParams(temperature=0.75, top_p=0.95),
            created=1_700_000_000,
            fingerprint="fp_test",
            grammars=FakeCompiler() if grammars else None,
        )
        app = build_app(engine, model, Settings(**settings), clock or manual)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        http = httpx.AsyncClient(transport=transport, base_url="http://test")
        clients.append(http)
        return World(app, engine, model, manual, http)

    yield made
    for client in clients:
        await client.aclose()


@pytest.fixture
def world(make: Make) -> World:
    return make()
