"""Every metric once: name, kind, labels, help. A leaf: fills nothing, knows no registry.

Owns the table that `/metrics` is built from and that docs are generated from. Names follow
Prometheus: a unit at the end, `_total` for what only grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table. `buckets` are upper bounds in seconds, of histograms alone."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# A gap between tokens is milliseconds, a wait for a prompt of a million tokens is minutes.
GAPS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
WAITS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

LANES = Metric("streamglm_lanes", "gauge", "Replies that can be computed side by side.")
RUNNING = Metric("streamglm_requests_running", "gauge", "Requests that hold a lane.")
WAITING = Metric(
    "streamglm_requests_waiting",
    "gauge",
    "Requests that wait, by what they wait for: lanes, pages, or a prefix that another computes.",
    ("reason",),
)
PAGES_TOTAL = Metric("streamglm_pages_total", "gauge", "Pages of the pool, by class.", ("class",))
PAGES_LEASED = Metric(
    "streamglm_pages_leased", "gauge", "Pages that requests hold, by class.", ("class",)
)
PAGES_KEPT = Metric(
    "streamglm_pages_kept",
    "gauge",
    "Pages that kept prompts alone hold, by class; any request may have them.",
    ("class",),
)
PAGES_FREE = Metric(
    "streamglm_pages_free", "gauge", "Pages that nothing holds, by class.", ("class",)
)
PREFILL_DONE = Metric(
    "streamglm_prefill_rows_done", "gauge", "Rows computed of the prompts that are in progress."
)
PREFILL_WANTED = Metric(
    "streamglm_prefill_rows_wanted", "gauge", "Rows in all of the prompts that are in progress."
)
PROMPT_TOKENS = Metric(
    "streamglm_prompt_tokens_total", "counter", "Prompt tokens that were computed."
)
GENERATED_TOKENS = Metric(
    "streamglm_generated_tokens_total", "counter", "Tokens that were generated."
)
ROUNDS = Metric("streamglm_rounds_total", "counter", "Rounds that the ranks ran.")
PROMPT_SECONDS = Metric(
    "streamglm_prompt_seconds_total", "counter", "Seconds that the ranks spent on prompts."
)
WINDOW_SECONDS = Metric(
    "streamglm_window_seconds_total", "counter", "Seconds that the ranks spent on replies."
)
DRAFT_SECONDS = Metric(
    "streamglm_draft_seconds_total",
    "counter",
    "Seconds that the ranks spent on drafts of the next-token layer.",
)
SENT = Metric(
    "streamglm_rank_sent_bytes_total",
    "counter",
    "Bytes that ranks sent one another, by what: add (partial sums), join (logits), and with "
    "`--kv-split` exchange (queries and outputs), fetch (histories) and carry (kept rows).",
    ("what",),
)
DRAFTED = Metric(
    "streamglm_drafted_tokens_total",
    "counter",
    "Draft tokens that were verified, by who drafted them: chain (the next-token layer) or lookup "
    "(copies from the conversation).",
    ("drafter",),
)
ACCEPTED = Metric(
    "streamglm_accepted_tokens_total",
    "counter",
    "Draft tokens that came true, by who drafted them.",
    ("drafter",),
)
KEPT_STATES = Metric(
    "streamglm_kept_states", "gauge", "Kept prompt states, by where they lie.", ("tier",)
)
KEPT_BYTES = Metric(
    "streamglm_kept_bytes",
    "gauge",
    "Bytes of kept prompt states; of shared ones, their slots and the pages that they alone hold.",
    ("tier",),
)
SLOTS = Metric("streamglm_kept_slots", "gauge", "Places of kept states that share pages.")
SLOTS_FREE = Metric("streamglm_kept_slots_free", "gauge", "Places that nothing is in.")
HITS = Metric(
    "streamglm_prompt_hits_total", "counter", "Prompts that resumed from a kept state.", ("tier",)
)
MISSES = Metric(
    "streamglm_prompt_misses_total",
    "counter",
    "Prompts that were computed from the start, by why: off, short, empty, differs, identity or "
    "evicted.",
    ("reason",),
)
CACHED_TOKENS = Metric(
    "streamglm_cached_tokens_total", "counter", "Prompt tokens that were not computed again."
)
KEPT = Metric("streamglm_kept_total", "counter", "States that were kept.")
KNOWN = Metric(
    "streamglm_kept_known_total", "counter", "Marks whose state was kept or on its way already."
)
KEEPS_REFUSED = Metric("streamglm_kept_refused_total", "counter", "Marks that found no place.")
ABANDONED = Metric(
    "streamglm_kept_abandoned_total", "counter", "Marks that their request did not reach."
)
EVICTED = Metric(
    "streamglm_evicted_total",
    "counter",
    "Kept states that went to make room, by where they were.",
    ("tier",),
)
DEMOTED = Metric(
    "streamglm_demoted_total", "counter", "Kept states that moved from the device to host memory."
)
CARRIED = Metric(
    "streamglm_prompt_carries_total",
    "counter",
    "Prompts whose kept rows went to another rank first: their own had no room (`--kv-split`).",
)
DISK_BYTES = Metric(
    "streamglm_disk_bytes", "gauge", "The folder of learned conversations, its index included."
)
DISK_LIMIT = Metric("streamglm_disk_limit_bytes", "gauge", "The most that folder may hold.")
DISK_QUEUE = Metric("streamglm_disk_queue", "gauge", "Kept states on their way to the disk.")
DISK_QUEUE_BYTES = Metric(
    "streamglm_disk_queue_bytes", "gauge", "Memory that waits to be written to the disk."
)
DISK_READING = Metric("streamglm_disk_reading", "gauge", "Kept states that are being read back.")
DISK_LEARNED = Metric("streamglm_disk_learned_total", "counter", "Kept states that were written.")
DISK_WRITTEN = Metric("streamglm_disk_written_bytes_total", "counter", "Bytes of their files.")
DISK_RAW = Metric(
    "streamglm_disk_raw_bytes_total", "counter", "The same bytes before they were packed."
)
DISK_READ = Metric(
    "streamglm_disk_read_bytes_total", "counter", "Bytes of the files of states that were restored."
)
DISK_EVICTED = Metric(
    "streamglm_disk_evicted_total", "counter", "States that left the disk to make room."
)
DISK_DROPPED = Metric(
    "streamglm_disk_dropped_total",
    "counter",
    "States that were not written, by why: backoff (a write failed not long ago), limit (it does "
    "not fit), failed, memory (a request needed it) or forgotten.",
    ("reason",),
)
DISK_LOST = Metric(
    "streamglm_disk_lost_total",
    "counter",
    "Records that could not be used and were removed, by kind: page or fixed.",
    ("kind",),
)
REQUESTS = Metric(
    "streamglm_requests_total",
    "counter",
    "Generation requests that ended, by how: stop, length, cancelled, failed or refused.",
    ("finish",),
)
FIRST_TOKEN = Metric(
    "streamglm_first_token_seconds",
    "histogram",
    "From a request's arrival to its first token.",
    buckets=WAITS,
)
TOKEN_GAP = Metric(
    "streamglm_token_gap_seconds",
    "histogram",
    "Between a reply's tokens, one sample a round.",
    buckets=GAPS,
)
REQUEST_SECONDS = Metric(
    "streamglm_request_seconds",
    "histogram",
    "From a request's arrival to its last token.",
    buckets=WAITS,
)
QUEUE_SECONDS = Metric(
    "streamglm_queue_seconds", "histogram", "From a request's arrival to its lane.", buckets=WAITS
)

METRICS = (
    LANES,
    RUNNING,
    WAITING,
    PAGES_TOTAL,
    PAGES_LEASED,
    PAGES_KEPT,
    PAGES_FREE,
    PREFILL_DONE,
    PREFILL_WANTED,
    PROMPT_TOKENS,
    GENERATED_TOKENS,
    ROUNDS,
    PROMPT_SECONDS,
    WINDOW_SECONDS,
    DRAFT_SECONDS,
    SENT,
    DRAFTED,
    ACCEPTED,
    KEPT_STATES,
    KEPT_BYTES,
    SLOTS,
    SLOTS_FREE,
    HITS,
    MISSES,
    CACHED_TOKENS,
    KEPT,
    KNOWN,
    KEEPS_REFUSED,
    ABANDONED,
    EVICTED,
    DEMOTED,
    CARRIED,
    DISK_BYTES,
    DISK_LIMIT,
    DISK_QUEUE,
    DISK_QUEUE_BYTES,
    DISK_READING,
    DISK_LEARNED,
    DISK_WRITTEN,
    DISK_RAW,
    DISK_READ,
    DISK_EVICTED,
    DISK_DROPPED,
    DISK_LOST,
    REQUESTS,
    FIRST_TOKEN,
    TOKEN_GAP,
    REQUEST_SECONDS,
    QUEUE_SECONDS,
)
