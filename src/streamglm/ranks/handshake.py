"""How server and rank of two hosts prove to each other that they have the same token.

Owns the few bytes before the first frame. Knows no frames. The token itself never crosses the wire:
each side sends 32 random bytes, and answers with an HMAC-SHA256 of both sides' bytes under the
token. Invariant: nothing of a stream is read as a frame before both proofs were compared, in
constant time.

    server -> rank   magic, version of the wire, 32 bytes
    rank -> server   magic, version of the wire, number of the rank, 32 bytes, proof of the rank
    server -> rank   length of a refusal or 0, proof of the server; then the refusal
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import struct

from streamglm.errors import StartError
from streamglm.ranks.wire import VERSION

_MAGIC = b"SGLM"
_OFFER = struct.Struct("<4sH32s")
_ANSWER = struct.Struct("<4sHI32s32s")
_VERDICT = struct.Struct("<H32s")
_NONE = bytes(32)
_MOST = 512
"""Bytes of a refusal."""


class Refused(Exception):
    """Who dialled is not let in. `other_version`: it speaks another version of the wire."""

    def __init__(self, line: str, *, other_version: bool = False) -> None:
        super().__init__(line)
        self.line = line
        self.other_version = other_version


def knock(sock: socket.socket, token: bytes, rank: int) -> None:
    """A rank's side, over a connected socket. Raises `StartError` with the server's line."""
    magic, version, theirs = _OFFER.unpack(_exactly(sock, _OFFER.size))
    if magic != _MAGIC:
        raise StartError("whoever listens there is no streamglm server: --master is its address")
    ours = os.urandom(32)
    proof = _proof(token, b"rank", theirs + ours)
    sock.sendall(_ANSWER.pack(_MAGIC, VERSION, rank, ours, proof))
    length, proof = _VERDICT.unpack(_exactly(sock, _VERDICT.size))
    if length:
        raise StartError(_exactly(sock, min(length, _MOST)).decode(errors="replace"))
    if version != VERSION:
        raise StartError(f"wire: the server: {version}, rank {rank}: {VERSION}")
    if not hmac.compare_digest(proof, _proof(token, b"server", theirs + ours)):
        raise StartError("the server has another token: --rank-token-file, STREAMGLM_RANK_TOKEN")


async def admit(sock: socket.socket, token: bytes) -> int:
    """The server's side: the number that the rank gives. Raises `Refused`, which it has told."""
    loop, ours = asyncio.get_running_loop(), os.urandom(32)
    await loop.sock_sendall(sock, _OFFER.pack(_MAGIC, VERSION, ours))
    raw = await _exactly_from(sock, _ANSWER.size)
    magic, version, rank, theirs, proof = _ANSWER.unpack(raw)
    right = hmac.compare_digest(proof, _proof(token, b"rank", ours + theirs))
    if magic != _MAGIC or not right:
        refused = Refused(f"rank {rank} has another token than the server")
    elif version != VERSION:
        refused = Refused(
            f"wire: the server: {VERSION}, rank {rank}: {version}", other_version=True
        )
    else:
        verdict = _VERDICT.pack(0, _proof(token, b"server", ours + theirs))
        await loop.sock_sendall(sock, verdict)
        return int(rank)
    text = refused.line.encode()[:_MOST]
    await loop.sock_sendall(sock, _VERDICT.pack(len(text), _NONE) + text)
    raise refused


def _proof(token: bytes, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(token, side + nonces, "sha256")


def _exactly(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = sock.recv(count - len(found))
        if not more:
            raise StartError("the server closed the stream before it let this rank in")
        found += more
    return found


async def _exactly_from(sock: socket.socket, count: int) -> bytes:
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < count:
        more = await loop.sock_recv(sock, count - len(found))
        if not more:
            raise Refused("a stream ended before it had said who it is")
        found += more
    return found
