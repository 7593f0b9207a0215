"""A kernel that may start while the one before it ends waits for it before it touches memory.

Read from the kernels' source, so that no GPU is needed: where a launch takes `overlap.options()`,
every way through its kernel comes to `overlap.behind()` before a load, store or atomic, those of
its helpers included, and before its end: the kernel after it waits for this one alone. Weights may
be read before, and go by the names in `CONSTANT`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import streamglm.kernels

ROOT = Path(streamglm.kernels.__file__).parent
CONSTANT = re.compile(
    r"([pd]_)?(w|weight|scale|whole|bias|biases|base|norm|fn|factors|taps)(_\w+)?"
)
"""Names of what no kernel of a running model writes: its weights."""
TOUCHES = re.compile(r"load|store|gather|scatter|atomic_\w+")

Modules = dict[str, ast.Module]


def _modules() -> Modules:
    """Every module of kernels, by its dotted name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(("streamglm.kernels", *path.relative_to(ROOT).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def _broken(modules: Modules) -> Iterator[str]:
    """What is wrong with each kernel that is launched with the options."""
    for name, tree in modules.items():
        uses = sum(_is(node, "options") for node in ast.walk(tree))
        launches = [node for node in ast.walk(tree) if _takes_options(node)]
        if uses != len(launches):
            yield f"{name}: options that are not written out in a launch cannot be followed"
        for launch in launches:
            for kernel in _kernels(launch):
                found = _function(modules, name, kernel)
                if found is None:
                    yield f"{name}: {ast.unparse(kernel)} is no kernel that can be found"
                    continue
                first = _Reader(modules, *found).first()
                if first != {"behind"}:
                    told = ", ".join(sorted(first - {"behind"})) or "nothing"
                    yield f"{name}: {found[1].name} comes to {told} before behind"


def _is(node: ast.AST, name: str) -> bool:
    """A call of overlap.<name>."""
    names = (name, f"overlap.{name}")
    return isinstance(node, ast.Call) and ast.unparse(node.func) in names


def _takes_options(node: ast.AST) -> bool:
    """A call of kernel[grid], or of a function that is handed kernel[grid] too."""
    if not isinstance(node, ast.Call) or not list(_kernels(node)):
        return False
    return any(_is(value, "options") for value in (*node.args, *(k.value for k in node.keywords)))


def _kernels(call: ast.AST) -> Iterator[ast.expr]:
    assert isinstance(call, ast.Call)
    places = [call.func] if isinstance(call.func, ast.Subscript) else call.args
    for place in places:
        if isinstance(place, ast.Subscript):
            yield place.value


def _function(
    modules: Modules, module: str, called: ast.expr
) -> tuple[str, ast.FunctionDef] | None:
    """The module and definition of what is called: of this module, or imported from another."""
    name = called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)
    sources = [module]
    for node in ast.walk(modules[module]):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    sources, name = [node.module], alias.name
                elif isinstance(called, ast.Attribute) and alias.name == ast.unparse(called.value):
                    sources = [f"{node.module}.{alias.name}"]
    for source in sources:
        for defined in modules[source].body if source in modules else ():
            if isinstance(defined, ast.FunctionDef) and defined.name == name:
                return source, defined
    return None


GOES_ON = ""


class _Reader:
    """What each way through a function comes to first: `behind`, something that is touched, the
    end of the kernel, or nothing (`GOES_ON`)."""

    def __init__(self, modules: Modules, module: str, function: ast.FunctionDef) -> None:
        self._modules, self._module, self._function = modules, module, function

    def first(self) -> set[str]:
        return self._statements(self._function.body)

    def _statements(self, statements: Sequence[ast.stmt]) -> set[str]:
        found = {GOES_ON}
        for statement in statements:
            if GOES_ON not in found:
                break
            found = (found - {GOES_ON}) | self._statement(statement)
        return found

    def _statement(self, statement: ast.stmt) -> set[str]:
        if isinstance(statement, ast.If | ast.For | ast.While):
            head = statement.iter if isinstance(statement, ast.For) else statement.test
            found = self._expression(head)
            if found != {GOES_ON}:
                return found
            return self._statements(statement.body) | self._statements(statement.orelse)
        found = {GOES_ON}
        for child in ast.iter_child_nodes(statement):
            if found == {GOES_ON} and isinstance(child, ast.expr):
                found = self._expression(child)
        if isinstance(statement, ast.Return) and found == {GOES_ON} and statement.value is None:
            return {"its end"}
        return found

    def _expression(self, expression: ast.expr | ast.keyword) -> set[str]:
        for child in ast.iter_child_nodes(expression):
            if isinstance(child, ast.expr | ast.keyword):
                found = self._expression(child)
                if found != {GOES_ON}:
                    return found
        if not isinstance(expression, ast.Call) or _is(expression, "ahead"):
            return {GOES_ON}
        if _is(expression, "behind"):
            return {"behind"}
        if isinstance(expression.func, ast.Attribute) and TOUCHES.fullmatch(expression.func.attr):
            return self._touched(expression, expression.func)
        helper = _function(self._modules, self._module, expression.func)
        return _Reader(self._modules, *helper).first() if helper else {GOES_ON}

    def _touched(self, call: ast.Call, method: ast.Attribute) -> set[str]:
        """A load or store, of a pointer or by a descriptor; a load of weights is none."""
        by_pointer = ast.unparse(method.value) == "tl"
        place = self._base(call.args[0] if by_pointer else method.value)
        constant = method.attr == "load" and CONSTANT.fullmatch(place)
        return {GOES_ON} if constant else {f"{ast.unparse(method)} of {place}"}

    def _base(self, place: ast.expr) -> str:
        """The argument that a pointer is made of."""
        while isinstance(place, ast.BinOp):
            place = place.left
        name = ast.unparse(place)
        for node in ast.walk(self._function):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return self._base(node.value) if isinstance(node.value, ast.BinOp) else name
        return name


def test_a_kernel_waits_for_the_one_before_it_before_it_touches_memory() -> None:
    assert list(_broken(_modules())) == []


def test_the_kernels_that_may_start_early_are_found() -> None:
    modules = _modules()
    launches = [
        node for tree in modules.values() for node in ast.walk(tree) if _takes_options(node)
    ]
    assert len(launches) >= 5


HELPED = "def f(p_x):\n    return tl.load(p_x)\n"
RIGHT = {
    "behind first": "overlap.behind()\n    tl.load(p_x)",
    "weights before": "b = tl.load(p_w + o)\n    overlap.ahead(p_w, 16)\n    overlap.behind()\n"
    "    f(p_x)",
    "by another name": "p_in = p_w + o * 2\n    b = tl.load(p_in + 3)\n    behind()",
    "descriptor of weights before": "b = d_w.load([0, 0])\n    overlap.behind()\n    d_x.load([0])",
    "in both branches": "if A:\n        behind()\n    else:\n        behind()\n    tl.load(p_x)",
}
WRONG = {
    "no call": "tl.load(p_x)",
    "nothing at all": "pass",
    "a load before": "b = tl.load(p_x + o * 2)\n    overlap.behind()",
    "by another name": "p_in = p_x + o * 2\n    b = tl.load(p_in + 3)\n    behind()",
    "a store before": "tl.store(p_y, 0)\n    overlap.behind()",
    "weights written": "tl.store(p_w, 0)\n    overlap.behind()",
    "an atomic before": "tl.atomic_add(p_y, 1)\n    overlap.behind()",
    "by a descriptor": "b = d_x.load([0, 0])\n    overlap.behind()",
    "in a helper": "f(p_x)\n    overlap.behind()",
    "inside of an expression": "b = 2 * (1 + tl.load(p_x))\n    overlap.behind()",
    "only in a branch": "if A:\n        overlap.behind()\n    tl.load(p_x)",
    "only in a loop": "for i in r:\n        overlap.behind()\n    tl.load(p_x)",
    "an end before": "if A:\n        return\n    overlap.behind()",
}


def _case(body: str) -> Modules:
    launch = "def go():\n    k[(1,)](p_x=1, **overlap.options())\n"
    return {"m": ast.parse(f"{HELPED}def k(p_x, p_w, p_y):\n    {body}\n{launch}")}


@pytest.mark.parametrize("name", RIGHT)
def test_what_keeps_the_rule_is_green(name: str) -> None:
    assert list(_broken(_case(RIGHT[name]))) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_the_rule_is_red(name: str) -> None:
    assert len(list(_broken(_case(WRONG[name])))) == 1


def test_a_kernel_that_is_handed_on_with_the_options_is_read() -> None:
    source = "def k(p_x):\n    tl.load(p_x)\ndef go():\n    run(k[(1,)], overlap.options())\n"
    assert len(list(_broken({"m": ast.parse(source)}))) == 1


def test_options_that_cannot_be_followed_are_red() -> None:
    tree = ast.parse("def go():\n    words = overlap.options()\n    k[(1,)](**words)\n")
    assert len(list(_broken({"m": tree}))) == 1
