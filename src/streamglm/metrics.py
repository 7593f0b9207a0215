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
    "streamglm_requests_waiting", "gauge", "Requests that wait, by what they wait for.", ("reason",)
)
PAGES_TOTAL = Metric("streamglm_pages_total", "gauge", "Pages of the pool.")
PAGES_LEASED = Metric("streamglm_pages_leased", "gauge", "Pages that requests hold.")
PAGES_FREE = Metric("streamglm_pages_free", "gauge", "Pages that nothing holds.")
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
    PAGES_FREE,
    PREFILL_DONE,
    PREFILL_WANTED,
    PROMPT_TOKENS,
    GENERATED_TOKENS,
    ROUNDS,
    PROMPT_SECONDS,
    WINDOW_SECONDS,
    REQUESTS,
    FIRST_TOKEN,
    TOKEN_GAP,
    REQUEST_SECONDS,
    QUEUE_SECONDS,
)
