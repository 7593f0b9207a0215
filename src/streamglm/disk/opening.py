"""A locked folder becomes an index: repaired, within its limit, and its strangers named.

Owns the order of an opening, and the lines that it logs. Knows no settings. Raises `DiskError`
that names the folder.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Mapping

from streamglm.disk.index import Index
from streamglm.disk.limits import MARGIN, Limits
from streamglm.disk.store import Foreign, Opened, Store
from streamglm.errors import DiskError

_log = logging.getLogger(__name__)


def open_index(
    store: Store, identity: bytes, world: int, parts: Mapping[str, str], limits: Limits
) -> Index:
    """Repair a folder, and make it ready for records of `identity`, which is made of `parts`."""
    try:
        opened = store.open()
        strangers = store.introduce(identity, world, parts)
        index = Index(identity)
        store.worlds()
        store.remove(index.load(opened.pages, opened.states))
        evicted = _settle(store, index, limits)
    except (OSError, sqlite3.Error) as error:
        raise DiskError(f"--learn-conversations {store.folder}: {error}") from None
    _tell(opened, evicted, index, limits)
    _tell_strangers(strangers, parts, index)
    return index


def _settle(store: Store, index: Index, limits: Limits) -> int:
    """Evict until the folder is within its limit; how many states went."""
    evicted = 0
    while index.bytes + store.overhead() + MARGIN > limits.total:
        stored = index.oldest()
        if stored is None:
            break
        store.remove(index.remove(stored))
        evicted += 1
    return evicted


def _tell(opened: Opened, evicted: int, index: Index, limits: Limits) -> None:
    if opened.rebuilt:
        _log.warning("the index of learned conversations was lost; it is made anew from records")
    for name in opened.damaged:
        _log.warning("record %s is cut or missing; it is removed and computed again", name)
    if opened.leftovers:
        _log.info("%d files that a stop left half-written are removed", opened.leftovers)
    if evicted:
        _log.info("%d states went, for the limit of %s bytes", evicted, f"{limits.total:,}")
    _log.info(
        "learned conversations: %d states, %s bytes of %s",
        index.own,
        f"{index.bytes:,}",
        f"{limits.total:,}",
    )


def _tell_strangers(strangers: list[Foreign], parts: Mapping[str, str], index: Index) -> None:
    """One line an identity: what lies there, and why it is not read."""
    states = Counter(stored.node.identity for stored in index.states())
    for other in strangers:
        if not states[other.identity]:
            continue
        differs = [name for name in parts if other.parts.get(name) != parts[name]]
        _log.info(
            "%d states of another %s are not read; they count toward the limit and go first",
            states[other.identity],
            " and ".join(differs) or "index",
        )
