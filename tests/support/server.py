"""A real `streamglm serve` in a process of its own, for the end-to-end tests.

Owns the process: started with port 0, its port read from the line it prints, ended with SIGTERM
and waited for. Everything goes through the same command a person types.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

START_SECONDS = 60.0


@dataclass
class Server:
    """A running server: its address, its process, and what it has printed so far."""

    url: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def client(self, **options: Any) -> httpx.Client:
        """An HTTP client with a bounded wait."""
        return httpx.Client(base_url=self.url, timeout=httpx.Timeout(120.0), **options)

    def complete(self, prompt: list[int] | str, **fields: Any) -> dict[str, Any]:
        """One completion that is not streamed; its body."""
        body = {"prompt": prompt, "return_token_ids": True, **fields}
        return self.post("/v1/completions", body)

    def chat(self, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """One chat completion that is not streamed; its body."""
        body = {"messages": messages, "return_token_ids": True, **fields}
        return self.post("/v1/chat/completions", body)

    def post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST that must answer 200."""
        with self.client() as client:
            answer = client.post(route, json=body)
        assert answer.status_code == 200, answer.text
        value = answer.json()
        assert isinstance(value, dict)
        return value

    def health(self) -> dict[str, Any]:
        """The body of /health, which must be 200."""
        with self.client() as client:
            answer = client.get("/health")
        assert answer.status_code == 200, answer.text
        value = answer.json()
        assert isinstance(value, dict)
        return value

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        with self.client() as client:
            text = client.get("/metrics").text
        values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", text, re.MULTILINE)
        assert values, f"no metric {name}"
        return sum(float(value) for value in values)

    def idle(self) -> bool:
        """Nothing runs or waits, and every page is free or can be evicted."""
        return (
            self.metric("streamglm_requests_running") == 0
            and self.metric("streamglm_requests_waiting") == 0
            and self.metric("streamglm_pages_free") + self.metric("streamglm_pages_kept")
            == self.metric("streamglm_pages_total")
        )

    def wait_idle(self, seconds: float = 10.0) -> None:
        """Return once idle; fail after `seconds`."""
        deadline = time.monotonic() + seconds
        while not self.idle():
            assert time.monotonic() < deadline, f"not idle after {seconds} s"
            time.sleep(0.02)  # a poll with a bound, not a wait for luck


def environment() -> dict[str, str]:
    """That of a server: none of its settings, and nothing held back."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("STREAMGLM_")}
    return clean | {"PYTHONUNBUFFERED": "1"}


def _pump(process: subprocess.Popen[str], lines: list[str], found: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip())
        match = re.search(r"listening on (http://\S+)", line)
        if match:
            found.put(match.group(1))
    found.put(None)


def command(model: Path | str, *flags: str) -> list[str]:
    """The command line of a server on a port of the system's choice."""
    return [sys.executable, "-m", "streamglm", "serve", str(model), "--port", "0", *flags]


@contextlib.contextmanager
def serving_until_killed(
    model: Path | str, *flags: str, prefix: Sequence[str] = ()
) -> Iterator[Server]:
    """A server that listens; how it ends is the test's affair, and on the way out it has. `prefix`
    comes in front of the command."""
    process = subprocess.Popen(
        [*prefix, *command(model, *flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    lines: list[str] = []
    found: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_pump, args=(process, lines, found), daemon=True)
    reader.start()
    try:
        url = found.get(timeout=START_SECONDS)
        if url is None:
            raise AssertionError("the server ended before it listened:\n" + "\n".join(lines))
        yield Server(url, process, lines)
    finally:
        process.kill()
        process.wait(timeout=30)
        reader.join(timeout=5)
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def serving(model: Path | str, *flags: str) -> Iterator[Server]:
    """A server that listens; it is ended, and its end checked, on the way out."""
    with serving_until_killed(model, *flags) as server:
        try:
            yield server
        finally:
            server.process.send_signal(signal.SIGTERM)
            status = server.process.wait(timeout=40)
    assert status == 0, "\n".join(server.lines)


def refused(model: Path | str, *flags: str) -> subprocess.CompletedProcess[str]:
    """A start that must fail by itself: its exit status and what it printed."""
    return subprocess.run(
        command(model, *flags),
        capture_output=True,
        text=True,
        env=environment(),
        timeout=START_SECONDS,
        check=False,
    )
