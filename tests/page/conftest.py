"""Applications for a browser. None of this is asynchronous: the browser's driver has the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from streamglm.clock import SystemClock
from streamglm.config import Settings
from streamglm.edge.app import build_app
from streamglm.edge.served import ServedModel
from streamglm.nano import folder
from streamglm.request import SamplingParams
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer
from support.browser import chromium
from support.engine import FakeEngine
from support.manual import ManualClock
from support.world import Make, World


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def make() -> Make:
    tokenizer, template = Tokenizer.from_folder(folder()), ChatTemplate.from_folder(folder())
    assert tokenizer is not None
    model = ServedModel(
        name="tiny",
        context=4096,
        vocab_size=tokenizer.size,
        tokenizer=tokenizer,
        template=template,
        eos_ids=frozenset(tokenizer.encode("<|endoftext|><|user|><|observation|>")),
        defaults=SamplingParams(),
        created=1_700_000_000,
    )

    def made(**settings: Any) -> World:
        engine = FakeEngine()
        app = build_app(engine, model, Settings(**settings), SystemClock())
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
        return World(app, engine, model, ManualClock(), http)

    return made
