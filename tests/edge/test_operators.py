"""What operators read: models, health, metrics."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from streamglm import metrics
from streamglm.core.engine import Health
from streamglm.edge.meters import Seconds
from streamglm.errors import Overloaded
from streamglm.metrics import METRICS
from streamglm.request import Finished, FinishReason, Started, Tokens
from support.engine import FakeReply
from support.manual import settle
from support.world import COMPLETIONS, Make, World


async def sample(world: World, name: str, **labels: str) -> float:
    text = (await world.http.get("/metrics")).text
    for family in text_string_to_metric_families(text):
        for found in family.samples:
            if found.name == name and found.labels == labels:
                return float(found.value)
    raise AssertionError(f"no {name} {labels}")


async def test_models_name_the_window(world: World) -> None:
    listed = (await world.http.get("/v1/models")).json()
    assert listed["object"] == "list"
    (entry,) = listed["data"]
    assert entry == (await world.http.get("/v1/models/tiny")).json()
    assert (entry["id"], entry["object"], entry["created"]) == ("tiny", "model", 1_700_000_000)
    assert entry["context_length"] == entry["max_model_len"] == 4096
    assert (await world.http.get("/v1/models/zai-org/other")).status_code == 404


async def test_health_is_ok_only_while_the_ranks_answer(world: World) -> None:
    answer = await world.http.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    counts = answer.json()
    assert (counts["waiting"], counts["kept_states"]) == (2, 4)
    assert counts["pages_free"] + counts["pages_leased"] + counts["pages_kept"] == 40
    world.engine.state = Health(ok=False, reason="rank 0 does not answer")
    answer = await world.http.get("/health")
    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert answer.json()["reason"] == "rank 0 does not answer"


async def test_a_sick_server_shows_no_reason_without_a_key(make: Make) -> None:
    world = make(api_key="k")
    world.engine.state = Health(ok=False, reason="rank 0 does not answer")
    answer = await world.http.get("/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})


async def test_every_metric_of_the_table_is_there_and_no_other(world: World) -> None:
    answer = await world.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    helped = dict(re.findall(r"^# HELP (\S+) (.+)$", answer.text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\S+) (.+)$", answer.text, re.MULTILINE))
    for name in [name for name in helped if name.endswith("_created")]:
        del helped[name], kinds[name]
    assert helped == {row.name: row.help for row in METRICS}
    assert kinds == {row.name: row.kind for row in METRICS}


async def test_the_engines_counts_are_shown(world: World) -> None:
    assert await sample(world, "streamglm_requests_running") == 3
    assert await sample(world, "streamglm_rank_sent_bytes_total", what="add") == 7
    assert await sample(world, "streamglm_requests_waiting", reason="pages") == 2
    assert await sample(world, "streamglm_requests_waiting", reason="lanes") == 0
    assert await sample(world, "streamglm_pages_total", **{"class": "0"}) == 40
    assert await sample(world, "streamglm_pages_leased", **{"class": "0"}) == 22
    assert await sample(world, "streamglm_pages_kept", **{"class": "0"}) == 7
    assert await sample(world, "streamglm_pages_free", **{"class": "0"}) == 11
    assert await sample(world, "streamglm_prefill_rows_done") == 128
    assert await sample(world, "streamglm_prefill_rows_wanted") == 377
    assert await sample(world, "streamglm_prompt_tokens_total") == 1234
    assert await sample(world, "streamglm_generated_tokens_total") == 567
    assert await sample(world, "streamglm_rounds_total") == 89


async def test_kept_prompts_are_counted_by_tier_and_reason(world: World) -> None:
    assert await sample(world, "streamglm_kept_states", tier="shared") == 3
    assert await sample(world, "streamglm_kept_bytes", tier="host") == 1000
    assert await sample(world, "streamglm_kept_slots") == 8
    assert await sample(world, "streamglm_kept_slots_free") == 5
    assert await sample(world, "streamglm_prompt_hits_total", tier="shared") == 21
    assert await sample(world, "streamglm_prompt_misses_total", reason="evicted") == 4
    assert await sample(world, "streamglm_evicted_total", tier="host") == 3
    assert await sample(world, "streamglm_cached_tokens_total") == 4321
    for name, count in (("", 31), ("_known", 32), ("_refused", 33), ("_abandoned", 34)):
        assert await sample(world, f"streamglm_kept{name}_total") == count
    assert await sample(world, "streamglm_demoted_total") == 35
    assert await sample(world, "streamglm_prompt_carries_total") == 36


async def test_the_pool_is_shown_with_pages_kept_prompts_and_lanes(world: World) -> None:
    assert (await world.http.get("/v1/pool")).json() == {
        "page_rows": 64,
        "pages": [{"total": 40, "free": 11, "leased": 22, "kept": 7}],
        "slots": 8,
        "slots_free": 5,
        "kept": [
            {
                "tokens": 192,
                "bytes": 100,
                "tier": "shared",
                "borrowed": False,
                "age_seconds": 9.5,
                "idle_seconds": 2.25,
                "home": 0,
            }
        ],
        "lanes": [
            {
                "lane": 2,
                "request_id": "chatcmpl-1",
                "state": "filling",
                "background": True,
                "position": 128,
                "prompt_tokens": 300,
                "cached_tokens": 64,
                "pages": 6,
                "owner": 0,
            }
        ],
    }


async def test_the_pool_asks_for_a_key(make: Make) -> None:
    assert (await make(api_key="k").http.get("/v1/pool")).status_code == 401


async def test_a_map_is_added_on_request(world: World) -> None:
    plain = (await world.http.get("/v1/pool")).json()
    shown = (await world.http.get("/v1/pool?cells=100")).json()
    assert {name: shown.pop(name) for name in ("now", "map")} == {
        "now": {
            "lanes": 4,
            "running": 3,
            "waiting": {"lanes": 0, "pages": 2, "prefix": 0},
            "prompt_tokens": 1234,
            "generated_tokens": 567,
        },
        "map": {
            "pages_per_cell": 1,
            "classes": [{"pages": 40, "runs": [0, 4, 1, 6, 4, 22, 0, 8]}],
        },
    }
    assert shown == plain


@pytest.mark.parametrize("cells", ["0", "4097", "-1", "1.5", "", "x", "9" * 5000, "\u0663"])
async def test_a_map_of_another_size_is_refused(world: World, cells: str) -> None:
    answer = await world.http.get("/v1/pool", params={"cells": cells})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "cells")
    assert len(answer.content) < 300


async def test_a_histogram_is_the_librarys(world: World) -> None:
    """Ours is cheaper, and says the same."""
    registry = CollectorRegistry()
    row = metrics.TOKEN_GAP
    theirs = Histogram(row.name, row.help, registry=registry, buckets=row.buckets)
    ours = Seconds(row)
    for seconds in (0.0, 0.001, 0.0011, 0.05, 0.0500001, 9.9, 10.0, 10.1, 1e9):
        theirs.observe(seconds)
        ours.observe(seconds)
    (family,) = ours.collect()
    (wanted,) = theirs.collect()
    told = {(one.name, one.labels.get("le")): one.value for one in family.samples}
    expected = {(one.name, one.labels.get("le")): one.value for one in wanted.samples}
    assert told == {name: value for name, value in expected.items() if "_created" not in name[0]}


async def test_requests_are_counted_by_how_they_ended(world: World) -> None:
    world.say("one two three")
    await world.whole(COMPLETIONS, prompt="x")
    await world.stream(COMPLETIONS, prompt="x", stop="two")
    await world.whole(COMPLETIONS, prompt="x", max_tokens=1)
    await world.refused(n=2)
    world.engine.refusal = Overloaded("full")
    await world.ask()
    counts = {"stop": 2, "length": 1, "refused": 3, "cancelled": 0, "failed": 0}
    for finish, count in counts.items():
        assert await sample(world, "streamglm_requests_total", finish=finish) == count


async def test_latencies_are_measured_by_the_servers_clock(world: World) -> None:
    call = world.call(stream=True)
    await settle()
    reply: FakeReply = world.engine.replies[-1]
    await world.clock.advance(2)
    reply.put(Started(0))
    await world.clock.advance(3)
    reply.put(Tokens((40,)))
    await world.clock.advance(1)
    reply.put(Tokens((40, 41)))
    await world.clock.advance(1)
    reply.put(Finished(FinishReason.LENGTH))
    await call.task
    for name, seconds, count in (
        ("queue", 2, 1),
        ("first_token", 5, 1),
        ("token_gap", 1, 1),
        ("request", 7, 1),
    ):
        assert await sample(world, f"streamglm_{name}_seconds_sum") == seconds
        assert await sample(world, f"streamglm_{name}_seconds_count") == count


async def test_two_apps_have_two_registries(make: Make) -> None:
    first, second = make(), make()
    first.say("a")
    await first.whole()
    assert await sample(first, "streamglm_requests_total", finish="stop") == 1
    assert await sample(second, "streamglm_requests_total", finish="stop") == 0
