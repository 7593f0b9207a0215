"""The page's modules one by one, in a real Chromium: each is imported and called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from support.live import live
from support.world import Make


@pytest.fixture
def page(make: Make, browser: Browser) -> Iterator[Page]:
    with live(make().app) as (host, port):
        found = browser.new_page()
        found.goto(f"http://{host}:{port}/page/icon.svg")
        yield found
        found.close()


def call(page: Page, module: str, body: str, given: Any = None) -> Any:
    """`body` with the module's names in reach as `m`, and `given`."""
    return page.evaluate(
        f"async (given) => {{ const m = await import('/page/{module}.js'); {body} }}", given
    )


def test_events_are_the_same_however_they_are_cut(page: Page) -> None:
    text = ': \n\ndata: {"a":1}\n\nevent: x\r\ndata:b\r\ndata: c\r\n\r\ndata: [DONE]\n\ndata: cut'
    cuts = """
      const found = new Set();
      for (let a = 0; a <= given.length; a++) for (let b = a; b <= given.length; b++) {
        const events = new m.Events();
        const parts = [given.slice(0, a), given.slice(a, b), given.slice(b)];
        found.add(JSON.stringify(parts.flatMap((one) => events.feed(one))));
      }
      return [...found];
    """
    assert call(page, "events", cuts, text) == ['["{\\"a\\":1}","b\\nc","[DONE]"]']


def test_a_reply_grows_by_chunks(page: Page) -> None:
    chunks = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"reasoning_content": "hm"}}]},
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {"content": "b"}, "finish_reason": "length"}]},
        {"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens": 9}},
    ]
    reply = call(page, "reply", "return given.reduce(m.take, m.blank());", chunks)
    assert (reply["reasoning"], reply["content"], reply["finish"]) == ("hm", "ab", "length")
    assert call(page, "reply", "return m.facts(given);", reply) == "cut at its length · 3 tokens"
    failed = [*chunks[:2], {"error": {"message": "gone"}}]
    reply = call(page, "reply", "return given.reduce(m.take, m.blank());", failed)
    assert (reply["reasoning"], reply["error"]) == ("hm", "gone")


def test_runs_become_cells_with_colours_and_names(page: Page) -> None:
    body = "return [...m.cells(given)].map(m.colour);"
    found = call(page, "pool", body, [0, 1, 1, 2, 3, 1, 10, 1])
    assert found == ["--free", "--kept", "--kept", "--lane-1", "--lane-0"]
    assert call(page, "pool", "return m.span(2, 1, 5);") == "page 2"
    assert call(page, "pool", "return m.span(2, 100, 250);") == "pages 200 to 249"


def test_a_rate_begins_anew_when_a_total_falls(page: Page) -> None:
    body = "const r = new m.Rate(3); return given.map(([t, s]) => r.add(t, s)).concat([r.values]);"
    points = [[0, 0], [10, 1], [40, 2], [5, 3], [6, 4], [9, 5]]
    assert call(page, "pool", body, points) == [None, 10, 30, None, 1, 3, [30, 1, 3]]


def test_a_fence_that_is_open_is_code_to_the_end(page: Page) -> None:
    found = call(page, "text", "return m.blocks(given);", "a\n\nb\n```py\nx = 1\n\ny")
    assert [(one["code"], one["text"]) for one in found] == [
        (False, "a"),
        (False, "b\n"),
        (True, "x = 1\n\ny"),
    ]


def test_a_broken_store_is_an_empty_chat(page: Page) -> None:
    body = "return new m.Conversation({ getItem: () => given }).turns;"
    for stored in ("{", "[1]", '[{"text": 3}]', '[{"text": "a", "reply": null}]', "null"):
        assert call(page, "conversation", body, stored) == []
