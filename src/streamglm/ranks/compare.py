"""What ranks must have in common before anything is loaded, and the line that says what differs.

Owns the comparison. Pure: what each says of itself in, one line out. Knows no sockets. Invariant: a
line names the setting, the version or the file, and both values with whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamglm.ranks.wire import Join

MISSING = "missing"


def difference(ours: Join, name: str, theirs: Join) -> str | None:
    """The first thing in which `theirs` differs from `ours`, which is called `name`."""
    other = f"rank {theirs.rank}"
    for mine, its, remedy in (
        (ours.versions, theirs.versions, "run the same versions on every host"),
        (ours.settings, theirs.settings, "start every rank with the same settings"),
        (ours.files, theirs.files, "use the same checkpoint on every host"),
    ):
        key = _first(mine, its)
        if key is not None:
            values = f"{name}: {mine.get(key, MISSING)}, {other}: {its.get(key, MISSING)}"
            return f"{key}: {values}; {remedy}"
    return None


def out_of_range(rank: int, world: int) -> str | None:
    """A line, if no rank of `world` has this number."""
    if 0 <= rank < world:
        return None
    return f"--rank: {rank} is out of range; --ranks is {world}, so that ranks are 0 to {world - 1}"


def twice(rank: int, first: str, second: str) -> str:
    """The line on a rank that two processes say they are."""
    return (
        f"rank {rank} is given twice: {first} and {second}; "
        "each needs a --rank or --node-rank of its own"
    )


def missing(absent: frozenset[int], seconds: float, refused: list[str]) -> str:
    """The line on ranks that did not come; `refused` are those that were not let in."""
    plural = "ranks" if len(absent) > 1 else "rank"
    numbers = ", ".join(map(str, sorted(absent)))
    line = f"{plural} {numbers} did not come within {seconds:g} s (--rank-wait-seconds)"
    return f"{line}; not let in: {refused[-1]}" if refused else line


def _first(mine: Mapping[str, str], its: Mapping[str, str]) -> str | None:
    for key in [*mine, *its]:
        if mine.get(key) != its.get(key):
            return key
    return None
