"""The page's files as they are served: types, headers, and nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamglm.edge import page
from support.world import Make, World

FILES = sorted(path for path in page.FOLDER.iterdir() if path.suffix in page.TYPES)


def address(path: Path) -> str:
    return "/" if path.name == "index.html" else f"/page/{path.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
async def test_a_file_is_served_as_what_it_is_under_the_policy(world: World, path: Path) -> None:
    answer = await world.http.get(address(path))
    assert (answer.status_code, answer.content) == (200, page.File.read(path).data)
    assert answer.headers["content-type"] == page.TYPES[path.suffix]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_names_no_other_server(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]+", text) == []
    assert "@import" not in text


def test_the_page_has_no_script_or_style_in_it() -> None:
    text = (page.FOLDER / "index.html").read_text()
    assert re.findall(r"<style|style=|\son[a-z]+=|javascript:", text) == []
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


def test_every_module_that_is_imported_exists() -> None:
    names = {path.name for path in FILES}
    for path in FILES:
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert name in names, (path.name, name)


async def test_a_file_that_is_known_already_is_not_sent_again(world: World) -> None:
    etag = (await world.http.get("/page/main.js")).headers["etag"]
    again = await world.http.get("/page/main.js", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "name", ["nothing.js", "__init__.py", "..%2F__init__.py", "", "index.html/x"]
)
async def test_there_is_nothing_else(make: Make, name: str) -> None:
    answer = await make(api_key="k").http.get(f"/page/{name}")
    assert answer.status_code == 404
