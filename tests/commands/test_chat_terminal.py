"""`streamglm chat` in a real terminal: a pseudo-terminal, a child process, and its keys.

Only what needs a terminal is here: prompts, Ctrl-C and Ctrl-D. The child talks to canned bytes.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from support.canned import Canned, chat_reply, serving

# A background job of a shell ignores SIGINT, and so would every child of a test run that is one.
START = """
import argparse, signal, sys
from streamglm.commands import chat
signal.signal(signal.SIGINT, signal.default_int_handler)
parser = argparse.ArgumentParser()
chat.add_arguments(parser)
sys.exit(chat.run(parser.parse_args()))
"""


@dataclass
class Terminal:
    """The person's side: keys in, screen out."""

    master: int
    process: subprocess.Popen[bytes]
    seen: str = ""

    def keys(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, text: str) -> None:
        """Read the screen until `text` is on it, and forget what came before."""
        assert self._shows(text, 30), f"{text!r} did not come; the screen has {self.seen!r}"
        self.seen = self.seen.partition(text)[2]

    def interrupt(self, text: str) -> None:
        """Ctrl-C, again if need be, until `text` shows: Python's line editor does not notice a
        signal that comes between its drawing of the prompt and its wait for a key."""
        for _ in range(30):
            self.process.send_signal(signal.SIGINT)
            if self._shows(text, 1):
                break
        self.wait_for(text)

    def _shows(self, text: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self.master], [], [], left)[0]:
                return False
            self.seen += os.read(self.master, 4096).decode(errors="replace")
        return True


@contextmanager
def terminal(url: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", START, "--url", url],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_interrupting_a_reply_cancels_it_and_keeps_the_chat() -> None:
    """Fails if the interrupt ends the chat, or leaves the server writing to nobody."""
    canned = Canned(
        replies=[chat_reply(answer="partly")[:8], chat_reply(answer="whole")], hold=True
    )
    with serving(canned), terminal(canned.url) as person:
        person.wait_for("> ")
        person.keys("one\n")
        person.wait_for("partly")
        person.process.send_signal(signal.SIGINT)
        person.wait_for("stopped; /retry asks again")
        assert canned.left.wait(10)
        canned.hold = False
        person.wait_for("> ")
        person.keys("/retry\n")
        person.wait_for("whole")
        person.wait_for("token_sha abababab")
        person.wait_for("> ")
        person.keys("\x04")
        assert person.process.wait(10) == 0
    assert canned.bodies[1]["messages"] == [{"role": "user", "content": "one"}]


def test_an_interrupt_at_the_prompt_and_an_error_keep_the_chat() -> None:
    canned = Canned(replies=[[b": nothing\n\n"], chat_reply(answer="later")])
    with serving(canned), terminal(canned.url) as person:
        person.wait_for("> ")
        person.interrupt("/quit or Ctrl-D leaves")
        person.wait_for("> ")
        person.keys("one\n")
        person.wait_for("the connection closed before the reply ended")
        person.wait_for("> ")
        person.keys("two\\\n")
        person.wait_for(". ")
        person.keys("three\n")
        person.wait_for("later")
        person.wait_for("> ")
        person.keys("/quit\n")
        assert person.process.wait(10) == 0
    assert canned.bodies[1]["messages"] == [{"role": "user", "content": "two\nthree"}]
