"""Every setting once: name, default, help. The sole reader of flags, environment and TOML.

Owns the table and the order in which sources win: a flag, then `STREAMGLM_*`, then the TOML file
of `--config`, then the default. Knows nothing of what a setting does. `--help`,
`docs/configuration.md` and the docs test are generated from the fields here; an unknown key is an
error, and there is no other environment switch in the package.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from streamglm.errors import SettingError
from streamglm.kinds import (
    FOLDER,
    LEARN_FOLDER,
    SWITCH,
    TEXT,
    Kind,
    auto,
    gib,
    host_and_port,
    one_of,
    patience,
    seconds,
    share,
    whole,
)


def setting(default: object, kind: Kind, help_text: str) -> Any:
    """A field of `Settings`: its default, how its text is read, and its help."""
    return dataclasses.field(default=default, metadata={"kind": kind, "help": help_text})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of `streamglm serve`, each with its help. None means auto or unset."""

    model: str = setting(
        "nano",
        TEXT,
        "a checkpoint folder, `nano`, the built-in model, or `random:glm-5.3-flash`, its real "
        "shapes with random weights, for measuring",
    )
    layers: int | None = setting(
        None,
        Kind("1 or more, or all", auto(whole(1), "all")),
        "of a `random:` model: its first so many layers",
    )
    expert_format: str = setting(
        "bf16",
        Kind("bf16, fp8 or nvfp4", one_of("bf16", "fp8", "nvfp4")),
        "of a `random:` model: how its routed experts are held",
    )
    host: str = setting("127.0.0.1", TEXT, "address to listen on")
    port: int = setting(
        8080, Kind("0 to 65535", whole(0, 65535)), "port to listen on; 0 picks one and prints it"
    )
    model_name: str | None = setting(
        None, TEXT, "the model's name in `/v1/models`; default is the folder's name"
    )
    device: str = setting(
        "auto",
        Kind("auto, cuda or cpu", one_of("auto", "cuda", "cpu")),
        "where the ranks compute; auto is GPUs where there is one for each rank",
    )
    ranks: int = setting(
        1,
        Kind("1 or more", whole(1)),
        "processes that compute one model together, on GPUs each on its own",
    )
    nnodes: int = setting(
        1, Kind("1 or more", whole(1)), "hosts that start ranks, each its share of them"
    )
    node_rank: int = setting(
        0,
        Kind("0 or more", whole(0)),
        "which of `--nnodes` hosts this is; host 0 serves, the others only start their ranks",
    )
    master: str | None = setting(
        None,
        Kind("HOST:PORT", host_and_port),
        "where the server waits for ranks that it does not start itself: those of the other hosts, "
        "and without `--nnodes` all of them",
    )
    rank_token: str | None = setting(
        None,
        TEXT,
        "secret that server and ranks share where they meet over `--master`; better a variable or "
        "a file than a flag, which other users of the host can read",
    )
    rank_token_file: str | None = setting(None, TEXT, "file whose first line is that secret")
    rank_wait_seconds: float = setting(
        45.0,
        Kind("0.1 to 86400 seconds", seconds),
        "how long a start waits for ranks that it does not start itself",
    )
    rank_silence_seconds: float = setting(
        15.0,
        Kind("0.1 to 86400 seconds", seconds),
        "a rank that has given no sign of life for this long is lost",
    )
    context: int | None = setting(
        None,
        Kind("tokens or auto", auto(whole(2))),
        "window of a stream, in tokens; auto is the model's own length, or what memory holds",
    )
    parallel: int | None = setting(
        None, Kind("1 to 64, or auto", auto(whole(1, 64))), "lanes: replies computed side by side"
    )
    prompt_cache_gib: float | None = setting(
        None,
        Kind("GiB or auto", auto(gib)),
        "budget of kept prompt states; named, it comes before every window but one; auto is what "
        "windows leave, at most 16 and on the CPU 1; 0 keeps none",
    )
    kv_pages: str = setting(
        "auto",
        Kind("auto or off", one_of("auto", "off")),
        "auto takes pages from one pool; off gives every lane a whole window of them",
    )
    kv_share: int | None = setting(
        None,
        Kind("0 to 64, or auto", auto(whole(0))),
        "slots of kept states that share the pool's pages; auto is 4 a lane, at most 64; "
        "0 copies their rows into the prompt cache",
    )
    kv_split: bool = setting(
        False,
        SWITCH,
        "latent rows on their owner alone: of W ranks each holds about 1/W of them, and the pool "
        "nearly W times the tokens",
    )
    kv_cache: str = setting(
        "auto",
        Kind("auto, bf16, fp32 or fp8", one_of("auto", "bf16", "fp32", "fp8")),
        "how pages hold rows; auto is bf16 on CUDA and fp32 on the CPU; fp8 is 512 e4m3 values "
        "and one float32 scale a row",
    )
    host_cache_gib: float = setting(
        0.0,
        Kind("GiB", gib),
        "host memory for kept states that the device has no room for",
    )
    learn_conversations: str | None = setting(
        None,
        FOLDER,
        f"keep prompt states on disk, in this folder, so that they survive eviction and restarts; "
        f"without a value in `{LEARN_FOLDER}`",
    )
    learn_gib: float = setting(
        32.0, Kind("GiB", gib), "the most that the folder of `--learn-conversations` may hold"
    )
    prefix_wait_seconds: float = setting(
        60.0,
        Kind("0 to 86400 seconds", patience),
        "how long a request waits at most for the beginning of its prompt while another request "
        "computes the same; 0 is off",
    )
    pool_tokens: int | None = setting(
        None,
        Kind("tokens", whole(1)),
        "upper bound of the page pool, in tokens, for tests and small machines",
    )
    kv_poison: bool = setting(
        False, SWITCH, "fill every page with NaN when it is taken, so that a stray read shows"
    )
    drafts: int | None = setting(
        None,
        Kind("0 to 15, or auto", auto(whole(0, 15))),
        "tokens drafted for each row that is decoded: auto follows what comes true and what it "
        "costs, a number is always as many, 0 is none and needs no memory",
    )
    decode_share: float = setting(
        0.5,
        Kind("0 to 0.95", share),
        "share of the time that running replies keep while prompts fill",
    )
    threads: int | None = setting(
        None,
        Kind("1 or more, or auto", auto(whole(1))),
        "compute threads of a rank on the CPU; auto leaves one core to the server",
    )
    max_queue: int = setting(
        256, Kind("1 or more", whole(1)), "requests that may wait; one more is answered 503"
    )
    max_body_mib: int = setting(
        32,
        Kind("1 or more", whole(1)),
        "largest request body; a larger one is answered 413",
    )
    slow_client_seconds: float = setting(
        60.0,
        Kind("0.1 to 86400 seconds", seconds),
        "a client that takes no byte for this long is dropped, and its pages come back",
    )
    api_key: str | None = setting(None, TEXT, "key that requests must carry")
    api_key_file: str | None = setting(
        None, TEXT, "file with one key a line; any of them is accepted"
    )
    cors_origin: str | None = setting(
        None, TEXT, "browser origins allowed, separated by commas; default is loopback origins"
    )
    log_level: str = setting(
        "info",
        Kind("debug, info, warning or error", one_of("debug", "info", "warning", "error")),
        "how much is logged",
    )
    log_format: str = setting(
        "human",
        Kind("human or json", one_of("human", "json")),
        "how a line of the log is written",
    )
    drain_seconds: float = setting(
        20.0,
        Kind("0 to 86400 seconds", patience),
        "how long replies may go on after SIGTERM or SIGINT; what is left then fails by name",
    )


FIELDS = dataclasses.fields(Settings)
NAMES = frozenset(field.name for field in FIELDS)
ALIASES = {"ranks": ("--tp",)}
"""Other spellings of a flag, as people know them from elsewhere."""


def flag(name: str) -> str:
    """The flag of a setting: `kv_poison` is `--kv-poison`."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """The environment variable of a setting: `kv_poison` is `STREAMGLM_KV_POISON`."""
    return "STREAMGLM_" + name.upper()


def default_text(value: object, kind: Kind) -> str:
    """A default as `--help` and the docs show it, and as a user could write it."""
    if value is None and kind is FOLDER:
        return "off"
    if value is None:
        return next((word for word in ("auto", "all") if word in kind.shape), "none")
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def add_arguments(parser: argparse.ArgumentParser, names: Collection[str] = NAMES) -> None:
    """One flag a setting of `names`, and MODEL as the positional; values stay text until
    `resolve`."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help=FIELDS[0].metadata["help"])
    parser.add_argument("--config", metavar="FILE", help="TOML file with the same names")
    for field in FIELDS[1:]:
        if field.name not in names:
            continue
        kind: Kind = field.metadata["kind"]
        default = default_text(field.default, kind)
        text = f"{field.metadata['help']} ({kind.shape}; default {default})"
        options: dict[str, Any] = {"metavar": field.name.rpartition("_")[2].upper()}
        if kind in (SWITCH, FOLDER):  # `--kv-poison` alone means on
            options |= {"nargs": "?", "const": "on"}
        parser.add_argument(
            flag(field.name),
            *ALIASES.get(field.name, ()),
            dest=field.name,
            default=None,
            help=text.replace("%", "%%"),
            **options,
        )


def resolve(
    arguments: Mapping[str, str | None],
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings from flags, `STREAMGLM_*` variables, the TOML file and defaults, in that order.

    A blank variable counts as unset. Raises `SettingError` naming the setting, the value it has,
    the source it came from and the values it may have.
    """
    known = {field.name for field in FIELDS}
    path = arguments.get("config") or environment.get("STREAMGLM_CONFIG")
    table = _toml(Path(path)) if path else {}
    for name in table:
        if name not in known:
            raise SettingError(f"{path}: unknown setting {name!r}")
    for name in environment:
        if name.startswith("STREAMGLM_") and name != "STREAMGLM_CONFIG":
            if name.removeprefix("STREAMGLM_").lower() not in known:
                raise SettingError(f"environment: unknown setting {name}")
    values: dict[str, Any] = {}
    for field in FIELDS:
        sources = (
            ("MODEL" if field is FIELDS[0] else flag(field.name), arguments.get(field.name)),
            (variable(field.name), environment.get(variable(field.name)) or None),
            (f"{path}: {field.name}", table.get(field.name)),
        )
        for source, raw in sources:
            if raw is not None:
                values[field.name] = _parse(field.metadata["kind"], source, raw)
                break
    return Settings(**values)


def _parse(kind: Kind, source: str, raw: str) -> object:
    try:
        return kind.parse(raw)
    except ValueError:
        raise SettingError(f"{source} is {raw!r}; it may be {kind.shape}") from None


def _toml(path: Path) -> dict[str, str]:
    """The file's values as text, so that every source is read by the same parser."""
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingError(f"--config {path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"--config {path}: not TOML ({error})") from None
    values: dict[str, str] = {}
    for name, value in raw.items():
        if isinstance(value, bool):
            values[name] = "on" if value else "off"
        elif isinstance(value, (str, int, float)):
            values[name] = str(value)
        else:
            raise SettingError(f"{path}: {name} is {type(value).__name__}; it may be a plain value")
    return values


def parse(argv: Sequence[str], prog: str = "streamglm serve") -> Settings:
    """`resolve` over a command line, for tests and for embedding."""
    parser = argparse.ArgumentParser(prog=prog)
    add_arguments(parser)
    return resolve(cast("Mapping[str, str | None]", vars(parser.parse_args(argv))))
