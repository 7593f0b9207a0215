"""A client that leaves: its work stops within a prompt chunk, its pages come back (CO-13)."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from urllib.parse import urlsplit

import psutil
import pytest

from support.server import Server, serving

LONG = 24_000  # tokens; its prompt alone takes many seconds, so it cannot end by itself first


def open_stream(server: Server, prompt: list[int], max_tokens: int = 2000) -> socket.socket:
    """A streamed completion whose first byte has arrived."""
    parts = urlsplit(server.url)
    asked = {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
    body = json.dumps(asked)
    raw = socket.create_connection((parts.hostname, parts.port), timeout=20)
    raw.sendall(
        f"POST /v1/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    assert raw.recv(15) == b"HTTP/1.1 200 OK"
    return raw


def long_prompt() -> list[int]:
    draw = random.Random(1)
    return [draw.randrange(300) for _ in range(LONG)]


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
def test_leaving_during_a_long_prompt_frees_the_server(nano: Server, reset: bool) -> None:
    """Fails when cancels are taken only at a prompt's end: the probe then waits for it."""
    nano.wait_idle()
    raw = open_stream(nano, long_prompt())
    deadline = time.monotonic() + 10
    while nano.metric("streamglm_requests_running") == 0:
        assert time.monotonic() < deadline
    if reset:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()
    nano.complete("probe", max_tokens=4)
    deadline = time.monotonic() + 2
    while not nano.idle():
        assert time.monotonic() < deadline, "not idle 2 s after the probe"
    done = nano.metric("streamglm_prompt_tokens_total")
    nano.complete("probe", max_tokens=4)
    assert nano.metric("streamglm_prompt_tokens_total") - done < 300  # the long prompt is gone


def test_leaving_in_the_middle_of_a_reply_frees_the_lane(nano: Server) -> None:
    nano.wait_idle()
    raw = open_stream(nano, [1, 2, 3])
    seen = b""
    while seen.count(b"data:") < 3:
        seen += raw.recv(4096)
    raw.close()
    nano.wait_idle(seconds=3)


def test_sigterm_lets_a_running_reply_finish_and_leaves_no_process() -> None:
    """Fails when the signal ends the process itself: the reply is cut, or a rank is left."""
    with serving("nano") as server:
        family = psutil.Process(server.process.pid).children(recursive=True)
        with open_stream(server, [1, 2, 3], max_tokens=300) as raw:
            seen = b""
            while seen.count(b"data:") < 3:
                seen += raw.recv(4096)
            server.process.terminate()
            while part := raw.recv(1 << 16):
                seen += part
    assert b'"finish_reason":"length"' in seen
    assert b"data: [DONE]" in seen
    assert family
    _, alive = psutil.wait_procs(family, timeout=5)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
