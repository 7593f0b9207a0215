"""A `streamglm serve` of the bench's own, started and ended by it.

Owns the child process: port 0, its address read from the line it prints, SIGTERM at the end.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from select import select
from typing import IO

from bench.record import Void

START_SECONDS = 120.0


@contextmanager
def serving(model: str, flags: Sequence[str] = ()) -> Iterator[str]:
    """Serve `model` on a free loopback port; its URL. Raises `Void` with the log's last lines when
    it does not start."""
    with serving_process(model, flags) as (url, _):
        yield url


@contextmanager
def serving_process(
    model: str, flags: Sequence[str] = ()
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`serving`, and the process."""
    command = [sys.executable, "-m", "streamglm", "serve", model, "--port", "0", *flags]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield _address(process, log), process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: subprocess.Popen[str], log: IO[str]) -> str:
    assert process.stdout is not None
    while select([process.stdout], [], [], START_SECONDS)[0]:
        line = process.stdout.readline()
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
        if not line:
            break
    log.seek(0)
    raise Void("`streamglm serve` did not start:\n" + "".join(log.readlines()[-10:]))
