"""The files of docs/deploy/: their flags parse, and their metrics exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from streamglm import config
from streamglm.cli import build_parser
from streamglm.config import Settings
from streamglm.metrics import METRICS

DEPLOY = Path(__file__).parent.parent / "docs" / "deploy"


def names() -> set[str]:
    """Every name that Prometheus knows of ours."""
    found = set()
    for metric in METRICS:
        ends = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {metric.name + end for end in ends}
    return found


def settings_of(argv: list[str]) -> Settings:
    """What a command line of ours means; fails on a flag or a value that does not exist."""
    assert argv[0].rpartition("/")[2] == "streamglm"
    return config.resolve(vars(build_parser().parse_args(argv[1:])), {})


def unit() -> str:
    return (DEPLOY / "streamglm.service").read_text()


def unit_value(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.+)$", unit(), re.MULTILINE)
    return str(value)


def instruction(name: str) -> Any:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    return json.loads(re.findall(rf"^{name} (\[.+\])$", text, re.MULTILINE)[-1])


def test_the_unit_starts_a_server_that_asks_for_keys() -> None:
    settings = settings_of(shlex.split(unit_value("ExecStart")))
    assert settings.api_key_file == "${CREDENTIALS_DIRECTORY}/keys"
    assert settings.log_format == "json"


def test_the_unit_waits_longer_than_a_drain() -> None:
    settings = settings_of(shlex.split(unit_value("ExecStart")))
    assert float(unit_value("TimeoutStopSec")) > 2 * settings.drain_seconds


def test_the_container_serves_its_port_and_asks_for_keys() -> None:
    settings = settings_of([*instruction("ENTRYPOINT"), *instruction("CMD")])
    text = (DEPLOY / "Containerfile").read_text()
    assert (settings.host, settings.api_key_file) == ("0.0.0.0", "/run/keys")
    assert f"EXPOSE {settings.port}" in text
    assert f"127.0.0.1:{settings.port}/health" in text


def test_the_container_copies_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (DEPLOY.parent.parent / name).exists(), name


def expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_every_name_of_the_dashboard_is_a_metric() -> None:
    asked = {name for text in expressions() for name in re.findall(r"streamglm_\w+", text)}
    assert asked <= names(), asked - names()


def test_every_label_of_the_dashboard_is_one_of_its_metric() -> None:
    labels = {metric.name: set(metric.labels) | {"le"} for metric in METRICS}
    for text in expressions():
        for label in re.findall(r"by \((\w+)\)", text):
            (name,) = re.findall(r"streamglm_\w+?(?=_bucket|\{)", text)
            assert label in labels[name], text


def test_the_dashboard_shows_every_metric_of_load_memory_and_latency() -> None:
    asked = " ".join(expressions())
    shown = [metric.name for metric in METRICS if metric.kind == "histogram"]
    shown += ["streamglm_requests_running", "streamglm_requests_waiting", "streamglm_pages_free"]
    assert [name for name in shown if name not in asked] == []


@pytest.mark.parametrize("panel", json.loads((DEPLOY / "grafana.json").read_text())["panels"])
def test_no_panel_lies_outside_of_the_grid(panel: dict[str, Any]) -> None:
    place = panel["gridPos"]
    assert place["x"] >= 0
    assert place["x"] + place["w"] <= 24
