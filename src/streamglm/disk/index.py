"""What is on the disk, in memory: pages in a tree of prefixes, and the states that stand on them.

Owns which records there are, which are on their way, who may be evicted and in which order. Pure:
opens no file and knows no thread; `store.py` does what is decided here. A node stands for all
tokens up to the end of one page, by its key; a state is found where every page up to it is there.
Invariant, by `check()`: a node without a state, without children and without a holder is gone, and
the bytes are the sum of what is there.

A page that was lost leaves its node behind while something stands on it: the next turn that comes
by writes the page again, and everything above it can be found again.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from streamglm.disk.nouns import (
    Conversation,
    Gone,
    Missing,
    Node,
    PageRow,
    StateRow,
    Stored,
    conversation_of,
    page_row,
)
from streamglm.disk.record import Kind


class Index:
    """The records of one folder, of which those of `identity` can be read."""

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.bytes = 0
        """Of all records."""
        self.version = 0
        """Changes whenever `find` may answer otherwise."""
        self._nodes: dict[bytes, Node] = {}
        self._own: OrderedDict[bytes, Stored] = OrderedDict()
        """By key, the least recently used first."""
        self._foreign: OrderedDict[bytes, Stored] = OrderedDict()
        self._mates: dict[str, dict[bytes, Stored]] = {}
        """The states of each conversation, by key."""
        self._held: set[Node] = set()
        """Nodes that writes on their way stand on."""
        self._borrowed: set[Stored] = set()
        self._now = 0.0

    def __len__(self) -> int:
        return len(self._own) + len(self._foreign)

    @property
    def own(self) -> int:
        """States that can be found."""
        return len(self._own)

    def load(self, pages: Iterable[PageRow], states: Iterable[StateRow]) -> list[Gone]:
        """Take what a folder holds. Returns what leads nowhere: pages without a state above."""
        for row in sorted(pages, key=lambda one: one.depth):
            node = self._place(row.key, row.identity, row.parent, row.depth)
            node.size = row.size
            self.bytes += row.size
        for state in sorted(states, key=lambda one: one.used):
            found = self._nodes.get(state.key)
            if found is not None:
                self._stand(found, state)
        bare = [node for node in self._nodes.values() if not node.needed]
        return [gone for node in bare for gone in self._prune(node)]

    # -- finding

    def find(self, keys: Sequence[bytes], most: int) -> Stored | None:
        """The state at the longest prefix of `keys`, the chain of a prompt, of at most `most`
        pages, that is there whole."""
        best = None
        for key in keys[:most]:
            node = self._nodes.get(key)
            if node is None or not node.size or node.identity != self.identity:
                break
            best = node.state or best
        return best

    def knows(self, key: bytes) -> bool:
        """A state is there at `key`, or on its way."""
        node = self._nodes.get(key)
        return node is not None and (node.state is not None or node.fixed_coming)

    def touch(self, stored: Stored, now: float) -> None:
        stored.used = self._moment(now)
        self._order(stored).move_to_end(stored.node.key)

    def borrow(self, stored: Stored) -> None:
        """It is not evicted until it was given back as often."""
        stored.borrows += 1
        self._borrowed.add(stored)

    def unborrow(self, stored: Stored) -> None:
        assert stored.borrows, "a state was given back more often than borrowed"
        stored.borrows -= 1
        if not stored.borrows:
            self._borrowed.discard(stored)

    # -- writing

    def plan(self, keys: Sequence[bytes], root: bytes) -> Missing | None:
        """What has to be written for the state whose chain is `keys`; None when nothing has. It
        counts as on its way, and its path stays, until `arrive` or `fail`."""
        node = None
        parent = root
        for depth, key in enumerate(keys, 1):
            node = self._place(key, self.identity, parent, depth)
            parent = key
        assert node is not None, "a state of no page"
        missing = Missing(node)
        for one in node.path():
            if not one.size and not one.coming:
                one.coming = True
                missing.pages.append(one.depth - 1)
        missing.pages.reverse()
        missing.fixed = node.state is None and not node.fixed_coming
        if not missing.pages and not missing.fixed:
            self._prune(node)
            return None
        node.fixed_coming = node.fixed_coming or missing.fixed
        self._hold(node, 1)
        return missing

    def rows(
        self, missing: Missing, pages: Sequence[int], fixed: int, now: float
    ) -> tuple[list[PageRow], StateRow | None]:
        """The rows of what `plan` asked for, by the sizes of its pages and of its fixed part."""
        nodes = {node.depth - 1: node for node in missing.tip.path()}
        rows = [
            replace(page_row(nodes[number]), size=size)
            for number, size in zip(missing.pages, pages, strict=True)
        ]
        if not missing.fixed:
            return rows, None
        tip, now = missing.tip, self._moment(now)
        return rows, StateRow(tip.key, tip.identity, self._conversation(tip), fixed, now, now)

    def arrive(
        self, missing: Missing, pages: Iterable[PageRow], state: StateRow | None
    ) -> list[Gone]:
        """What `plan` asked for is in place, under these rows. Returns what leads nowhere by now:
        a state that was evicted while a page below it was written again."""
        tip = missing.tip
        for row in pages:
            node = self._nodes[row.key]
            node.size, node.coming = row.size, False
            self.bytes += row.size
        if state is not None:
            tip.fixed_coming = False
            self._stand(tip, state)
        self._hold(tip, -1)
        self.version += 1
        return self._prune(tip)

    def fail(self, missing: Missing) -> list[Gone]:
        """What `plan` asked for does not come. Returns what now leads nowhere."""
        tip = missing.tip
        wanted = set(missing.pages)
        for node in tip.path():
            if node.depth - 1 in wanted:
                node.coming = False
        if missing.fixed:
            tip.fixed_coming = False
        self._hold(tip, -1)
        return self._prune(tip)

    # -- removing

    def oldest(self) -> Stored | None:
        """Who goes first: a foreign state, then the least recently used, never a borrowed one."""
        for order in (self._foreign, self._own):
            for stored in order.values():
                if not stored.borrows:
                    return stored
        return None

    def remove(self, stored: Stored) -> list[Gone]:
        """Forget a state, and the pages that nothing stands on any more."""
        node = stored.node
        del self._order(stored)[node.key]
        node.state = None
        self.bytes -= stored.size
        self.version += 1
        mates = self._mates[stored.conversation]
        del mates[node.key]
        if not mates:
            del self._mates[stored.conversation]
        gone = [Gone(node.identity, node.key, Kind.FIXED, stored.size)]
        return gone + self._prune(node)

    def lose(self, key: bytes, kind: Kind) -> list[Gone]:
        """A record turned out to be damaged: it is not there. Returns what is to be removed."""
        node = self._nodes.get(key)
        if node is None:
            return []
        if kind is Kind.FIXED:
            return self.remove(node.state) if node.state is not None else []
        if not node.size:
            return []
        gone = [Gone(node.identity, node.key, Kind.PAGE, node.size)]
        self.bytes -= node.size
        node.size = 0
        self.version += 1
        return gone + self._prune(node)

    def pinned(self) -> int:
        """Bytes that nothing may evict now: of borrowed states, and of paths that writes stand
        on."""
        tips = (*self._held, *(one.node for one in self._borrowed))
        nodes = {one for tip in tips for one in tip.path()}
        fixed = sum(one.size for one in self._borrowed if one.node.state is one)
        return sum(one.size for one in nodes) + fixed

    # -- telling

    def states(self) -> Iterator[Stored]:
        """All, the foreign ones first, each kind from its least recently used on."""
        yield from self._foreign.values()
        yield from self._own.values()

    def conversations(self) -> list[Conversation]:
        """The most recently used first."""
        found = [conversation_of(name, mates.values()) for name, mates in self._mates.items()]
        return sorted(found, key=lambda one: -max(state.used for state in one.states))

    def conversation(self, name: str) -> Conversation | None:
        mates = self._mates.get(name)
        return None if mates is None else conversation_of(name, mates.values())

    def check(self) -> None:
        """Prove the invariant; AssertionError says what broke."""
        total, children = 0, dict.fromkeys(self._nodes, 0)
        for key, node in self._nodes.items():
            assert node.key == key, "a node under another key"
            assert node.needed, f"a bare node at page {node.depth}"
            total += node.size + (node.state.size if node.state else 0)
            assert node.holders or not (node.coming and not node.children), "nobody brings a page"
            if node.parent is not None:
                children[node.parent.key] += 1
                assert node.depth == node.parent.depth + 1, f"depth {node.depth}"
        for key, node in self._nodes.items():
            assert node.children == children[key], f"{node.children} children, {children[key]}"
        assert total == self.bytes, f"{self.bytes} bytes, {total} are there"
        for order in (self._own, self._foreign):
            used = [stored.used for stored in order.values()]
            assert used == sorted(used), "states are out of the order of use"
            for key, stored in order.items():
                assert self._nodes[key].state is stored, "a state is not at its node"

    # -- inside

    def _hold(self, node: Node, count: int) -> None:
        node.holders += count
        if node.holders:
            self._held.add(node)
        else:
            self._held.discard(node)

    def _order(self, stored: Stored) -> OrderedDict[bytes, Stored]:
        return self._own if stored.node.identity == self.identity else self._foreign

    def _place(self, key: bytes, identity: bytes, parent: bytes, depth: int) -> Node:
        """The node at `key`, made where it is missing, and linked to its parent. One whose parent
        is not known yet gets a node for that too, which holds no page."""
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(key, identity, None, depth)
        if node.parent is None and depth > 1:
            above = self._nodes.get(parent)
            if above is None:
                above = self._nodes[parent] = Node(parent, identity, None, depth - 1)
            node.parent = above
            above.children += 1
        return node

    def _stand(self, node: Node, row: StateRow) -> None:
        stored = Stored(node, row.conversation, row.size, row.created, row.used)
        node.state = stored
        self._order(stored)[node.key] = stored
        self.bytes += row.size
        self._mates.setdefault(row.conversation, {})[node.key] = stored
        self._now = max(self._now, row.used)

    def _conversation(self, node: Node) -> str:
        """The conversation whose last state this one stands on, or a new one."""
        below = next((one.state for one in node.path() if one.state is not None), None)
        if below is not None:
            mates = self._mates[below.conversation].values()
            if all(one.depth <= below.depth for one in mates):
                return below.conversation
        return secrets.token_hex(8)

    def _moment(self, now: float) -> float:
        """`now`, or the last moment there was: a clock that was set back changes no order."""
        self._now = max(self._now, now)
        return self._now

    def _prune(self, node: Node) -> list[Gone]:
        gone = []
        one: Node | None = node
        while one is not None and not one.needed:
            if one.size:
                gone.append(Gone(one.identity, one.key, Kind.PAGE, one.size))
                self.bytes -= one.size
            del self._nodes[one.key]
            if one.parent is not None:
                one.parent.children -= 1
            one = one.parent
        return gone
