"""Docs are true as far as a machine can tell: generated pages match the code, and whatever a page
names (a file, a flag, a link, a variable) exists.

A page that is out of date is fixed by `python -m streamglm.docs`, or by editing the page.
"""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from bench.__main__ import MEASUREMENTS
from streamglm import cli, config, docs, kernels, metrics
from streamglm.clock import SystemClock
from streamglm.config import Settings
from streamglm.core.engine import Engine
from streamglm.edge.app import build_app
from streamglm.edge.served import ServedModel
from streamglm.request import SamplingParams

ROOT = docs.DOCS.parent
PAGES = sorted(
    [
        *docs.DOCS.glob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("bench/*.md"),
    ]
)
names = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


def text(name: str) -> str:
    return (docs.DOCS / name).read_text()


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


# -- generated pages


def test_generated_pages_are_up_to_date() -> None:
    assert docs.stale() == [], f"run `{docs.COMMAND}` and commit what it writes"


def test_a_page_that_differs_by_a_word_is_stale(tmp_path: Path) -> None:
    for name, page in docs.pages().items():
        (tmp_path / name).write_text(page)
    assert docs.stale(tmp_path) == []
    (tmp_path / "cli.md").write_text(docs.pages()["cli.md"].replace("chat", "talk", 1))
    (tmp_path / "errors.md").unlink()
    assert docs.stale(tmp_path) == ["cli.md", "errors.md"]


def test_a_page_without_its_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="no marks"):
        docs.block("# Files\n", "files", "text")


def test_writing_a_block_twice_changes_nothing() -> None:
    page = text("architecture.md")
    once = docs.block(page, "files", "a")
    assert docs.block(once, "files", "a") == once


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One. Two.", "One."),
        ("Reads `a.json`\nand b.py. Then c.", "Reads `a.json` and b.py."),
        ("No end\n\nMore.", "No end"),
        ("a | b.", "a \\| b."),
    ],
)
def test_the_first_sentence_of_a_docstring(docstring: str, sentence: str) -> None:
    assert docs.first_sentence(docstring) == sentence


# -- nothing is missing


def test_the_file_list_is_what_lies_on_the_disk() -> None:
    block = text("architecture.md").partition("## Files")[2]
    listed, folder = [], ""
    for line in block.splitlines():
        if line.startswith("### `"):
            folder = line.split("`")[1]
        elif line.startswith("| `"):
            listed.append(folder + line.split("`")[1])
    package = docs.PACKAGE
    on_disk = [path.relative_to(package.parent).as_posix() for path in package.rglob("*.py")]
    assert sorted(listed) == sorted(on_disk)


def test_every_module_says_what_it_is() -> None:
    silent = [
        path.relative_to(docs.PACKAGE).as_posix()
        for path in docs.PACKAGE.rglob("*.py")
        if not docs.docstring(path)
    ]
    assert silent == []


def test_every_setting_is_documented_with_flag_and_variable() -> None:
    page = text("configuration.md")
    for field in config.FIELDS:
        assert f"| `{field.name}` |" in page
        assert f"`{config.variable(field.name)}`" in page
        assert field.name == "model" or f"`{config.flag(field.name)}`" in page


def test_every_command_and_argument_is_documented() -> None:
    page = text("cli.md")
    for name, command in docs.commands(cli.build_parser()):
        assert f"## `streamglm {name}`" in page
        assert [one for one in options(command) - {"-h", "--help"} if f"`{one}" not in page] == []


def test_every_error_is_documented_with_its_remedy() -> None:
    page = text("errors.md")
    for error in docs.named_errors():
        assert f"`{error.__name__}`" in page
        assert error.remedy in page


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in docs.named_errors()]
    assert len(codes) == len(set(codes))


def test_every_metric_is_documented() -> None:
    page = text("metrics.md")
    assert [metric.name for metric in metrics.METRICS if f"| `{metric.name}` |" not in page] == []


def test_every_route_is_documented() -> None:
    page = text("http.md")
    paths = [route.path for route in application().routes if isinstance(route, Route)]
    assert len(paths) > 5
    assert [path for path in paths if path.partition("{")[0].rstrip("/") not in page] == []


def application() -> Starlette:
    """The application over an engine that is never asked."""
    model = ServedModel("m", 64, 8, None, None, frozenset(), SamplingParams(), 0)
    return build_app(cast("Engine", object()), model, Settings(), SystemClock())


def test_every_operator_is_documented() -> None:
    page = text("kernels.md")
    names = [getattr(operator, "name", operator) for operator in kernels.OPS]
    assert [name for name in names if f"| `{name}` |" not in page] == []


# -- what is named exists


@names
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@names
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A name with a folder in it, in backticks: below the root, the package, or the page."""
    roots = (ROOT, docs.PACKAGE, page.parent)
    for name in re.findall(r"`([\w.]+/[\w./]*\.(?:py|md|toml))`", prose(page)):
        assert any((root / name).exists() for root in roots), f"{page.name} names {name}"


TORCHRUN = {"--nproc-per-node", "--master-addr", "--master-port"}
"""Another program's, of which docs/ranks.md has a command line."""


@names
def test_flags_that_a_page_names_exist(page: Path) -> None:
    known = all_options() | TORCHRUN
    for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text()):
        assert flag in known, f"{page.name} names {flag}"


@names
def test_variables_that_a_page_names_exist(page: Path) -> None:
    known = {config.variable(field.name) for field in config.FIELDS} | {"STREAMGLM_CONFIG"}
    assert set(re.findall(r"STREAMGLM_[A-Z_]*[A-Z]", page.read_text())) <= known


@names
def test_modules_that_a_page_runs_exist(page: Path) -> None:
    for name in re.findall(r"python -m ([\w.]+)", page.read_text()):
        assert importlib.util.find_spec(name), f"{page.name} runs {name}"


def all_options() -> set[str]:
    """Every flag of our commands, of nano's and the bench, and of tools that pages may name."""
    found = {"--help", "--version", "--no-deps"}
    for _, command in docs.commands(cli.build_parser()):
        found |= options(command)
    for name, _ in MEASUREMENTS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"bench.{name}").add_arguments(parser)
        found |= options(parser)
    for name in ("exam", "train"):
        found |= options(importlib.import_module(f"streamglm.nano.{name}").build_parser())
    return found


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


# -- the cases


def test_every_case_is_tested_or_says_what_it_waits_for() -> None:
    rows = [line.split("|")[1:-1] for line in text("cases.md").splitlines() if "| CO-" in line]
    assert [row[0].strip() for row in rows] == [f"CO-{number:02}" for number in range(1, 38)]
    for case, _, tested, waits in rows:
        assert tested.strip() or waits.strip(), case
        assert not tested.strip() or "`tests/" in tested, case


def test_a_case_that_a_test_names_is_one_of_them() -> None:
    known = set(re.findall(r"CO-\d\d", text("cases.md")))
    for path in (ROOT / "tests").rglob("*.py"):
        assert set(re.findall(r"CO-\d\d", path.read_text())) <= known, path.name


# -- the glossary


def test_the_glossary_is_in_order_and_says_nothing_twice() -> None:
    section = text("architecture.md").partition("## Glossary")[2].partition("\n## ")[0]
    terms = [row.split("|")[1].strip() for row in section.splitlines() if row.startswith("| ")][2:]
    single = [term for entry in terms for term in entry.split(", ")]
    assert len(single) == len(set(single))
    assert terms == sorted(terms, key=str.lower)
