"""The chat's side of HTTP: what a running server streams, as pieces of text.

Owns the connection, the framing of server-sent events and the wording of what went wrong.
Knows no history and no terminal. Invariant: whatever fails becomes one `ChatError`, and a closed
iterator is a closed connection, by which the server knows that nobody reads on.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast
from urllib.parse import urlsplit

import httpx


class ChatError(Exception):
    """Something went wrong; the message is one line for a person and says what to do."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text as it comes: either part may be empty."""

    reasoning: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """What the server says of a whole reply. Counts are tokens."""

    finish: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    token_sha: str


def sse_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines of a stream whose chunks may be cut anywhere.

    Only LF and CR LF end a line: U+2028 and its like are text here, unlike in `str.splitlines`.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()


def sse_objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """JSON objects of the `data` lines, up to `[DONE]`; comments are passed over.

    Raises `ChatError` for an error object, and when the stream ends without `[DONE]`.
    """
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise ChatError(f"the reply failed: {_error_text(event)}")
        yield event
    raise ChatError("the connection closed before the reply ended; /retry asks again")


def reply_events(objects: Iterable[dict[str, Any]]) -> Generator[Piece | Ended, None, None]:
    """Pieces of a streamed chat completion, then what it cost."""
    finish, usage, extra = "", cast("dict[str, Any]", {}), cast("dict[str, Any]", {})
    for event in objects:
        usage = event.get("usage") or usage
        extra = event.get("streamglm") or extra
        for choice in event.get("choices") or ():
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta") or {}
            piece = Piece(delta.get("reasoning_content") or "", delta.get("content") or "")
            if piece != Piece():
                yield piece
    details = usage.get("prompt_tokens_details") or {}
    yield Ended(
        finish=finish,
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=details.get("cached_tokens", 0),
        completion_tokens=usage.get("completion_tokens", 0),
        token_sha=extra.get("token_sha", ""),
    )


def _error_text(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        code = error.get("code") or error.get("type")
        return f"{error.get('message')} ({code})"
    return str(error or body)


class Server:
    """A running server, over HTTP. A context manager; closing it closes every connection."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ChatError(f"--url {url}: not an address; it may be http://HOST:PORT")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/v1")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            # The server sends at least a comment every 5 s, also while a request waits.
            timeout=httpx.Timeout(10.0, read=60.0),
            # A proxy of the environment cannot reach this machine's own loopback.
            trust_env=parts.hostname not in ("127.0.0.1", "localhost", "::1"),
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def model(self) -> tuple[str, int]:
        """The served model's name and its window in tokens. Raises `ChatError`."""
        try:
            response = self._http.get("/v1/models")
            self._check(response)
            entry = response.json()["data"][0]
            return str(entry["id"]), int(entry["context_length"])
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        except (ValueError, KeyError, IndexError, TypeError):
            raise ChatError(f"{self.url} answers, but not as a streamglm server") from None

    def reply(self, body: dict[str, Any]) -> Generator[Piece | Ended, None, None]:
        """Stream one reply. Closing the iterator closes the connection, which cancels the reply.
        Raises `ChatError`."""
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                self._check(response)
                yield from reply_events(sse_objects(sse_lines(response.iter_bytes())))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        except ValueError:
            raise ChatError(f"{self.url} sent an event that is not JSON") from None

    def _check(self, response: httpx.Response) -> None:
        if response.status_code == 200:
            return
        try:
            text = _error_text(response.json())
        except ValueError:
            text = response.reason_phrase
        hint = "; give the key with --api-key" if response.status_code == 401 else ""
        raise ChatError(f"{self.url} answered {response.status_code}: {text}{hint}")

    def _unreachable(self, error: httpx.HTTPError) -> ChatError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return ChatError(
                f"no server at {self.url}: start one with `streamglm serve`, or give --url"
            )
        if isinstance(error, httpx.TimeoutException):
            return ChatError(f"{self.url} sent nothing for a minute; its log may say why")
        return ChatError(f"the connection to {self.url} broke ({type(error).__name__})")
