"""What the server and its compiling process say to each other, on the process's pipes.

Owns the messages and their frame: four bytes of length, little-endian, then msgpack. Pure. One
question at a time, so that nothing is numbered.
"""

from __future__ import annotations

import struct

import msgspec

LENGTH = struct.Struct("<I")


class Compile(msgspec.Struct, frozen=True, array_like=True):
    """To the process: `form` and `source` of the content, empty for none, and the structure of
    the calls, empty for none."""

    form: str
    source: str
    calls: str


class Compiled(msgspec.Struct, frozen=True, array_like=True):
    """From the process: the grammar, or else what is wrong with it in a line. The first one comes
    unasked and says that the process is ready."""

    grammar: bytes = b""
    refusal: str = ""


def framed(message: Compile | Compiled) -> bytes:
    """The bytes of a message."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
