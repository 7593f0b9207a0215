"""The nouns of the index: pages, states and conversations, in memory and as rows.

Owns the values. Knows no folder. What is mutable here is changed by `index.py` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from streamglm.disk.record import Kind


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page's records as the index keeps them. `size` is that of all ranks' files."""

    key: bytes
    identity: bytes
    parent: bytes
    depth: int
    size: int


@dataclass(frozen=True, slots=True)
class StateRow:
    """A fixed part's records. Moments are seconds since 1970."""

    key: bytes
    identity: bytes
    conversation: str
    size: int
    created: float
    used: float


@dataclass(eq=False, slots=True)
class Stored:
    """A state on the disk."""

    node: Node
    conversation: str
    size: int
    created: float
    used: float
    borrows: int = 0

    @property
    def depth(self) -> int:
        """Pages up to its mark."""
        return self.node.depth


@dataclass(eq=False, slots=True)
class Node:
    """A prefix of whole pages. `size` 0: its last page is not there."""

    key: bytes
    identity: bytes
    parent: Node | None
    depth: int
    size: int = 0
    children: int = 0
    holders: int = 0
    """Writes on their way that stand on it."""
    coming: bool = False
    """A write is to bring its page."""
    fixed_coming: bool = False
    state: Stored | None = None

    @property
    def needed(self) -> bool:
        return bool(self.children or self.holders or self.state)

    def path(self) -> Iterator[Node]:
        """From itself to the first page."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


@dataclass(frozen=True, slots=True)
class Gone:
    """Records that are to be removed."""

    identity: bytes
    key: bytes
    kind: Kind
    size: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """States of one conversation: each turn's stands on the one before. `bytes` counts a page that
    others share too."""

    id: str
    identity: bytes
    states: tuple[Stored, ...]
    pages: int
    bytes: int

    @property
    def tip(self) -> Stored:
        return self.states[-1]


@dataclass(slots=True)
class Missing:
    """What of a state is not on the disk: pages by their number, and the fixed part."""

    tip: Node
    pages: list[int] = field(default_factory=list)
    fixed: bool = False


def page_row(node: Node) -> PageRow:
    """A page as the index keeps it."""
    parent = node.parent.key if node.parent is not None else b""
    return PageRow(node.key, node.identity, parent, node.depth, node.size)


def conversation_of(name: str, mates: Iterable[Stored]) -> Conversation:
    """What belongs together under one name."""
    states = sorted(mates, key=lambda one: one.depth)
    nodes = {node.key: node for stored in states for node in stored.node.path()}
    return Conversation(
        id=name,
        identity=states[0].node.identity,
        states=tuple(states),
        pages=len(nodes),
        bytes=sum(node.size for node in nodes.values()) + sum(one.size for one in states),
    )
