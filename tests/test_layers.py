"""One-way imports: every arrow between our modules is in the table below, and no torch where none
may be.

The walk reads the source (`ast`), so an import inside a function or under `TYPE_CHECKING` is an
arrow too. The last test imports for real, which also sees what a third party drags in. Each rule
is shown to fail on a small example first, so an empty walk cannot pass for an obedient one.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import streamglm

PACKAGE = Path(streamglm.__file__).parent

LEAVES = ("request", "step", "config", "kinds", "errors", "clock", "metrics")
ANYTHING = ("",)

# Who may import what, beside itself and, where not said otherwise, the leaves. A name stands for
# the module and for all below it; the most specific line of the left column counts.
MAY_IMPORT: Mapping[str, tuple[str, ...]] = {
    "": (),  # the version, which anyone may read
    "__main__": ("cli",),
    "cli": ANYTHING,
    "commands": ANYTHING,
    "docs": ANYTHING,
    "figures": (),
    "nano": ANYTHING,
    **dict.fromkeys(LEAVES, ()),
    "edge": ("text", "core.engine"),
    "text": (),
    "core": (
        "text",
        "drafts",
        "pool.layout",
        "pool.plan",
        "pool.pages",
        "pool.kept",
        "pool.placing",
        "pool.states",
        "pool.marks",
        "pool.prefix",
        "pool.identity",
        "pool.reasons",
        "pool.spill",
    ),
    "drafts": (),
    "pool": (),
    "disk": ("pool.spill",),
    "grammars": ("text", "sampling.vocabulary", "sampling.grammar"),
    "ranks": (
        *("pool", "disk", "model", "sampling", "weights", "core.loop", "text.tokenizer"),
        "kernels.arguments",
    ),
    "model": (
        "kernels",
        "pool.layout",
        "pool.tensors",
        "pool.device",
        "pool.memory",
        "pool.region",
        "pool.owners",
        "pool.exchange",
        "pool.fetch",
        "pool.carry",
    ),
    "weights": ("kernels", "model.spec", "model.share"),
    "sampling": ("kernels", "model.spec"),
    "kernels": (),
}
NO_LEAVES = ("kernels",)

# Modules that must not import torch, themselves or through another module of ours.
TORCH_FREE = (
    "__main__",
    "cli",
    "commands",
    *LEAVES,
    "edge",
    "text",
    "core",
    "drafts",
    "pool",
    "disk",
    "ranks",
    "grammars.compiler",
    "model.spec",
    "model.share",
    "model.shapes",
    "figures",
    "weights.headers",
    "weights.fit",
    "weights.made",
    "weights.layout",
    "weights.files",
    "weights.formats",
)
MAY_TORCH = (
    "pool.tensors",
    "pool.device",
    "pool.memory",
    "ranks.build",
    "ranks.collectives",
    "ranks.meeting",
    "commands.check_kernels",
)

HEAVY = ("torch", "triton", "transformers", "safetensors.torch")

Sources = Mapping[str, str]


def sources() -> dict[str, str]:
    """Source by dotted name below `streamglm`; a package's `__init__` has the package's name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text()
    return found


def imports(source: str, *, at_start: bool) -> Iterator[str]:
    """Dotted names that `source` imports: `from a import b` gives `a.b`.

    With `at_start`, only what runs when the module is imported: no function bodies, and
    nothing under `TYPE_CHECKING`.
    """
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if at_start and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if at_start and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import hides the arrow: spell it out"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            todo += ast.iter_child_nodes(node)


def ours(name: str, known: Sources) -> str | None:
    """The module of ours that an imported name lives in, below `streamglm`; None for others."""
    parts = name.split(".")
    if parts[0] != "streamglm":
        return None
    while ".".join(parts[1:]) not in known:
        parts.pop()
    return ".".join(parts[1:])


def under(name: str, *tops: str) -> bool:
    """Whether `name` is one of `tops` or below it; everything is below the empty name."""
    return any(not top or name == top or name.startswith(top + ".") for top in tops)


def owner(name: str) -> str:
    """The line of the table that speaks of `name`."""
    top = name.partition(".")[0]
    if top not in MAY_IMPORT:
        pytest.fail(f"streamglm.{name}: tests/test_layers.py has no line for {top!r}")
    return top


def wrong_arrows(known: Sources) -> list[str]:
    """Every import of ours that the table does not allow."""
    wrong = []
    for name, source in known.items():
        top = owner(name)
        own = (top,) if top else ()
        leaves = () if top in NO_LEAVES else LEAVES
        for imported in imports(source, at_start=False):
            target = ours(imported, known)
            if target and not under(target, *own, *MAY_IMPORT[top], *leaves):
                wrong.append(f"{name} -> {target}")
    return wrong


def reached(start: str, known: Sources) -> Iterator[str]:
    """Modules of ours that importing `start` runs, itself and the packages around it included."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        parts = name.split(".")
        todo += [".".join(parts[:count]) for count in range(len(parts))]
        for imported in imports(known[name], at_start=True):
            target = ours(imported, known)
            todo += [] if target is None else [target]


def takes_torch(source: str) -> bool:
    """Whether importing the module imports torch, or what imports it."""
    names = imports(source, at_start=True)
    return any(
        under(name, "torch", "triton", "safetensors.torch", "transformers") for name in names
    )


def torch_paths(known: Sources) -> list[str]:
    """Torch-free modules that reach torch, with the module of ours through which they do."""
    return [
        f"{name} -> {through} -> torch"
        for name in known
        if under(name, *TORCH_FREE) and not under(name, *MAY_TORCH)
        for through in reached(name, known)
        if takes_torch(known[through])
    ]


# -- the rules can fail


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("edge.app", "from streamglm.pool import pages"),
        ("edge.app", "from streamglm.core.loop import Loop"),
        ("edge.app", "def f():\n    import streamglm.ranks.client"),
        ("core.loop", "import streamglm.pool.tensors"),
        ("text.template", "from streamglm.edge import app"),
        ("kernels.kda", "from streamglm.errors import StreamglmError"),
        ("errors", "from streamglm.text import template"),
        ("model.glm", "from streamglm.ranks import client"),
        ("weights.checkpoint", "from streamglm.model import glm"),
        ("pool.pages", "from streamglm.model.spec import ModelSpec"),
    ],
    ids=lambda value: value.split("\n")[0],
)
def test_an_arrow_outside_the_table_is_found(name: str, source: str) -> None:
    assert len(wrong_arrows(EMPTY | {name: source})) == 1


# What the examples above point at, without a line of their own.
EMPTY = dict.fromkeys(
    (
        *("", "errors", "edge.app", "text.template", "core.loop", "pool.pages", "pool.tensors"),
        *("ranks.client", "model.glm", "model.spec", "kernels.kda"),
    ),
    "",
)


def test_an_arrow_inside_the_table_is_not() -> None:
    good = {"edge.app": "from streamglm.core.engine import Engine\nimport streamglm.text.template"}
    assert wrong_arrows({"core.engine": "", "text.template": "", "": "", **good}) == []


def test_torch_behind_another_module_is_found() -> None:
    known = {
        "": "",
        "core": "",
        "core.loop": "from streamglm.ranks.wire import Frame",
        "ranks": "import torch",
        "ranks.wire": "",
    }
    assert "core.loop -> ranks -> torch" in torch_paths(known)


def test_torch_in_a_function_or_for_types_alone_is_not_an_import_at_the_start() -> None:
    source = "if TYPE_CHECKING:\n    import torch\ndef f():\n    import torch"
    assert not takes_torch(source)
    assert takes_torch("try:\n    from torch import nn\nexcept ImportError:\n    pass")


# -- the package obeys them


def test_every_arrow_is_in_the_table() -> None:
    assert wrong_arrows(sources()) == []


def test_no_module_reaches_torch_that_may_not() -> None:
    assert torch_paths(sources()) == []


def test_only_tensors_of_the_pool_may_name_torch() -> None:
    """At any depth of the file: a late import would still pull torch into the server process."""
    named = [
        name
        for name, source in sources().items()
        if under(name, "edge", "text", "core", "pool", *LEAVES) and not under(name, *MAY_TORCH)
        if any(under(one, "torch") for one in imports(source, at_start=False))
    ]
    assert named == []


def test_the_server_process_imports_no_torch() -> None:
    """For real, in a fresh interpreter: third parties are included."""
    names = [
        "streamglm." + name
        for name in sources()
        if under(name, *TORCH_FREE) and not under(name, "__main__", *MAY_TORCH)
    ]
    code = f"import sys, importlib\nfor name in {names!r}: importlib.import_module(name)\n"
    code += "sys.exit(' '.join({'torch', 'triton', 'transformers'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
