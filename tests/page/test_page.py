"""The web page in a real Chromium, over a server whose engine a test scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from streamglm.request import Started, Tokens
from support.browser import Watched
from support.live import live
from support.world import Make, World

Open = Callable[..., tuple[World, Watched]]


@pytest.fixture
def opens(make: Make, browser: Browser) -> Iterator[Open]:
    """Opens a page on a server of its own; on the way out it must have met no fault."""
    ends: list[Callable[[], Any]] = []
    pages: list[Watched] = []

    def opened(
        *, learns: bool = False, context: dict[str, Any] | None = None, **settings: Any
    ) -> tuple[World, Watched]:
        world = make(**settings)
        world.say("plan</think>Hello `there`")
        server = live(world.app)
        host, port = server.__enter__()
        tab = browser.new_context(**(context or {}))
        page = tab.new_page()
        page.set_default_timeout(10_000)
        if not learns:  # a 404 is a line in the console, and here it is none of interest
            page.route("**/v1/conversations", lambda route: route.abort())
        pages.append(Watched(page, f"http://{host}:{port}/"))
        ends.extend((lambda: server.__exit__(None, None, None), tab.close))
        return world, pages[-1]

    yield opened
    for end in reversed(ends):
        end()
    faults = [fault for page in pages for fault in page.faults if "ERR_FAILED" not in fault]
    assert faults == []


def words(page: Page) -> str:
    return page.locator(".turn.assistant .words").last.inner_text()


def bodies(page: Page) -> list[dict[str, Any]]:
    """The bodies of chats that the page sends from now on."""
    found: list[dict[str, Any]] = []

    def note(request: Any) -> None:
        if request.url.endswith("/chat/completions"):
            found.append(json.loads(request.post_data))

    page.on("request", note)
    return found


def test_a_reply_is_streamed_with_its_reasoning_folded(opens: Open) -> None:
    _, watched = opens()
    page = watched.open()
    watched.ask("hi")
    watched.answered()
    assert words(page) == "Hello there"
    assert page.locator(".words code").inner_text() == "there"
    thought = page.locator(".thought")
    assert not thought.is_visible()
    page.locator(".reasoning summary").press("Enter")
    assert thought.inner_text() == "plan"
    assert re.search(r"seed \d+ · hash [0-9a-f]{12}", page.locator(".facts").inner_text())


def test_a_conversation_goes_on_is_edited_and_regenerated(opens: Open) -> None:
    world, watched = opens()
    page = watched.open()
    sent = bodies(page)
    watched.ask("one")
    watched.answered()
    watched.ask("two")
    watched.answered(2)
    roles = [(one["role"], one["content"]) for one in sent[1]["messages"]]
    assert roles == [("user", "one"), ("assistant", "Hello `there`"), ("user", "two")]
    assert sent[1]["messages"][1]["reasoning_content"] == "plan"
    world.say("</think>Again")
    page.get_by_role("button", name="Regenerate reply 2").click()
    expect(page.locator(".words").last).to_have_text("Again")
    assert sent[2]["messages"] == sent[1]["messages"]
    watched.answered(2)
    page.get_by_role("button", name="Edit message 1").click()
    page.get_by_role("textbox", name="Message 1").fill("three")
    page.get_by_role("textbox", name="Message 1").press("Enter")
    expect(page.locator(".turn")).to_have_count(2)
    watched.answered()
    assert sent[3]["messages"] == [{"role": "user", "content": "three"}]


def test_an_edit_can_be_left(opens: Open) -> None:
    _, watched = opens()
    page = watched.open()
    watched.ask("one")
    watched.answered()
    edit = page.get_by_role("button", name="Edit message 1")
    edit.click()
    page.keyboard.press("Escape")
    expect(edit).to_be_focused()
    assert page.locator(".turn.user .words").inner_text() == "one"


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_a_reply_is_stopped_and_its_text_stays(opens: Open, how: str) -> None:
    world, watched = opens()
    ids = world.tokenizer.encode("</think>Half a")
    world.engine.script = lambda request: [Started(0), Tokens(tuple(ids))]
    page = watched.open()
    watched.ask("hi")
    expect(page.locator(".words").last).to_have_text("Half a")
    if how == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    expect(page.locator(".facts")).to_have_text("stopped")
    assert words(page) == "Half a"
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    for _ in range(100):
        if world.engine.replies[0].stops:
            return
        page.wait_for_timeout(20)
    raise AssertionError("the server went on")


def sse(*chunks: dict[str, Any]) -> str:
    told = [{"choices": [{"index": 0, "delta": chunk}]} for chunk in chunks]
    events = [f"data: {json.dumps(one)}\n\n" for one in told]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return "".join([*events, f"data: {json.dumps(end)}\n\n", "data: [DONE]\n\n"])


def part(index: int, arguments: str, name: str = "", id: str = "") -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    call = {"index": index, "function": function} | ({"id": id, "type": "function"} if id else {})
    return {"tool_calls": [call]}


def test_tool_calls_are_shown_and_sent_back(opens: Open) -> None:
    _, watched = opens()
    page = watched.open()
    sent = bodies(page)
    told = sse(
        {"role": "assistant", "content": "Look: "},
        part(0, "", "weather", "call_1"),
        part(0, '{"city": "Bo'),
        part(0, 'nn"}'),
        part(1, '{"n": 1}', "count", "call_2"),
    )
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(body=told, content_type="text/event-stream"),
    )
    watched.ask("weather?")
    watched.answered()
    assert page.locator(".call .name").all_inner_texts() == ["weather", "count"]
    assert json.loads(page.locator(".call pre").first.inner_text()) == {"city": "Bonn"}
    assert "ends in a call" in page.locator(".facts").inner_text()
    watched.ask("and?")
    watched.answered(2)
    calls = sent[1]["messages"][1]["tool_calls"]
    assert [call["id"] for call in calls] == ["call_1", "call_2"]
    assert calls[0]["function"] == {"name": "weather", "arguments": '{"city": "Bonn"}'}


def test_text_is_never_html(opens: Open) -> None:
    world, watched = opens()
    world.say("</think><img src=x onerror=alert(1)>\n\n```\n<b>code</b>\n```\nend")
    page = watched.open()
    watched.ask("<script>alert(1)</script>")
    watched.answered()
    assert page.locator(".turn img, .turn script, .turn b").count() == 0
    assert page.locator(".words pre").inner_text() == "<b>code</b>"
    assert page.locator(".turn.user .words").inner_text() == "<script>alert(1)</script>"


def test_options_reach_the_request_and_a_refusal_is_shown(opens: Open) -> None:
    _, watched = opens()
    page = watched.open()
    sent = bodies(page)
    page.click("#options summary")
    page.get_by_label("Most tokens").fill("5000")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Thinking").uncheck()
    watched.ask("hi")
    expect(page.locator(".fault")).to_contain_text("maximum context length is 4096")
    assert (sent[0]["max_tokens"], sent[0]["seed"]) == (5000, 7)
    assert sent[0]["chat_template_kwargs"] == {"enable_thinking": False}
    watched.faults.clear()  # the console tells of the 400 as well


def test_a_key_is_asked_for_kept_in_the_tab_and_asked_again_when_it_is_wrong(opens: Open) -> None:
    _, watched = opens(api_key="k1")
    page = watched.page
    page.goto(watched.url)
    page.get_by_label("Key", exact=True).fill("no")
    page.keyboard.press("Enter")
    expect(page.locator("#key-line")).to_contain_text("not valid")
    page.get_by_label("Key", exact=True).fill("k1")
    page.keyboard.press("Enter")
    expect(page.locator("#model")).to_contain_text("tiny")
    watched.ask("hi")
    watched.answered()
    page.reload()
    expect(page.locator("#model")).to_contain_text("tiny")
    assert page.evaluate("sessionStorage.getItem('streamglm.key')") == "k1"
    assert page.evaluate("localStorage.length") == 0
    assert page.context.cookies() == []
    assert not any("k1" in url for url in watched.asked)
    watched.faults.clear()  # the console tells of each 401


def test_a_chat_outlives_a_reload_and_ends_with_a_new_one(opens: Open) -> None:
    _, watched = opens()
    page = watched.open()
    watched.ask("hi")
    watched.answered()
    page.reload()
    assert words(page) == "Hello there"
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".turn")).to_have_count(0)
    page.reload()
    expect(page.locator("#empty")).to_be_visible()


def test_the_pool_is_drawn_with_its_legend(opens: Open) -> None:
    _, watched = opens()
    page = watched.open()
    line = "40 pages of 64 tokens: 22 in use, 7 kept, 11 free"
    assert page.locator("#pool-line").inner_text() == line
    legend = page.locator("#legend li").all_inner_texts()
    assert [" ".join(one.split()) for one in legend] == [
        "Stream 2, prompt 128 of 300 6",
        "1 kept prompt 7",
        "Free 11",
    ]
    assert page.locator("#running").inner_text() == "3 of 4"
    assert page.locator("#waiting").inner_text() == "2"
    canvas = page.locator(".map canvas")
    assert line in str(canvas.get_attribute("aria-label"))
    canvas.focus()
    for key in ["ArrowRight"] * 5:
        page.keyboard.press(key)
    expect(page.locator("#cell")).to_have_text("page 4: kept prompts")


def test_each_class_has_a_map_of_its_own(opens: Open) -> None:
    _, watched = opens()

    def two(route: Route) -> None:
        answer = route.fetch()
        pool = answer.json()
        pool["pages"] *= 2
        pool["map"]["classes"] *= 2
        pool["lanes"][0]["owner"] = 1
        route.fulfill(response=answer, json=pool)

    watched.page.route("**/v1/pool*", two)
    page = watched.open()
    assert page.locator(".map figcaption").all_inner_texts() == ["Rank 0", "Rank 1"]
    borders = page.locator(".map").evaluate_all(
        "maps => maps.map((one) => getComputedStyle(one).borderInlineStartColor)"
    )
    assert len(set(borders)) == 2
    assert "Stream 2, rank 1, prompt 128 of 300" in page.locator("#legend li").first.inner_text()


def test_learned_conversations_appear_where_the_server_has_them_and_go(opens: Open) -> None:
    _, watched = opens(learns=True)
    there = [{"id": "a1b2", "tokens": 1200, "bytes": 3 << 20}, {"id": "c3/4"}]
    gone: list[str] = []

    def answer(route: Route) -> None:
        if route.request.method == "DELETE":
            gone.append(route.request.url)
            del there[1]
            route.fulfill(status=204)
        else:
            route.fulfill(json={"object": "list", "data": there})

    watched.page.route("**/v1/conversations**", answer)
    page = watched.open()
    expect(page.locator("#learned-list li")).to_have_count(2)
    assert "1,200 tokens · 3.0 MiB" in page.locator("#learned-list").inner_text()
    page.get_by_role("button", name="Delete conversation c3/4").click()
    expect(page.locator("#learned-list li")).to_have_count(1)
    assert gone[0].endswith("/v1/conversations/c3%2F4")


def test_without_learned_conversations_there_is_no_panel(opens: Open) -> None:
    _, watched = opens(learns=True)
    page = watched.open()
    expect(page.locator("#rate")).not_to_have_text("–")  # a second look, after the first answer
    assert not page.locator("#learned").is_visible()
    assert [url for url in watched.asked if "conversations" in url] == [
        watched.url + "v1/conversations"
    ]
    watched.faults.clear()  # the console tells of the 404


def test_everything_comes_from_the_server_itself(opens: Open) -> None:
    _, watched = opens()
    watched.open()
    watched.ask("hi")
    watched.answered()
    assert all(url.startswith(watched.url) for url in watched.asked)


def test_the_keyboard_reaches_everything_in_order(opens: Open) -> None:
    _, watched = opens()
    page = watched.open()
    page.locator(".skip").focus()
    names = []
    for _ in range(6):
        names.append(
            page.evaluate("(({ textContent, id, tagName }) => textContent.trim() || id || tagName)"
                          "(document.activeElement)")
        )  # fmt: skip
        page.keyboard.press("Tab")
    assert names == ["Skip to the message", "New chat", "ask", "Send", "Options", "CANVAS"]


def test_every_control_has_a_name_and_a_reply_is_announced(opens: Open) -> None:
    _, watched = opens()
    page = watched.open()
    watched.ask("hi")
    watched.answered()
    expect(page.locator("#status")).to_have_text("Reply: Hello `there`")
    assert page.locator("#status").get_attribute("aria-live") == "polite"
    nameless = [
        line
        for line in page.locator("body").aria_snapshot().splitlines()
        if re.fullmatch(r"\s*- (button|textbox|spinbutton|checkbox|img)( \[.*\])?:?", line)
    ]
    assert nameless == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(opens: Open, scheme: str) -> None:
    """WCAG's 4.5 to 1, from the variables that everything is coloured with."""
    _, watched = opens(context={"color_scheme": scheme})
    page = watched.open()

    def luminance(name: str) -> float:
        value = page.evaluate(
            "name => getComputedStyle(document.documentElement).getPropertyValue(name)", name
        ).strip()
        parts = [int(value[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for ink, ground in (
        ("--ink", "--ground"),
        ("--ink", "--sunk"),
        ("--quiet", "--ground"),
        ("--quiet", "--raised"),
        ("--warn", "--ground"),
        ("--accent-ink", "--accent"),
    ):
        low, high = sorted((luminance(ink), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


def test_a_narrow_page_shows_one_side_at_a_time(opens: Open) -> None:
    _, watched = opens(context={"viewport": {"width": 390, "height": 760}})
    page = watched.open()
    assert not page.locator("#legend").is_visible()
    page.get_by_role("button", name="Server").click()
    assert page.locator("#legend").is_visible()
    assert not page.locator("#ask").is_visible()
    page.get_by_role("button", name="Chat", exact=True).click()
    assert page.locator("#ask").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_motion_stops_for_those_who_want_none(opens: Open) -> None:
    world, watched = opens(context={"reduced_motion": "reduce"})
    world.engine.script = lambda request: [Started(0), Tokens((40,))]
    page = watched.open()
    watched.ask("hi")
    page.locator(".turn.live").wait_for()
    name = "getComputedStyle(document.querySelector('.live .thought'), '::after').animationName"
    assert page.evaluate(name) == "none"
