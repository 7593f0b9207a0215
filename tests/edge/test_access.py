"""Keys on every route, and browsers (CO-34)."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from streamglm.errors import SettingError
from support.world import CHAT, HELLO, Make, World

GOOD = [
    {"Authorization": "Bearer k1"},
    {"authorization": "bearer  k1 "},
    {"x-api-key": "k1"},
    {"Authorization": "Bearer none", "x-api-key": "k1"},
]
BAD = [
    {},
    {"Authorization": "Bearer k2"},
    {"Authorization": "Bearer"},
    {"Authorization": "k1"},
    {"Authorization": "Basic k1"},
    {"x-api-key": ""},
    {"x-api-key": "K1"},
    {"x-api-key": "\u00e9"},
]
OPEN = ("/health", "/", "/page/main.js")
ORIGIN = "http://localhost:5173"


@pytest.fixture
def locked(make: Make) -> World:
    world = make(api_key="k1")
    world.say("a")
    return world


def every(world: World) -> list[tuple[str, str]]:
    """(method, path) of every registered route, and one that is not."""
    routes = [route for route in world.app.routes if isinstance(route, Route)]
    assert len(routes) > 7
    pairs = [
        (m, r.path.replace("{name:path}", "tiny").replace("{name}", "main.js"))
        for r in routes
        for m in r.methods or ()
    ]
    return [*pairs, ("GET", "/nothing"), ("PUT", CHAT), ("POST", "/"), ("POST", "/page/main.js")]


async def send(world: World, method: str, path: str, headers: dict[str, str]) -> Any:
    body = {"messages": HELLO} if method == "POST" else None
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return await world.http.request(method, path, json=body, headers=raw)


@pytest.mark.parametrize("headers", BAD, ids=repr)
async def test_nothing_but_health_and_the_page_is_answered_without_a_key(
    locked: World, headers: dict[str, str]
) -> None:
    for method, path in every(locked):
        answer = await send(locked, method, path, headers)
        if path in OPEN and method in ("GET", "HEAD"):
            assert answer.status_code == 200
            continue
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
        if method != "HEAD":
            assert answer.json()["error"]["code"] == "invalid_api_key"
    assert locked.engine.replies == []


async def test_options_needs_no_key_from_a_browser_or_not(locked: World) -> None:
    answer = await locked.http.options(CHAT)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("headers", GOOD, ids=repr)
async def test_both_header_styles_work_on_every_route(
    locked: World, headers: dict[str, str]
) -> None:
    for method, path in every(locked):
        assert (await send(locked, method, path, headers)).status_code != 401, (method, path)


async def test_health_without_a_key_shows_its_status_alone(locked: World) -> None:
    assert (await locked.http.get("/health")).json() == {"status": "ok"}
    full = await locked.http.get("/health", headers=GOOD[0])
    assert full.json()["lanes"] == 4


async def test_without_keys_everything_is_open(world: World) -> None:
    assert (await world.http.get("/metrics")).status_code == 200
    assert (await world.http.get("/health")).json()["lanes"] == 4


async def test_keys_do_not_reach_the_log(locked: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await send(locked, "POST", CHAT, {"Authorization": "Bearer hunter2"})
        await send(locked, "POST", CHAT, {"Authorization": "Bearer k1"})
    assert "hunter2" not in caplog.text
    assert "k1" not in caplog.text


async def allowed(world: World, key: str) -> bool:
    answer = await world.http.get("/v1/models", headers={"x-api-key": key})
    return answer.status_code == 200


async def test_a_key_file_is_read_again_when_it_is_replaced(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("old\n\n  spaced \n")
    world = make(api_key_file=str(file), api_key="fixed")
    assert [await allowed(world, key) for key in ("old", "spaced", "fixed", "new", "")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    (tmp_path / "next").write_text("new\n")
    os.replace(tmp_path / "next", file)
    await world.clock.advance(1.5)
    assert [await allowed(world, key) for key in ("old", "fixed", "new")] == [False, True, True]


async def test_a_key_file_that_is_emptied_revokes_and_one_that_is_gone_does_not(
    make: Make, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("a\n")
    world = make(api_key_file=str(file))
    file.unlink()
    await world.clock.advance(1.5)
    assert await allowed(world, "a")
    file.write_text("")
    await world.clock.advance(1.5)
    assert not await allowed(world, "a")
    assert not await allowed(world, "")


@pytest.mark.parametrize("text", [None, "", "\n \n"])
def test_a_key_file_that_cannot_be_used_is_a_setting_error(
    make: Make, tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingError, match="--api-key-file"):
        make(api_key_file=str(file))


def preflight(origin: str) -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }


@pytest.mark.parametrize(
    "origin",
    [ORIGIN, "http://127.0.0.1", "https://127.9.8.7:1", "http://[::1]:3000", "http://localhost"],
)
async def test_loopback_origins_may_ask_from_a_browser(locked: World, origin: str) -> None:
    answer = await locked.http.options(CHAT, headers=preflight(origin))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in answer.headers["access-control-allow-methods"]
    for headers, status in (({"x-api-key": "k1"}, 200), ({}, 401)):
        streamed = await locked.ask_as({"Origin": origin, **headers}, stream=True)
        assert streamed.status_code == status
        assert streamed.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "null",
        "http://localhost:80/path",
    ],
)
async def test_other_origins_get_no_allowance(locked: World, origin: str) -> None:
    answer = await locked.http.options(CHAT, headers=preflight(origin))
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "access-control-allow-origin" not in answer.headers
    streamed = await locked.ask_as({"Origin": origin, "x-api-key": "k1"}, stream=True)
    assert "access-control-allow-origin" not in streamed.headers


async def test_named_origins_replace_loopback(make: Make) -> None:
    world = make(cors_origin="https://a.example, https://b.example")
    for origin, allowed_there in (("https://b.example", True), (ORIGIN, False)):
        answer = await world.http.options(CHAT, headers=preflight(origin))
        assert ("access-control-allow-origin" in answer.headers) == allowed_there
    anyone = make(cors_origin="*")
    answer = await anyone.http.get("/v1/models", headers={"Origin": "https://evil.example"})
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/nothing", CHAT, "/v1/models/other"])
async def test_errors_carry_the_same_origin_header(world: World, path: str) -> None:
    answer = await world.http.get(path, headers={"Origin": ORIGIN})
    assert answer.status_code in (404, 405)
    assert answer.headers["access-control-allow-origin"] == ORIGIN


async def test_an_unexpected_error_is_a_small_500_with_the_origin_header(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise RuntimeError("secret")

    world.engine.health = broken  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR):
        answer = await world.http.get("/health", headers={"Origin": ORIGIN})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "secret" in caplog.text
