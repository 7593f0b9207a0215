"""A real Chromium for the tests of the page, or a reason why there is none."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str:
    """The path of a Chromium; skips, loudly, without one."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("THE PAGE IS NOT TESTED: no chromium; on Debian: apt-get install chromium")
    return found


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Root needs it without its sandbox; it opens our own page only."""
    path = executable()
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


class Watched:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._said)
        page.on("request", lambda request: self.asked.append(request.url))

    def _said(self, line: ConsoleMessage) -> None:
        if line.type == "error":
            self.faults.append(line.text)

    def open(self) -> Page:
        """The page once its first look at the server is there."""
        self.page.goto(self.url)
        self.page.locator("#pool-line:not(:empty)").wait_for(state="attached")
        return self.page

    def ask(self, text: str) -> None:
        self.page.fill("#ask", text)
        self.page.press("#ask", "Enter")

    def answered(self, count: int = 1) -> None:
        """Wait for so many replies that are complete."""
        self.page.locator(".turn.assistant:not(.live) .facts:not(:empty)").nth(count - 1).wait_for()
