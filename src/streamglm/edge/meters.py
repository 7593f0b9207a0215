"""Fills the table of `metrics.py`: one registry an app, read when `/metrics` is asked for.

Owns the histograms and the count of ended requests; everything else is the engine's own and is
read from its `stats()` at that moment. Knows no routes. How a request ended is counted here and not
in the engine, which cannot tell a stop string from a client that left: both end by `stop()`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from streamglm import metrics
from streamglm.core.engine import CacheStats, DiskStats, Engine, EngineStats, PagesView
from streamglm.metrics import Metric

ENDS = ("stop", "length", "cancelled", "failed", "refused")


class Meters:
    """The metrics of one app."""

    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_EngineMetrics(engine))
        self.first_token = self._histogram(metrics.FIRST_TOKEN)
        self.gap = self._histogram(metrics.TOKEN_GAP)
        self.request = self._histogram(metrics.REQUEST_SECONDS)
        self.queue = self._histogram(metrics.QUEUE_SECONDS)
        ended = metrics.REQUESTS
        self._ended = Counter(ended.name, ended.help, ended.labels, registry=self._registry)
        for end in ENDS:
            self._ended.labels(end)

    def ended(self, finish: str) -> None:
        """A generation request ended, by one of `ENDS`."""
        self._ended.labels(finish).inc()

    def text(self) -> bytes:
        """Prometheus text of this moment."""
        return generate_latest(self._registry)

    def _histogram(self, row: Metric) -> Seconds:
        made = Seconds(row)
        self._registry.register(made)
        return made


class Seconds(Collector):
    """A histogram of one thread: a sample costs a search and two additions, since there is one for
    every token. The library's own takes a lock twice for each."""

    def __init__(self, row: Metric) -> None:
        self._row = row
        self._counts = [0] * (len(row.buckets) + 1)
        """Samples by the bucket they fall into, the last one beyond all bounds."""
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """One more sample. A bound belongs to the bucket below it."""
        self._counts[bisect_left(self._row.buckets, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterable[Family]:
        bounds = (*map(str, self._row.buckets), "+Inf")
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._row.name, self._row.help, buckets, self._sum)


class _EngineMetrics(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Family]:
        stats = self._engine.stats()
        for row, labelled in (*_labelled(stats), *_pages(self._engine.pool().pages)):
            family = _kind(row)(row.name, row.help, labels=row.labels)
            for label, count in labelled.items():
                family.add_metric([label], count)
            yield family
        for row, value in (*_plain(stats), *_plain_cache(stats.cache), *_plain_disk(stats.disk)):
            yield _kind(row)(row.name, row.help, value=value)


def _kind(row: Metric) -> type[CounterMetricFamily] | type[GaugeMetricFamily]:
    return CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily


def _labelled(stats: EngineStats) -> Iterator[tuple[Metric, Mapping[str, int]]]:
    yield metrics.WAITING, stats.waiting
    yield metrics.DRAFTED, stats.drafted_total
    yield metrics.ACCEPTED, stats.accepted_total
    yield metrics.SENT, stats.sent_total
    yield metrics.KEPT_STATES, stats.cache.states
    yield metrics.KEPT_BYTES, stats.cache.bytes
    yield metrics.HITS, stats.cache.hits_total
    yield metrics.MISSES, stats.cache.misses_total
    yield metrics.EVICTED, stats.cache.evicted_total
    yield metrics.DISK_DROPPED, {} if stats.disk is None else stats.disk.dropped_total
    yield metrics.DISK_LOST, {} if stats.disk is None else stats.disk.lost_total


def _pages(classes: tuple[PagesView, ...]) -> Iterator[tuple[Metric, Mapping[str, int]]]:
    for row, name in (
        (metrics.PAGES_TOTAL, "total"),
        (metrics.PAGES_LEASED, "leased"),
        (metrics.PAGES_KEPT, "kept"),
        (metrics.PAGES_FREE, "free"),
    ):
        yield row, {str(home): getattr(one, name) for home, one in enumerate(classes)}


def _plain(stats: EngineStats) -> Iterator[tuple[Metric, float]]:
    yield metrics.LANES, stats.lanes
    yield metrics.RUNNING, stats.running
    yield metrics.PREFILL_DONE, sum(prompt.done for prompt in stats.prompts)
    yield metrics.PREFILL_WANTED, sum(prompt.total for prompt in stats.prompts)
    yield metrics.PROMPT_TOKENS, stats.prompt_tokens_total
    yield metrics.GENERATED_TOKENS, stats.generated_tokens_total
    yield metrics.ROUNDS, stats.rounds_total
    yield metrics.PROMPT_SECONDS, stats.prompt_seconds_total
    yield metrics.WINDOW_SECONDS, stats.window_seconds_total
    yield metrics.DRAFT_SECONDS, stats.draft_seconds_total


def _plain_cache(cache: CacheStats) -> Iterator[tuple[Metric, float]]:
    yield metrics.SLOTS, cache.slots
    yield metrics.SLOTS_FREE, cache.slots_free
    yield metrics.CACHED_TOKENS, cache.cached_tokens_total
    yield metrics.KEPT, cache.kept_total
    yield metrics.KNOWN, cache.known_total
    yield metrics.KEEPS_REFUSED, cache.refused_total
    yield metrics.ABANDONED, cache.abandoned_total
    yield metrics.DEMOTED, cache.demoted_total
    yield metrics.CARRIED, cache.carried_total


def _plain_disk(disk: DiskStats | None) -> Iterator[tuple[Metric, float]]:
    """Without a disk, zeros: whoever draws a graph sees that nothing is there."""
    yield metrics.DISK_BYTES, disk.bytes if disk else 0
    yield metrics.DISK_LIMIT, disk.limit if disk else 0
    yield metrics.DISK_QUEUE, disk.queue if disk else 0
    yield metrics.DISK_QUEUE_BYTES, disk.queue_bytes if disk else 0
    yield metrics.DISK_READING, disk.reading if disk else 0
    yield metrics.DISK_LEARNED, disk.learned_total if disk else 0
    yield metrics.DISK_WRITTEN, disk.written_bytes_total if disk else 0
    yield metrics.DISK_RAW, disk.raw_bytes_total if disk else 0
    yield metrics.DISK_READ, disk.read_bytes_total if disk else 0
    yield metrics.DISK_EVICTED, disk.evicted_total if disk else 0
