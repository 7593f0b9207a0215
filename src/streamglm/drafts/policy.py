"""How many drafts a round takes: as many as make the most tokens a second.

Owns what is known of acceptance and of seconds, and the choice between them. Pure: seconds are
given to it, so that the same numbers give the same choices; it holds no clock and sees no token.

A window of n lanes with m drafts gives n + sum(p) tokens, p being the chance that a draft and all
before it in its lane come true, and takes the seconds that such windows took before. Drafts are
taken in the order of their chances, over all lanes, up to the number at which tokens a second are
highest. What was never measured is guessed from the nearest that was, a little low, so that it is
tried; what is not tried any more is forgotten slowly, so that it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamglm.drafts.drafter import Source

_FIRST = {Source.CHAIN: 0.6, Source.HINT: 0.45, Source.QUOTE: 0.8}
"""Chances before anything was seen."""
_WEIGHT = 2.0
"""Drafts that a first chance counts as."""
PLACES = 4
"""Places of a run that are told apart, the last one standing for all behind it: a layer that was
never trained on its own output drafts one token well and the next one badly."""

_LEAST = 0.01
"""A chance that is worth no row of any window."""

Offer = Sequence[float]
"""The chance of each draft to come true along with all before it."""


class Acceptance:
    """The chance that the draft at a place comes true when those before it did: means that forget.

    `keep` is the share of the evidence that outlives a window with drafts, `rest` that which
    outlives one without."""

    __slots__ = ("_false", "_first", "_keep", "_rest", "_true")

    def __init__(self, first: Callable[[int], float], keep: float, rest: float) -> None:
        self._first = first
        self._keep = keep
        self._rest = rest
        self._true = [0.0] * PLACES
        self._false = [0.0] * PLACES

    def chance(self, place: int) -> float:
        """Of a draft at `place`, from 0."""
        at = min(place, PLACES - 1)
        seen = self._true[at] + self._false[at]
        return (self._true[at] + _WEIGHT * self._first(at)) / (seen + _WEIGHT)

    def offer(self, count: int) -> list[float]:
        """Of a run of `count` drafts."""
        found, all_before = [], 1.0
        for place in range(count):
            all_before *= self.chance(place)
            found.append(all_before)
        return found

    def add(self, drafts: int, accepted: int) -> None:
        """A window took `drafts`, and the first `accepted` came true."""
        self._fade(self._keep)
        for place in range(accepted):
            self._true[min(place, PLACES - 1)] += 1.0
        if accepted < drafts:
            self._false[min(accepted, PLACES - 1)] += 1.0

    def idle(self) -> None:
        """A window took none."""
        self._fade(self._rest)

    def _fade(self, share: float) -> None:
        self._true = [share * one for one in self._true]
        self._false = [share * one for one in self._false]


class Chances:
    """Acceptance of one reply by source; a new reply starts with what the engine has seen."""

    __slots__ = ("_by_source",)

    def __init__(self, before: Chances | None = None) -> None:
        keep, rest = (0.98, 0.998) if before is None else (0.9, 0.98)
        self._by_source = {
            source: Acceptance(_first(source, before), keep, rest) for source in Source
        }

    def of(self, source: Source) -> Acceptance:
        return self._by_source[source]

    def add(self, source: Source, drafts: int, accepted: int) -> None:
        """A window took `drafts` of `source`, and the first `accepted` came true."""
        self._by_source[source].add(drafts, accepted)
        self._idle(source)

    def idle(self) -> None:
        """A window took no drafts."""
        self._idle(None)

    def _idle(self, used: Source | None) -> None:
        for source, acceptance in self._by_source.items():
            if source is not used:
                acceptance.idle()


def _first(source: Source, before: Chances | None) -> Callable[[int], float]:
    first = _FIRST[source]
    return (lambda place: first) if before is None else before.of(source).chance


class Seconds:
    """Seconds by (lanes, size): running means, and guesses from the nearest size.

    `growth` is what one more of a size is guessed to add, as a share of the seconds at the
    smallest."""

    __slots__ = ("_growth", "_known")

    _SHARE = 0.2
    """Of a new measurement in the mean; it counts as at most twice and at least half the mean."""

    def __init__(self, growth: float) -> None:
        self._growth = growth
        self._known: dict[int, dict[int, float]] = {}

    def add(self, lanes: int, size: int, seconds: float) -> None:
        """`lanes` with `size` took `seconds`."""
        known = self._known.setdefault(lanes, {})
        mean = known.get(size)
        if mean is None:
            known[size] = seconds
        else:
            seconds = min(max(seconds, mean / 2.0), 2.0 * mean)
            known[size] = mean + self._SHARE * (seconds - mean)

    def guess(self, lanes: int, size: int) -> float | None:
        """What it would take; None where nothing of `lanes` was measured."""
        known = self._known.get(lanes)
        if not known:
            return None
        if size in known:
            return known[size]
        below = max((one for one in known if one < size), default=None)
        above = min((one for one in known if one > size), default=None)
        if below is None or above is None:
            nearest = below if above is None else above
            assert nearest is not None
            return known[nearest] * self._grown(size) / self._grown(nearest)
        part = (size - below) / (above - below)
        return known[below] + part * (known[above] - known[below])

    def _grown(self, size: int) -> float:
        return 1.0 + self._growth * size


class Policy:
    """Choices for windows of at most `window_rows` rows. `measured` follows each window."""

    def __init__(self, window_rows: int) -> None:
        self._rows = window_rows
        self._windows = Seconds(0.08)
        self._chains = Seconds(0.8)
        self.chances = Chances()

    def measured(self, lanes: int, rows: int, seconds: float) -> None:
        """A window of `rows` rows of `lanes` lanes took `seconds`."""
        self._windows.add(lanes, rows - lanes, seconds)

    def drafted(self, lanes: int, depth: int, seconds: float) -> None:
        """Drafting behind `lanes` lanes, at most `depth` tokens, took `seconds`."""
        self._chains.add(lanes, depth, seconds)

    def take(self, offers: Sequence[Offer]) -> list[int]:
        """How many drafts each lane of a window verifies, of those that it is offered."""
        return self._best(offers, lambda counts: 0.0)

    def ask(self, offers: Sequence[Offer]) -> list[int]:
        """How many drafts to ask of the next-token layer for each lane of the next window."""
        return self._best(offers, self._chain_seconds)

    def _chain_seconds(self, counts: Sequence[int]) -> float:
        depth = max(counts)
        if not depth:
            return 0.0
        lanes = sum(count > 0 for count in counts)
        known = self._chains.guess(lanes, depth)
        if known is None:
            known = 0.12 * depth * (self._windows.guess(len(counts), 0) or 0.0)
        return known

    def _best(self, offers: Sequence[Offer], more: Callable[[Sequence[int]], float]) -> list[int]:
        lanes = len(offers)
        counts, best = [0] * lanes, [0] * lanes
        if not any(offers):
            return best
        if self._windows.guess(lanes, 0) is None:
            return [min(1, len(offer)) for offer in offers] if lanes == 1 else best
        steps = sorted(
            (-chance, lane)
            for lane, offer in enumerate(offers)
            for chance in offer
            if chance > _LEAST
        )
        tokens, rate = float(lanes), 0.0
        for size in range(min(len(steps), self._rows - lanes) + 1):
            if size:
                less, lane = steps[size - 1]
                tokens -= less
                counts[lane] += 1
            seconds = self._windows.guess(lanes, size)
            assert seconds is not None
            found = tokens / max(seconds + more(counts), 1e-9)
            if found > rate:
                rate, best = found, counts.copy()
        return best
