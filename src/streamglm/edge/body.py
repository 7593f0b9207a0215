"""Request bodies: bytes as they arrive -> one JSON object.

Owns the size limit, the media type and what is JSON. Knows no fields. Invariant: whatever the
bytes are, the outcome is an object or a named refusal, within bounded memory; where a text holds
half a surrogate pair the refusal names the field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio.to_thread
import orjson
from starlette.datastructures import Headers
from starlette.types import Receive

from streamglm.edge.fields import clip
from streamglm.errors import BodyTooLarge, InvalidJSON, InvalidRequest, UnsupportedMediaType

JSON_TYPES = ("", "application/json", "text/plain")


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises `UnsupportedMediaType` and `BodyTooLarge` before more than `limit`
    bytes are held, and `ClientGone`."""
    _check_type(headers)
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def gone(receive: Receive) -> None:
    """Returns when the client has closed the connection. For after `read_body`."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def parse_object(raw: bytes) -> dict[str, Any]:
    """The object in `raw`. Raises `InvalidJSON`, and `InvalidRequest` for half a surrogate pair."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if b"\\u" in raw and (path := await anyio.to_thread.run_sync(_half_pair, raw)):
            raise InvalidRequest(
                f"`{path}` holds half a surrogate pair, which is not text.", param=path
            ) from None
        where = f"line {error.lineno}, column {error.colno}" if raw else "it is empty"
        raise InvalidJSON(f"The body is not JSON in UTF-8 ({where}).") from None
    if not isinstance(body, dict):
        raise InvalidJSON("The body is JSON, but not an object.")
    return body


def _check_type(headers: Headers) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in JSON_TYPES:
        raise UnsupportedMediaType(
            f"The body is declared as `{clip(kind)}`; send `Content-Type: application/json`."
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("Compressed bodies are not read; send the JSON as it is.")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body passes the limit of {limit >> 20} MiB.")


def _half_pair(raw: bytes) -> str | None:
    """The path of the first text with half a surrogate pair, if that is what is wrong."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    path = _first_half(value)
    return None if path is None else clip(path)


def _first_half(root: Any) -> str | None:
    """Depth first without recursion; a path is put together only once it is wanted."""
    labels: list[str] = []
    walks = [iter([("", root)])]
    while walks:
        for label, value in walks[-1]:
            if isinstance(value, str) and not _whole(value):
                return "".join([*labels, label]).removeprefix(".")
            if isinstance(value, list | dict):
                labels.append(label)
                walks.append(_items(value))
                break
        else:
            walks.pop()
            del labels[len(walks) - 1 :]
    return None


def _items(value: list[Any] | dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(label, item) of a list; of an object each key comes as an item too."""
    if isinstance(value, list):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    else:
        for key, item in value.items():
            yield f".{key}", key
            yield f".{key}", item


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
