"""`python -m bench decode --drafts POLICIES`: policies for drafts beside decoding without any.

Owns the policies, the texts and the order of a comparison: the gate (every policy gives the tokens
of decoding a row at a time), then times in runs that alternate between policies, then ratios. One
executor serves all of them, so that weights and memory are the same. A policy is

    off   a row a window; always measured, as what the others are compared with
    auto  what the server does by itself
    N     as many drafts in every window as there are, at most N
    T+F   a forced pattern: every window has T drafts that come true and F that do not
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from bench.record import Void, record
from bench.timed import Prompt, token_sha
from streamglm.drafts.replies import NOTHING, DraftLimits, Plan, Replies, Stand
from streamglm.model.executor import Executor
from streamglm.model.spec import ModelSpec
from streamglm.sampling.lane import LaneSampler
from streamglm.step import Begin, Chunk, Draw, Drawn, Row, Step
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer
from streamglm.weights.checkpoint import load

GREEDY = Draw(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
OFF = "off"
QUOTED = (
    "The gate in the north wall opens at six. Door 4417 belongs to the library, door 8093 to the "
    "workshop, and door 2256 to nobody. Whoever finds a key writes its number on the board, turns "
    "the lamp down and tells the keeper, who keeps all the keys in a blue tin behind the clock. "
)
TOLD = (
    "Tell me a story about a gardener and a fox.",
    "Tell me something about the sea, in a few sentences.",
    "Count from 3 to 40, then spell the word window.",
    "What do you know about bread? Tell me more than one thing.",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """One way of drafting, by the name that the command line has for it."""

    name: str
    fixed: int | None = None
    forced: tuple[int, int] | None = None

    @classmethod
    def of(cls, name: str) -> Policy:
        """Raises `Void` for a name that is none."""
        if name in (OFF, "auto"):
            return cls(name, 0 if name == OFF else None)
        if found := re.fullmatch(r"(\d+)\+(\d+)", name):
            return cls(name, None, (int(found[1]), int(found[2])))
        if name.isdecimal():
            return cls(name, int(name))
        raise Void(f"--drafts {name}: a policy is off, auto, a number, or T+F")


@dataclass(slots=True)
class Run:
    """Replies of some streams, side by side."""

    seconds: float = 0.0
    """From the first token of all to the last."""
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: dict[int, list[int]] = field(default_factory=dict)


class Engine:
    """An executor, driven with drafts as the server drives it."""

    def __init__(
        self, folder: Path, policies: Sequence[Policy], *, threads: int, lanes: int, tokens: int
    ) -> None:
        torch.set_num_threads(threads)
        self.spec = ModelSpec.from_folder(folder)
        loaded = load(folder, self.spec)
        self.chain = loaded.mtp
        verify, page = self.spec.rows.verify, self.spec.rows.page
        self._pages = -(-(tokens + verify) // page)
        self._executor = Executor(
            self.spec,
            loaded.params,
            pages=lanes * self._pages,
            lanes=lanes,
            sampler=LaneSampler,
            drafts=True,
        )
        rows = self.spec.rows
        self._replies = {
            policy.name: Replies(DraftLimits(rows.window, rows.verify, self.chain, policy.fixed))
            for policy in policies
        }
        """As a server has them: what one run has shown, the next one knows."""

    def run(
        self, policy: Policy, prompts: Sequence[Prompt], new: int, known: Sequence[Sequence[int]]
    ) -> Run:
        """`new` tokens of each of `prompts`, of which forced drafts know the `known`."""
        replies = self._replies[policy.name]
        run = Run()
        for lane, prompt in enumerate(prompts):
            drawn = self._begin(lane, prompt, new, replies, policy)
            run.tokens[lane] = list(drawn.tokens)
            replies.follow(lane, NOTHING, drawn.tokens, drawn.drafts)
        start = time.perf_counter()
        while going := [lane for lane in run.tokens if len(run.tokens[lane]) < new]:
            self._window(going, prompts, new, replies, policy, known, run)
        run.seconds = time.perf_counter() - start
        self._executor.run(Step(ends=tuple(range(len(prompts)))))
        return run

    def _begin(
        self, lane: int, prompt: Prompt, new: int, replies: Replies, policy: Policy
    ) -> Drawn:
        pages = tuple(range(lane * self._pages, (lane + 1) * self._pages))
        follow = False
        if policy.name != OFF and policy.forced is None:
            follow = replies.begin(lane, prompt, new + self.spec.rows.verify)
        ahead = replies.first(Stand(lane, new, self._room(len(prompt))))
        begins: tuple[Begin, ...] = (Begin(lane, pages, GREEDY, drafts=follow),)
        size = self.spec.rows.chunk
        for at in range(0, len(prompt), size):
            part = prompt[at : at + size]
            last = at + size >= len(prompt)
            chunk = Chunk(lane, at, part, last, ahead if last else 0)
            result = self._executor.run(Step(begins=begins, chunks=(chunk,)))
            begins = ()
        return result.drawn[0]

    def _room(self, position: int) -> int:
        return self._pages * self.spec.rows.page - position

    def _window(
        self,
        lanes: Sequence[int],
        prompts: Sequence[Prompt],
        new: int,
        replies: Replies,
        policy: Policy,
        known: Sequence[Sequence[int]],
        run: Run,
    ) -> None:
        at = {lane: len(prompts[lane]) + len(run.tokens[lane]) - 1 for lane in lanes}
        stands = [Stand(lane, new - len(run.tokens[lane]), self._room(at[lane])) for lane in lanes]
        if policy.forced is None:
            plans = replies.plan(stands)
        else:
            plans = [
                Plan(_forced(known[stand.lane][-stand.left :], policy.forced, stand))
                for stand in stands
            ]
        rows = tuple(
            Row(lane, at[lane], run.tokens[lane][-1], plan.drafts, plan.ahead)
            for lane, plan in zip(lanes, plans, strict=True)
        )
        result = self._executor.run(Step(rows=rows))
        count = sum(len(row.tokens) for row in rows)
        ahead = [row.ahead for row in rows]
        replies.measured(len(rows), count, result.window_seconds, ahead, result.draft_seconds)
        run.rounds += len(rows)
        for one, plan in zip(result.drawn, plans, strict=True):
            replies.follow(one.lane, plan, one.tokens, one.drafts)
            run.tokens[one.lane] += one.tokens
            run.drafted += len(plan.drafts)
            run.accepted += len(one.tokens) - 1


def _forced(left: Sequence[int], pattern: tuple[int, int], stand: Stand) -> tuple[int, ...]:
    """True drafts and false ones, as far as a window and the reply go; `left` are the tokens that
    are still to come."""
    most = min(stand.left, 16) - 1
    true = list(left[: min(pattern[0], most)])
    behind = left[len(true) : len(true) + min(pattern[1], most - len(true))]
    return (*true, *(token ^ 1 for token in behind))


def texts(folder: Path, kind: str, streams: int) -> list[Prompt]:
    """Prompts as the checkpoint's own template has them. Raises `Void` without one."""
    tokenizer, template = Tokenizer.from_folder(folder), ChatTemplate.from_folder(folder)
    if tokenizer is None or template is None:
        raise Void("the checkpoint has no chat template to ask by; use --text random")
    asked = []
    for stream in range(streams):
        start = 41 * stream % len(QUOTED)
        said = (
            f"Repeat exactly: {QUOTED[start:] + QUOTED[:start]}"
            if kind == "quote"
            else f"{TOLD[stream % len(TOLD)]} {'Please. ' * (stream // len(TOLD))}".strip()
        )
        messages = [{"role": "user", "content": said}]
        text = template.render(messages, add_generation_prompt=True, variables={}).text
        asked.append(tuple(tokenizer.encode(text)))
    return asked


def compare(
    engine: Engine, policies: Sequence[Policy], prompts: Sequence[Prompt], new: int, runs: int
) -> dict[str, list[Run]]:
    """The gate, then `runs` timed runs of each policy in alternation, each held to the gate.
    Raises `Void` on a token that differs."""
    serial = Policy(OFF, 0)
    alone = [engine.run(serial, [prompt], new, ()).tokens[0][:new] for prompt in prompts]
    wanted = [token_sha(tokens) for tokens in alone]
    found: dict[str, list[Run]] = {policy.name: [] for policy in policies}
    for index in range(runs + 1):
        for policy in policies:
            run = engine.run(policy, prompts, new, alone)
            got = [token_sha(run.tokens[lane][:new]) for lane in range(len(prompts))]
            if got != wanted:
                raise Void(f"drafts {policy.name}: tokens differ from those without drafts")
            if index:
                found[policy.name].append(run)
    return found


def summary(found: Mapping[str, Sequence[Run]], streams: int, new: int) -> list[dict[str, Any]]:
    """Medians over the runs; the ratio is the median of ratios to the serial run beside each."""
    rows = []
    for name, runs in found.items():
        ratios = [one.seconds / run.seconds for one, run in zip(found[OFF], runs, strict=True)]
        rows.append(
            {
                "drafts": name,
                "tokens_per_second": median(streams * (new - 1) / run.seconds for run in runs),
                "windows": median(run.rounds for run in runs),
                "drafted": median(run.drafted for run in runs),
                "accepted": median(run.accepted for run in runs),
                "over_off": median(ratios),
            }
        )
    return rows


def run(args: argparse.Namespace, folder: Path, random_prompts: Sequence[Prompt]) -> int:
    """Measure, print the table, append the record. Raises `Void`."""
    names = list(dict.fromkeys([OFF, *args.drafts.split(",")]))
    policies = [Policy.of(name) for name in names]
    console = Console()
    for streams in args.streams:
        prompts = (
            random_prompts[:streams] if args.text == "random" else texts(folder, args.text, streams)
        )
        longest = max(map(len, prompts)) + args.new_tokens
        engine = Engine(folder, policies, threads=args.threads, lanes=streams, tokens=longest)
        found = compare(engine, policies, prompts, args.new_tokens, args.runs)
        rows = summary(found, streams, args.new_tokens)
        shapes = {
            "model": args.model if args.model == "nano" else folder.name,
            "text": args.text,
            "streams": streams,
            "prompt_tokens": [len(prompt) for prompt in prompts],
            "new_tokens": args.new_tokens,
            "runs": args.runs,
            "threads": args.threads,
        }
        record("drafts", shapes, {"policies": rows}, folder=args.results)
        console.print(table(shapes, rows))
    return 0


def table(shapes: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    """The numbers for a person."""
    title = (
        f"{shapes['model']}, text {shapes['text']}: {shapes['streams']} streams, "
        f"{shapes['new_tokens']} new, median of {shapes['runs']}; tokens equal"
    )
    shown = Table("drafts", "tokens/s", "windows", "drafted", "accepted", "over off", title=title)
    for row in rows:
        shown.add_row(*_cells(row))
    return shown


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    yield row["drafts"]
    yield f"{row['tokens_per_second']:,.1f}"
    yield from (f"{row[name]:,.0f}" for name in ("windows", "drafted", "accepted"))
    yield f"{row['over_off']:.2f}"
