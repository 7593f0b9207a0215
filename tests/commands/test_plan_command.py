"""`streamglm plan`: the same plan as the pure function, as a table and as JSON."""

from __future__ import annotations

import argparse
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamglm import nano
from streamglm.commands import plan as command
from streamglm.commands.planning import row_format, spec_of
from streamglm.config import Settings
from streamglm.errors import CheckpointError, SettingError
from streamglm.model.shapes import GLM_5_3_FLASH
from streamglm.pool.carve import GIB, Wants
from streamglm.pool.layout import RowFormat
from streamglm.pool.plan import plan
from support.plans import MILLION, gib, real

KEYS = {
    "page_rows",
    "page_bytes",
    "token_bytes",
    "fixed_bytes",
    "window_pages",
    "windows",
    "pages",
    "pool_tokens",
    "cache_bytes",
    "slots",
    "slots_asked",
    "classes",
    "class_pages",
    "refused",
}


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([GLM_5_3_FLASH, *argv]))


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    """The JSON of a plan of the real shape; refused if and only if the exit status is 2."""
    status = run(*argv, "--json")
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    assert status == (0 if value["refused"] is None else 2)
    return value


def test_the_json_has_every_promised_key(capsys: pytest.CaptureFixture[str]) -> None:
    value = printed(capsys, "--room-gib", "40", "--context", "131072", "--parallel", "4")
    assert KEYS <= value.keys()
    assert (value["page_rows"], value["page_bytes"], value["token_bytes"]) == (
        512,
        6_684_672,
        13_056,
    )


@pytest.mark.parametrize(
    ("flags", "token"),
    [
        (("--kv-cache", "bf16"), 13_056),
        (("--kv-cache", "fp8"), 6_960),
        (("--kv-cache", "fp32"), 26_112),
        (("--device", "cpu"), 26_112),
        (("--ranks", "3"), 13_056),
        (("--ranks", "3", "--kv-split"), 4_864),
        (("--tp", "2", "--kv-split", "on"), 6_912),
    ],
)
def test_bytes_of_a_token_follow_format_and_split(
    flags: tuple[str, ...], token: int, capsys: pytest.CaptureFixture[str]
) -> None:
    value = printed(capsys, "--room-gib", "60", "--context", "131072", "--parallel", "4", *flags)
    assert value["token_bytes"] == token


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("room", [3, 9.5, 15.256, 30, 90])
@pytest.mark.parametrize(
    ("context", "lanes", "cache", "share"),
    [(MILLION, 8, None, None), (262_144, 4, 3, 16), (131_072, 16, 0, None), (4_096, 1, None, 0)],
)
def test_the_json_equals_the_pure_function(
    ranks: int,
    room: float,
    context: int,
    lanes: int,
    cache: int | None,
    share: int | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = "auto" if cache is None else str(cache)
    slots = "auto" if share is None else str(share)
    value = printed(
        capsys,
        *("--room-gib", str(room), "--context", str(context), "--parallel", str(lanes)),
        *("--ranks", str(ranks), "--prompt-cache-gib", named, "--kv-share", slots),
    )
    wants = Wants(context, lanes, None if cache is None else cache * GIB, share)
    one = plan(gib(room), real(ranks), wants)
    assert value["fixed_bytes"] == one.sizes.fixed_bytes
    assert (value["pages"], value["windows"], value["slots"]) == (
        one.pages,
        one.windows,
        one.carved.slots,
    )
    assert (value["cache_bytes"], value["taken_bytes"]) == (one.carved.cache, one.taken)
    name = None if one.refused is None else str(one.refused.name)
    assert (value["refused"] or {}).get("name") == name


def test_a_refusal_is_exit_status_two_and_its_remedy_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = {"--room-gib": "26", "--context": str(MILLION), "--parallel": "8", "--ranks": "2"}
    value = printed(capsys, *(part for pair in asked.items() for part in pair))
    assert value["refused"]["name"] == "NoStream"
    assert value["refused"].keys() == {"name", "message", "remedy"}
    named = re.findall(r"`(--[a-z-]+) (\S+)`", value["refused"]["remedy"])
    assert named
    for flag, text in named:
        tried = asked | {flag: text}
        assert printed(capsys, *(part for pair in tried.items() for part in pair))["pages"]


def test_more_ranks_than_heads_are_refused_and_the_named_number_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--room-gib", "40", "--context", "4096", "--parallel", "2")
    value = printed(capsys, *asked, "--ranks", "65")
    assert value["refused"]["name"] == "TooManyRanks"
    assert "`--ranks 64`" in value["refused"]["remedy"]
    assert printed(capsys, *asked, "--ranks", "64")["refused"] is None


def test_auto_fills_in_window_and_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    value = printed(capsys, "--room-gib", "90")
    assert (value["context"], value["lanes"]) == (MILLION, 16)
    value = printed(capsys, "--room-gib", "3", "--parallel", "4")
    assert value["context"] < MILLION
    assert value["lanes"] == 4


def test_pages_may_be_off_and_states_copied(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--room-gib", "60", "--context", "131072", "--parallel", "4")
    value = printed(capsys, *asked, "--kv-pages", "off")
    assert (value["pages"], value["window_pages"], value["slots_asked"]) == (4 * 256, 256, 0)
    assert printed(capsys, *asked, "--kv-pages", "off", "--kv-share", "3")["refused"]
    assert printed(capsys, *asked, "--kv-share", "0")["kept_bytes"] == 16 * GIB


def test_lanes_are_lowered_only_when_they_were_not_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--room-gib", "14", "--context", str(MILLION))
    assert printed(capsys, *asked)["lanes"] == 7
    assert printed(capsys, *asked, "--parallel", "16")["refused"]["name"] == "NoStream"


def test_host_memory_and_a_bound_of_the_pool_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    value = printed(capsys, "--room-gib", "60", "--host-cache-gib", "2.5", "--pool-tokens", "4096")
    assert value["host_bytes"] == gib(2.5)
    assert value["pages"] == 8
    assert any("less than a window" in line for line in value["warnings"])


def test_the_table_says_what_the_line_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--room-gib", "15.256", "--context", str(MILLION), "--parallel", "8") == 0
    shown = capsys.readouterr().out
    assert "kept states" in shown
    assert "memory: " in shown
    assert run("--room-gib", "1", "--context", str(MILLION), "--parallel", "8") == 2
    shown = " ".join(capsys.readouterr().out.split())
    assert "NoStream" in shown
    assert "Start with `--parallel" in shown


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--prompt-cache-gib", "-1"),
        ("--prompt-cache-gib", "nan"),
        ("--kv-pages", "on"),
        ("--kv-cache", "int8"),
        ("--kv-share", "-1"),
        ("--context", "0"),
        ("--ranks", "0"),
    ],
)
def test_a_value_that_is_none_is_an_error_that_names_the_setting(flag: str, text: str) -> None:
    with pytest.raises(SettingError, match=flag):
        run("--room-gib", "9", flag, text)


@pytest.mark.parametrize("flags", [(), ("--room-gib", "0")])
def test_a_plan_needs_a_room(flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(*flags)
    assert "--r" in capsys.readouterr().err


def test_the_built_in_model_and_a_folder_are_planned_alike() -> None:
    assert spec_of(Settings(model="nano")) == spec_of(Settings(model=str(nano.folder())))
    assert spec_of(Settings(model="nano")).rows.page == 64


def test_a_folder_with_a_config_alone_is_planned_as_its_config_says(tmp_path: Path) -> None:
    config = (nano.folder() / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    spec = replace(spec_of(Settings(model="nano")), eos_ids=())
    assert replace(spec_of(Settings(model=str(tmp_path))), eos_ids=()) == spec


def test_a_checkpoint_without_the_next_token_layer_is_planned_without_it(tmp_path: Path) -> None:
    """Fails when the file's config is believed over the tensors that are there."""
    (tmp_path / "config.json").write_text((nano.folder() / "config.json").read_text())
    weights = {"model.language_model.norm.weight": {"dtype": "F32", "shape": [1]}}
    header = json.dumps({n: one | {"data_offsets": [0, 4]} for n, one in weights.items()}).encode()
    file = len(header).to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "model.safetensors").write_bytes(file)
    assert spec_of(Settings(model=str(tmp_path))).mtp_layers == 0
    assert spec_of(Settings(model="nano")).mtp_layers == 1


def test_a_model_that_is_none_names_what_would_be() -> None:
    with pytest.raises(CheckpointError, match=GLM_5_3_FLASH):
        spec_of(Settings(model="random:glm-5.4"))


def test_rows_default_to_bf16_on_a_gpu_and_float32_on_the_cpu() -> None:
    assert row_format(Settings()) is RowFormat.BF16
    assert row_format(Settings(device="cpu")) is RowFormat.FP32
    assert row_format(Settings(device="cpu", kv_cache="fp8")) is RowFormat.FP8


ROOMS = list(itertools.product((24, 30, 40, 60, 120), (131_072, 262_144, MILLION)))


@pytest.mark.parametrize(("ranks", "low", "high"), [(2, 1.88, 1.90), (3, 2.6, 2.7)])
@pytest.mark.parametrize("share", ["auto", "0"])
def test_a_split_pool_holds_nearly_as_many_times_the_tokens_as_there_are_ranks(
    ranks: int, low: float, high: float, share: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 15 rooms and windows, for the same pool bytes; trash pages counted or not. Fails when
    latent rows are not divided, or a trash page is taken for each lane."""
    for room, context in ROOMS:
        flags = ["--room-gib", str(room), "--context", str(context), "--parallel", "4"]
        flags += ["--ranks", str(ranks), "--kv-share", share]
        whole, split = printed(capsys, *flags), printed(capsys, *flags, "--kv-split")
        assert whole["refused"] is split["refused"] is None
        assert (split["classes"], split["class_pages"] * ranks) == (ranks, split["pages"])
        held = (split["class_pages"] - 1) * ranks * split["page_rows"]
        for tokens in (split["pool_tokens"], held):
            times = tokens / split["pool_bytes"] * whole["pool_bytes"] / whole["pool_tokens"]
            assert low <= times <= high, (room, context, times)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ((), "SplitNeedsRanks"),
        (("--ranks", "2", "--kv-pages", "off"), "SplitWithoutPages"),
        (("--ranks", "2", "--kv-cache", "fp8"), "SplitWithFp8"),
        (("--ranks", "2", "--context", "1048576", "--room-gib", "14"), "ClassTooSmall"),
        (("--ranks", "3", "--context", "1048576", "--room-gib", "14"), "ClassTooSmall"),
    ],
)
def test_a_split_that_cannot_be_is_refused_by_name_and_its_remedy_starts(
    flags: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--room-gib", "20", "--context", "131072", "--parallel", "2")
    asked = (*common, "--prompt-cache-gib", "3", "--kv-split", "--kv-share", "0", *flags)
    value = printed(capsys, *asked)
    assert value["refused"]["name"] == name
    ways = re.findall(r"`(--[a-z-]+) ([^`]+)`", value["refused"]["remedy"])
    assert ways
    for flag, text in ways:
        assert printed(capsys, *asked, flag, text)["refused"] is None, (flag, text)
