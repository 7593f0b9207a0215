"""The checkpoint's tokenizer: text to ids, and each id to the bytes it stands for.

Owns `tokenizer.json` once it is read. Knows no chat layout and no stream; text that arrives id by
id is made in `text/detokenize.py`. Invariant: `decode(encode(text)) == text` for any text without
lone surrogates, because every piece is bytes and joined bytes are decoded once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import tokenizers
from tokenizers import decoders

from streamglm.errors import CheckpointError

FILE = "tokenizer.json"


def byte_alphabet() -> dict[str, int]:
    """The character that byte-level BPE writes for each byte, as character -> byte.

    A byte that prints in Latin-1 stands for itself; the 68 others take, in order, the characters
    from U+0100 on.
    """
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printing]
    alphabet = {chr(byte): byte for byte in printing}
    return alphabet | {chr(0x100 + rank): byte for rank, byte in enumerate(hidden)}


class Tokenizer:
    """A byte-level BPE tokenizer. Safe to use from several threads."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        """Raises `CheckpointError` when the pieces are not byte-level, since text could then not
        be made id by id."""
        if not isinstance(backend.decoder, decoders.ByteLevel):
            raise CheckpointError(f"{FILE}: only byte-level BPE is served")
        backend.no_padding()
        backend.no_truncation()
        added = backend.get_added_tokens_decoder()
        self._backend = backend
        self._alphabet = byte_alphabet()
        self._added = {token: entry.content for token, entry in added.items()}
        self.special_ids = frozenset(token for token, entry in added.items() if entry.special)
        """Ids that never become visible text: role and end tokens. `<think>` is not among them."""
        self.size = 1 + max(backend.get_vocab(with_added_tokens=True).values())
        """One more than the highest id."""
        self._pieces: list[bytes | None] = [None] * self.size
        self._said: list[bytes | None] = [None] * self.size

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer | None:
        """The folder's tokenizer, or None where it ships none. Raises `CheckpointError`."""
        file = folder / FILE
        if not file.exists():
            return None
        try:
            backend = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{file.name}: cannot be read ({error})") from None
        return cls(backend)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, nothing added before or after. Special tokens that are spelled out in
        the text become their ids.

        Runs without the interpreter's lock, so that a worker thread does not hold up the loop.
        """
        return self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def piece(self, token: int) -> bytes:
        """The bytes that `token` stands for; b"" for an id that the vocabulary leaves unused."""
        if token >= self.size:
            return b""
        piece = self._pieces[token]
        if piece is None:
            piece = self._pieces[token] = self._spell(token)
        return piece

    def said(self, token: int) -> bytes:
        """`piece`, but b"" for special tokens: what a reader sees of a reply."""
        if token >= self.size:
            return b""
        said = self._said[token]
        if said is None:
            said = self._said[token] = b"" if token in self.special_ids else self.piece(token)
        return said

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens spelled out; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.piece, ids)).decode("utf-8", "replace")

    def _spell(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        spelled = self._backend.id_to_token(token) or ""
        return bytes(self._alphabet[character] for character in spelled)
