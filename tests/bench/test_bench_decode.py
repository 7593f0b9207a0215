"""The order of `bench decode` (gate, alternation, ratios) on contenders whose times are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from bench import decode
from bench.record import Void
from bench.timed import Prompt, Timed, token_sha

PROMPTS: list[Prompt] = [(index, 7) for index in range(decode.BATCH)]
Calls = list[tuple[str, int]]


@dataclass
class Fake:
    """Replies that are a function of the prompt, unless a run is told to go `wrong`."""

    name: str
    calls: Calls
    seconds: dict[int, list[float]] = field(default_factory=dict)
    wrong: tuple[int, int] | None = None
    """(streams, how many calls at that width go well before one does not)."""
    threads: int = 1

    def generate(self, prompts: Sequence[Prompt], new: int) -> Timed:
        streams = len(prompts)
        before = self.calls.count((self.name, streams))
        self.calls.append((self.name, streams))
        hashes = [token_sha(prompt) for prompt in prompts]
        if self.wrong and self.wrong[0] == streams and before >= self.wrong[1]:
            hashes[-1] = token_sha((9, 9))
        given = self.seconds.get(streams, [1.0])
        return Timed(tuple(hashes), 0.5, given[before % len(given)])


def contenders(calls: Calls, **ours: tuple[int, int]) -> list[Fake]:
    names = {"transformers": "transformers", "engine": "engine", "http": "over HTTP"}
    return [Fake(name, calls, wrong=ours.get(key)) for key, name in names.items()]


def test_a_token_sha_is_that_of_little_endian_ids() -> None:
    """SHA-256 of the eight bytes 01 00 00 00 00 01 00 00."""
    assert token_sha((1, 256)).startswith("242045e2f1bb3776")


@pytest.mark.parametrize("who", ["transformers", "engine", "http"])
@pytest.mark.parametrize("streams", [1, decode.BATCH])
def test_unequal_tokens_stop_the_run_at_the_gate(who: str, streams: int) -> None:
    """At one stream transformers' own first eight answers are what the others are held to."""
    calls: Calls = []
    good = decode.BATCH if (who, streams) == ("transformers", 1) else 0
    fakes = contenders(calls, **{who: (streams, good)})
    with pytest.raises(Void, match=f"at {streams} streams: .* no time is taken"):
        decode.measure(fakes, PROMPTS, 4, runs=3)
    assert len(calls) <= decode.BATCH + 6


def test_unequal_tokens_in_a_later_run_void_it_as_well() -> None:
    fakes = contenders([], engine=(decode.BATCH, 2))
    with pytest.raises(Void, match="engine at 8 streams"):
        decode.measure(fakes, PROMPTS, 4, runs=3)


def test_runs_alternate_between_contenders() -> None:
    calls: Calls = []
    decode.measure(contenders(calls), PROMPTS, 4, runs=2)
    one = [
        (name, streams) for streams in (1, 8) for name in ("transformers", "engine", "over HTTP")
    ]
    assert calls == [("transformers", 1)] * decode.BATCH + one * 3


def test_ratios_are_of_medians_over_whole_runs() -> None:
    """The gate's own run (the first second of each list) counts for nothing."""
    calls: Calls = []
    fakes = contenders(calls)
    fakes[0].seconds = {1: [99.0] * decode.BATCH + [99.0, 8.0, 2.0, 4.0], 8: [99.0, 8.0, 8.0, 8.0]}
    fakes[1].seconds = {1: [99.0, 1.0, 1.0, 9.0], 8: [99.0, 2.0, 2.0, 2.0]}
    fakes[2].seconds = {1: [99.0, 2.0, 2.0, 2.0], 8: [99.0, 2.5, 2.5, 2.5]}
    numbers = decode.summary(decode.measure(fakes, PROMPTS, 5, runs=3), 5)
    assert numbers["ratios"] == {
        "engine / transformers, 1 stream": 4.0,
        "engine at 8 / transformers at 1": 16.0,
        "engine / transformers, 8 streams": 4.0,
        "over HTTP / transformers, 1 stream": 2.0,
        "over HTTP at 8 / transformers at 1": pytest.approx(12.8),
        "over HTTP / transformers, 8 streams": pytest.approx(3.2),
        "over HTTP / engine, 1 stream": 0.5,
        "over HTTP / engine, 8 streams": pytest.approx(0.8),
    }
    engine = next(row for row in numbers["speeds"] if (row["who"], row["streams"]) == ("engine", 1))
    assert (engine["tokens_per_second"], engine["first_ms"]) == (5.0, 500.0)
    assert engine["step_ms"] == 125.0


def test_the_peer_gets_the_threads_that_suit_it() -> None:
    class Threaded(Fake):
        def generate(self, prompts: Sequence[Prompt], new: int) -> Timed:
            return Timed(("x",), 0.1, {1: 2.0}.get(self.threads, 3.0))

    assert decode.suits(Threaded("transformers", []), (1,), 4) == 1
