"""What the system knows of networks: which interface has an address, and when a peer is gone.

Owns the options of a stream between hosts. Knows no frames. Invariant: a stream that was watched
ends within the seconds it was given, also when the link was cut and no word of it comes through.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from pathlib import Path

from streamglm.errors import StartError

_SIOCGIFADDR = 0x8915
_INET6 = Path("/proc/net/if_inet6")


def watch(sock: socket.socket, seconds: float) -> None:
    """End the stream when the other side has acknowledged nothing for `seconds`: whether there is
    something on its way or not."""
    every = max(1, int(seconds / 4))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def split(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; an IPv6 host may stand in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def interface_of(host: str) -> str | None:
    """The network interface of this host that has the address of `host`; None where none has.
    Raises `StartError` where the system does not tell."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    wanted = {str(entry[4][0]).partition("%")[0] for entry in found}
    for name, addresses in _interfaces().items():
        if wanted & addresses:
            return name
    return "lo" if any(one.startswith("127.") for one in wanted) else None


def _names() -> list[str]:
    try:
        return [name for _, name in socket.if_nameindex()]
    except OSError as error:
        raise StartError(
            f"the network interfaces of this host cannot be read ({error.strerror}), and several "
            "ranks need them; under systemd, AF_NETLINK belongs into RestrictAddressFamilies="
        ) from None


def _interfaces() -> dict[str, set[str]]:
    """The addresses of each interface."""
    found: dict[str, set[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for name in _names():
            asked = array.array("B", struct.pack("256s", name.encode()[:15]))
            try:
                fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)
            except OSError:  # without an IPv4 address
                found[name] = set()
            else:
                found[name] = {socket.inet_ntoa(asked.tobytes()[20:24])}
    for line in _INET6.read_text().splitlines() if _INET6.exists() else []:
        raw, *_, name = line.split()
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw))
        found.setdefault(name, set()).add(address)
    return found
