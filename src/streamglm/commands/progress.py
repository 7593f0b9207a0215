"""The progress of a start, for the person who waits: a bar on a terminal, silence elsewhere.

Owns what is drawn on stderr. Knows the phases by name only.
"""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class StartProgress:
    """A context manager; `heard` takes what a start reports."""

    def __init__(self, console: Console | None = None) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> StartProgress:
        if self._bar.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def heard(self, phase: str, done: int, total: int) -> None:
        """A phase by name; bytes done and total where it has any."""
        self._bar.update(self._task, description=phase, completed=done, total=total or None)
