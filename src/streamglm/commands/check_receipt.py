"""What a check has found, for people: the rows of its table, and a receipt in Markdown.

Owns the words. Knows nothing of how anything was compared. A receipt says where, when, of which
commit and by which command it was made, so that it can be made again.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from streamglm import __version__
from streamglm.commands.check_cases import Finding

COLUMNS = ("equality", "comparisons", "differences", "seconds", "")
CLAIM = "comparisons are equal bit for bit"
SHOWN = 3
"""Differences of a case that are named."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One check. `setting` is model, format of pages and threads, by name."""

    setting: dict[str, str]
    findings: tuple[Finding, ...]
    made: datetime
    command: str
    claim: str = CLAIM
    """What holds of all that was compared."""

    @classmethod
    def of(
        cls, setting: dict[str, str], findings: Sequence[Finding], claim: str = CLAIM
    ) -> Receipt:
        """A receipt of this moment and this process's command line."""
        command = shlex.join(["streamglm", *sys.argv[1:]])
        return cls(setting, tuple(findings), datetime.now(UTC), command, claim)

    @property
    def ok(self) -> bool:
        """Everything was compared, and nothing differs."""
        return bool(self.findings) and all(one.ok for one in self.findings)

    @property
    def verdict(self) -> str:
        """One line."""
        if self.ok:
            compared = sum(one.compared for one in self.findings)
            return f"All {compared:,} {self.claim}."
        wrong = [one.name for one in self.findings if not one.ok]
        return f"Not exact on this machine: {'; '.join(wrong) or 'nothing was compared'}."

    def rows(self) -> Iterator[tuple[str, str, str, str, str]]:
        """The cells of the table, under `COLUMNS`."""
        for one in self.findings:
            verdict = "equal" if one.ok else "DIFFERENT"
            count, wrong = f"{one.compared:,}", f"{len(one.differences):,}"
            yield one.name, count, wrong, f"{one.seconds:.1f}", verdict

    def differences(self) -> Iterator[str]:
        """What differs, a line each; of every case the first few."""
        for one in self.findings:
            for what in one.differences[:SHOWN]:
                yield f"{one.name}: {what}"
            if len(one.differences) > SHOWN:
                yield f"{one.name}: and {len(one.differences) - SHOWN} more"
            if not one.compared and not one.differences:
                yield f"{one.name}: nothing was compared"

    def markdown(self) -> str:
        """The receipt's page."""
        about = {
            "date": self.made.isoformat(timespec="seconds"),
            "commit": commit(),
            **machine(),
            **self.setting,
        }
        parts = ["# Receipt of `streamglm check`\n\n", f"{self.verdict}\n\n"]
        parts += [f"```\n{self.command}\n```\n\n"]
        parts += [_table(("of", "is"), about.items()), "\n"]
        parts += [_table((*COLUMNS[:-1], "verdict"), self.rows())]
        wrong = list(self.differences())
        if wrong:
            parts += ["\n## Differences\n\n", *(f"- {line}\n" for line in wrong)]
        return "".join(parts)


def commit() -> str:
    """The commit of the code that runs, or its version where it is no checkout."""
    folder = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return f"version {__version__}"
    return found.stdout.strip()


def machine() -> dict[str, str]:
    """The machine, by what changes bits or speed."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "machine": f"{_cpu()}, {cores} cores, {memory:.0f} GiB",
        "system": platform.platform(terse=True),
        "software": f"Python {platform.python_version()}, torch {version('torch')}, "
        f"numpy {version('numpy')}",
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)
