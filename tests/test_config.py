"""Settings: which source wins, and what is said about a value that cannot be served.

Environments are given as mappings, so no test touches the process's own.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

from streamglm import config
from streamglm.config import FIELDS, Settings, resolve
from streamglm.errors import SettingError
from streamglm.kinds import Kind


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "streamglm.toml"


def flags(*argv: str) -> dict[str, str | None]:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return vars(parser.parse_args(argv))


# -- which source wins


def test_defaults_are_those_of_the_table() -> None:
    assert resolve({}, {}) == Settings()


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(toml: Path) -> None:
    toml.write_text("port = 1\nmax_queue = 1\ncontext = 8\n")
    settings = resolve(
        flags("--config", str(toml), "--port", "3"),
        {"STREAMGLM_PORT": "2", "STREAMGLM_MAX_QUEUE": "2"},
    )
    assert (settings.port, settings.max_queue, settings.context) == (3, 2, 8)
    assert settings.host == "127.0.0.1"


def test_a_blank_variable_counts_as_unset(toml: Path) -> None:
    toml.write_text("port = 1")
    assert resolve(flags("--config", str(toml)), {"STREAMGLM_PORT": ""}).port == 1


def test_a_default_may_be_given_in_words() -> None:
    """`--context auto` is the default itself, so that it can undo a file's value."""
    assert resolve(flags("--context", "auto"), {"STREAMGLM_CONTEXT": "64"}).context is None


def test_the_file_may_be_named_by_a_variable(toml: Path) -> None:
    toml.write_text("port = 1")
    assert resolve({}, {"STREAMGLM_CONFIG": str(toml)}).port == 1


def test_variables_of_others_are_none_of_ours() -> None:
    assert resolve({}, {"PORT": "7", "XSTREAMGLM_PORT": "7"}) == Settings()


# -- unknown names


def test_an_unknown_key_of_the_file_is_an_error(toml: Path) -> None:
    toml.write_text("prot = 1")
    with pytest.raises(SettingError, match="unknown setting 'prot'"):
        resolve(flags("--config", str(toml)), {})


def test_an_unknown_variable_is_an_error() -> None:
    with pytest.raises(SettingError, match="unknown setting STREAMGLM_PROT"):
        resolve({}, {"STREAMGLM_PROT": "1"})


def test_an_unknown_flag_is_argparses_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        flags("--prot", "1")
    assert "--prot" in capsys.readouterr().err


# -- values

BAD = {
    "layers": "0",
    "expert_format": "int4",
    "learn_conversations": "",
    "learn_gib": "-1",
    "model": "",
    "host": "",
    "port": "65536",
    "model_name": "",
    "device": "tpu",
    "ranks": "0",
    "nnodes": "0",
    "node_rank": "-1",
    "master": "host",
    "rank_token": "",
    "rank_token_file": "",
    "rank_wait_seconds": "0",
    "rank_silence_seconds": "0",
    "context": "1",
    "parallel": "65",
    "pool_tokens": "0",
    "prompt_cache_gib": "-1",
    "kv_pages": "on",
    "kv_share": "-1",
    "kv_cache": "int8",
    "host_cache_gib": "nan",
    "prefix_wait_seconds": "-1",
    "kv_poison": "perhaps",
    "kv_split": "half",
    "drafts": "16",
    "decode_share": "0.96",
    "threads": "0",
    "max_queue": "many",
    "max_body_mib": "0",
    "slow_client_seconds": "nan",
    "api_key": "",
    "api_key_file": "",
    "cors_origin": "",
    "log_level": "loud",
    "log_format": "xml",
    "drain_seconds": "-1",
}


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_a_bad_value_names_setting_value_and_what_it_may_be(name: str) -> None:
    """A setting that is added without a line in `BAD` fails here."""
    kind: Kind = next(field for field in FIELDS if field.name == name).metadata["kind"]
    with pytest.raises(SettingError) as error:
        resolve({name: BAD[name]}, {})
    source = "MODEL" if name == "model" else config.flag(name)
    for part in (source, repr(BAD[name]), kind.shape):
        assert part in error.value.message


def test_a_bad_value_names_the_source_it_came_from(toml: Path) -> None:
    with pytest.raises(SettingError, match=r"^STREAMGLM_PORT is 'x'; it may be 0 to 65535$"):
        resolve({}, {"STREAMGLM_PORT": "x"})
    toml.write_text('port = "x"')
    with pytest.raises(SettingError, match=r"streamglm.toml: port is 'x'"):
        resolve(flags("--config", str(toml)), {})


@pytest.mark.parametrize(
    ("text", "value"), [("on", True), ("off", False), ("1", True), ("0", False), ("true", True)]
)
def test_a_switch_reads_its_words(text: str, value: bool) -> None:
    assert resolve({"kv_poison": text}, {}).kv_poison is value


def test_a_switch_alone_means_on() -> None:
    assert resolve(flags("--kv-poison"), {}).kv_poison is True


def test_the_model_is_the_positional() -> None:
    assert resolve(flags("/some/folder"), {}).model == "/some/folder"


# -- the file


def test_the_file_holds_plain_values_of_any_spelling(toml: Path) -> None:
    toml.write_text('kv_poison = true\ndecode_share = 0.25\nport = 1\nhost = "::1"\n')
    settings = resolve(flags("--config", str(toml)), {})
    assert (settings.kv_poison, settings.decode_share) == (True, 0.25)
    assert (settings.port, settings.host) == (1, "::1")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("port = [1]", "port is list"),
        ("port =", "not TOML"),
        ("[serve]\nport = 1", "serve is dict"),
    ],
    ids=["list", "cut", "table"],
)
def test_a_file_that_is_not_a_flat_table_is_an_error(toml: Path, text: str, what: str) -> None:
    toml.write_text(text)
    with pytest.raises(SettingError, match=what):
        resolve(flags("--config", str(toml)), {})


def test_a_file_that_is_not_text_is_an_error(toml: Path) -> None:
    toml.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="not TOML"):
        resolve(flags("--config", str(toml)), {})


def test_a_file_that_is_missing_is_an_error(toml: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        resolve(flags("--config", str(toml)), {})


# -- the table itself


def test_every_default_is_a_value_that_its_own_text_gives() -> None:
    """A default outside its setting's bounds could not be written down by a user."""
    for field in FIELDS:
        if field.default is not None:
            text = config.default_text(field.default, field.metadata["kind"])
            assert getattr(resolve({field.name: text}, {}), field.name) == field.default


def test_settings_cannot_be_changed_after_the_start() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_every_setting_is_in_the_help() -> None:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    text = parser.format_help()
    assert [field.name for field in FIELDS[1:] if config.flag(field.name) not in text] == []


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ((), None),
        (("--learn-conversations",), "~/.cache/streamglm/conversations"),
        (("--learn-conversations", "on"), "~/.cache/streamglm/conversations"),
        (("--learn-conversations", "off"), None),
        (("--learn-conversations", "~/mine"), "~/mine"),
        (("--learn-conversations", "mine"), "mine"),
    ],
)
def test_conversations_are_learned_where_the_flag_says(
    given: tuple[str, ...], folder: str | None
) -> None:
    found = resolve(flags(*given), {}).learn_conversations
    assert found == (None if folder is None else str(Path(folder).expanduser()))
