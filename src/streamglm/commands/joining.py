"""What a host says of itself before ranks start together, and the token that they share.

Owns which settings must be equal on every host, and the versions and files that are compared. Knows
no sockets. Imports no torch: versions are read from what is installed. Invariant: a setting that is
not listed as a host's own is compared.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import streamglm
from streamglm import config
from streamglm.commands.checkpoint import Checkpoint
from streamglm.config import Settings
from streamglm.errors import SettingError
from streamglm.ranks.wire import VERSION, Join
from streamglm.weights import files

OWN = frozenset(
    {
        *("model", "host", "port", "model_name", "max_queue", "max_body_mib"),
        *("nnodes", "node_rank", "master", "rank_token", "rank_token_file"),
        *("rank_wait_seconds", "rank_silence_seconds", "threads"),
        *("slow_client_seconds", "api_key", "api_key_file", "cors_origin"),
        *("log_level", "log_format", "drain_seconds", "decode_share", "prefix_wait_seconds"),
        *("learn_conversations", "learn_gib"),
    }
)
"""Settings that may differ from host to host, or that ranks know nothing of. Weights are compared
file by file, so that a folder may lie anywhere."""
TOKEN_LEAST = 16
"""Characters of a token."""


def join_of(settings: Settings, checkpoint: Checkpoint, rank: int, room: int) -> Join:
    """What rank `rank` of this host is; `room` bytes are its own. Raises `CheckpointError`."""
    return Join(
        rank=rank,
        versions={
            "streamglm": streamglm.__version__,
            "wire": str(VERSION),
            "torch": _installed("torch"),
            "numpy": _installed("numpy"),
        },
        settings={
            config.flag(field.name): config.default_text(
                getattr(settings, field.name), field.metadata["kind"]
            )
            for field in config.FIELDS
            if field.name not in OWN
        },
        files=files.quick(checkpoint.folder),
        place=files.place(checkpoint.folder),
        room=room,
    )


def token_of(settings: Settings) -> bytes:
    """The secret of server and ranks. Raises `SettingError` where there is none, or a short one."""
    where, token = config.flag("rank_token"), settings.rank_token
    if settings.rank_token_file is not None:
        where = f"{config.flag('rank_token_file')} {settings.rank_token_file}"
        try:
            lines = Path(settings.rank_token_file).read_text().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"{where}: cannot be read ({error})") from None
        token = lines[0].strip()
    if token is None:
        raise SettingError(
            "--master needs a secret that every rank has: name a file of it with "
            f"--rank-token-file, or set {config.variable('rank_token')}"
        )
    if len(token) < TOKEN_LEAST:
        raise SettingError(
            f"{where}: the secret has {len(token)} characters, and {TOKEN_LEAST} are the least; "
            "`openssl rand -hex 32` makes one"
        )
    return token.encode()


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
