"""Files: whether two folders hold the same checkpoint, at once and for certain.

Owns the digests. Reads headers, or every byte; imports no torch. Invariant: equal digests of whole
files mean equal bytes, equal quick ones equal texts, names, shapes, formats and sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

import xxhash

from streamglm.weights.headers import catalogue

TEXTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
"""What a checkpoint is beside its weights."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_BAND_BYTES = 16 << 20
_READERS = 4


def quick(folder: Path) -> dict[str, str]:
    """By file name: a digest of each text, and of each weight file its size and a digest of its
    header. Raises `CheckpointError`."""
    found = {}
    for name in TEXTS:
        if (folder / name).is_file():
            found[name] = _digest((folder / name).read_bytes())
    for file in _weights(folder):
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = opened.read(length)
        found[file.name] = f"{file.stat().st_size} bytes, header {_digest(header)}"
    return found


def whole(folder: Path) -> dict[str, str]:
    """By file name: a digest of all bytes of each weight file, several files at a time."""
    files = list(_weights(folder))
    with ThreadPoolExecutor(_READERS) as readers:
        return dict(zip((file.name for file in files), readers.map(_bytes_of, files), strict=True))


def place(folder: Path) -> str:
    """Equal for two folders whose weights are the very same files of the same machine."""
    parts = [_BOOT.read_text().strip() if _BOOT.exists() else str(folder)]
    for file in _weights(folder):
        found = file.stat()
        parts.append(f"{found.st_dev} {found.st_ino} {found.st_mtime_ns}")
    return _digest("\n".join(parts).encode())


def _weights(folder: Path) -> Iterator[Path]:
    """The folder's weight files, each once, by name."""
    yield from sorted({stored.file for stored in catalogue(folder).tensors.values()})


def _bytes_of(file: Path) -> str:
    digest = xxhash.xxh3_128()
    with file.open("rb", buffering=0) as opened:
        while band := opened.read(_BAND_BYTES):
            digest.update(band)
    return digest.hexdigest()


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=8).hexdigest()
