"""Prompts by their pages: what is known of a prompt, page by page, and under which identity.

Owns tokens and the tree they form; what hangs at a node is its user's. Knows no pages of the pool
and no bytes. A node stands for the tokens [0, depth * page_rows) of some prompts, exactly: its
children are found by the tokens of the next page, so a hash finds and equality decides, and a
prefix that many prompts share is held once. Invariant: every leaf carries a value.

`chain` gives each such prefix a digest, for whoever must name a prefix without its tokens.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")


def page_key(tokens: Sequence[int], page: int, page_rows: int) -> bytes:
    """The tokens of one whole page, as little-endian uint32 on every machine that is served."""
    return array("I", tokens[page * page_rows : (page + 1) * page_rows]).tobytes()


def root(identity: bytes) -> bytes:
    """What the chain of any prompt under `identity` begins with."""
    return blake2b(identity, digest_size=16).digest()


def chain(identity: bytes, tokens: Sequence[int], page_rows: int) -> Iterator[bytes]:
    """A digest of 16 bytes for each prefix of whole pages, the shortest first.

    Each covers the one before it, so equal digests mean equal tokens from the start on, under
    the same identity.
    """
    digest = root(identity)
    for page in range(len(tokens) // page_rows):
        digest = link(digest, page_key(tokens, page, page_rows))
        yield digest


def common_pages(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Leading pages of two prompts, by their chains, that hold the same tokens."""
    return bisect_left(range(min(len(one), len(other))), True, key=lambda p: one[p] != other[p])


def link(digest: bytes, key: bytes) -> bytes:
    """The digest of a prefix and one more page."""
    return blake2b(digest + key, digest_size=16).digest()


class Node(Generic[T]):
    """A prefix of whole pages."""

    __slots__ = ("children", "depth", "digest", "key", "parent", "value")

    def __init__(self, parent: Node[T] | None, key: bytes, digest: bytes) -> None:
        self.parent = parent
        self.key = key
        """The tokens of its last page; a root's is its identity."""
        self.depth: int = 0 if parent is None else parent.depth + 1
        """Pages."""
        self.digest = digest
        self.children: dict[bytes, Node[T]] = {}
        self.value: T | None = None


class PrefixTree(Generic[T]):
    """Values at prefixes of whole pages, one tree an identity."""

    def __init__(self, page_rows: int) -> None:
        self.page_rows = page_rows
        self._roots: dict[bytes, Node[T]] = {}

    def __len__(self) -> int:
        """Identities that have a value somewhere."""
        return len(self._roots)

    def walk(self, identity: bytes, tokens: Sequence[int]) -> Iterator[Node[T]]:
        """The nodes that begin like `tokens`, from one page on, as far as the tree knows them."""
        node = self._roots.get(identity)
        for page in range(len(tokens) // self.page_rows):
            if node is None:
                return
            node = node.children.get(page_key(tokens, page, self.page_rows))
            if node is not None:
                yield node

    def others(self, identity: bytes) -> Iterator[bytes]:
        """The other identities that have values."""
        return (known for known in self._roots if known != identity)

    def shared(self, identity: bytes, tokens: Sequence[int]) -> int:
        """Leading tokens that `tokens` shares with the nearest prompt of the tree."""
        root = self._roots.get(identity)
        if root is None:
            return 0
        *_, node = (root, *self.walk(identity, tokens))
        start = node.depth * self.page_rows
        rest = tokens[start : start + self.page_rows]
        return start + max((_common(rest, child) for child in node.children), default=0)

    def place(self, identity: bytes, tokens: Sequence[int], pages: int) -> Node[T]:
        """The node of the first `pages` pages, made where it is missing. It must be given a
        value, or pruned."""
        assert 0 < pages * self.page_rows <= len(tokens), f"{pages} pages of {len(tokens)} tokens"
        node = self._roots.get(identity)
        if node is None:
            node = Node(None, identity, root(identity))
            self._roots[identity] = node
        for page in range(pages):
            key = page_key(tokens, page, self.page_rows)
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = Node(node, key, link(node.digest, key))
            node = child
        return node

    def prune(self, node: Node[T]) -> None:
        """Forget `node`'s value, and every page that leads to no value any more."""
        node.value = None
        while node.value is None and not node.children:
            if node.parent is None:
                del self._roots[node.key]
                return
            del node.parent.children[node.key]
            node = node.parent

    def check(self) -> None:
        """Prove the invariant; AssertionError says what broke."""
        todo = list(self._roots.values())
        for node in todo:
            assert node.children or node.value is not None, f"a bare leaf at page {node.depth}"
            for key, child in node.children.items():
                assert child.key == key, f"a node under other tokens at page {child.depth}"
                assert child.parent is node, f"a stray node at page {child.depth}"
            todo.extend(node.children.values())


def _common(tokens: Sequence[int], key: bytes) -> int:
    """Leading tokens that a page and a key have in common."""
    known = array("I")
    known.frombytes(key)
    for place, (one, other) in enumerate(zip(tokens, known, strict=False)):
        if one != other:
            return place
    return min(len(tokens), len(known))
