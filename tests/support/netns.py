"""Two hosts on one machine: network namespaces with a cable between them that can be pulled.

Owns the namespaces; none is left when the block ends. `within` runs a function in a thread that is
in a namespace, so that its sockets are that host's.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


class NoNamespaces(Exception):
    """This process may not make network namespaces. The message says what the system said."""


@dataclass(frozen=True, slots=True)
class Host:
    """A namespace and its address on the cable."""

    name: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """In front of a command that is to run on this host."""
        return ("ip", "netns", "exec", self.name)

    def within(self, function: Callable[[], T]) -> T:
        """What `function` gives, called on this host."""
        found: list[T | BaseException] = []

        def run() -> None:
            try:
                with Path(f"/run/netns/{self.name}").open() as namespace:
                    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                found.append(function())
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def pull(self) -> None:
        """Pull the cable at this host."""
        _ip("-n", self.name, "link", "set", "cable", "down")


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Raises `NoNamespaces` where they cannot be made."""
    tag = uuid.uuid4().hex[:8]
    hosts = tuple(Host(f"slm{tag}{end}", f"10.97.0.{end}") for end in (1, 2))
    try:
        for host in hosts:
            _ip("netns", "add", host.name)
        first, second = hosts
        cable = ("link", "add", "cable", "netns", first.name, "type", "veth")
        _ip(*cable, "peer", "name", "cable", "netns", second.name)
        for host in hosts:
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "cable")
            for link in ("lo", "cable"):
                _ip("-n", host.name, "link", "set", link, "up")
        yield first, second
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoNamespaces("there is no `ip` command here") from None
    if done.returncode:
        raise NoNamespaces(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
