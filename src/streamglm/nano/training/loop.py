"""The training loop: rows in, parameters out, resumable at any step.

Owns the order of a step, the log and the state file. Knows no data and no formulas. Invariant: a
run that was stopped and resumed takes the same rows and the same rates as one that was not.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from streamglm.model.spec import ModelSpec
from streamglm.nano.training import batches, plot, scores, weights
from streamglm.nano.training.backend import Backend, Segments
from streamglm.nano.training.batches import Packed
from streamglm.nano.training.net import Net, Outcome, Row
from streamglm.nano.training.optim import Optimizer
from streamglm.nano.training.schedule import Course

BIAS_RATE = 1e-3
"""Step of the router's bias towards an even load of the experts."""
SAVE_SECONDS = 60.0
"""Time between two saves."""


def to_device(packed: Packed, longest: int, device: torch.device) -> Row:
    """A packed row as tensors. Copies are queued, not waited for."""

    def moved(array: Any, dtype: torch.dtype) -> torch.Tensor:
        tensor = torch.from_numpy(array.astype(np.int32) if array.dtype == np.uint16 else array)
        if device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(device, non_blocking=True).to(dtype)

    edges = torch.from_numpy(packed.edges)
    return Row(
        ids=moved(packed.ids, torch.int64),
        targets=moved(packed.targets, torch.int64),
        weight=moved(packed.weight, torch.float32),
        start=moved(packed.start, torch.int32),
        tiles=moved(packed.tiles, torch.int64),
        segments=Segments(moved(packed.edges, torch.int64), edges),
        longest=longest,
    )


class Trainer:
    """Parameters, optimizer and log of one run in `folder`."""

    def __init__(
        self,
        spec: ModelSpec,
        course: Course,
        backend: Backend,
        folder: Path,
        device: torch.device,
        *,
        matrices: bool = True,
    ) -> None:
        self.spec = spec
        self.course = course
        self.folder = folder
        self.device = device
        self.step = 0
        self.seconds = 0.0
        self.calm = 1.0
        """Factor on the course's rate; halved when the loss was lost."""
        self.log: list[dict[str, Any]] = []
        torch.manual_seed(course.seed)
        self.params = {
            name: value.to(device).requires_grad_(not name.endswith("e_score_correction_bias"))
            for name, value in weights.initial(spec, course.seed).items()
        }
        self.net = Net(spec, self.params, backend)
        self.optimizer = Optimizer(self.params, matrices)
        self._tally = scores.Tally()

    # ---- state

    @property
    def state_file(self) -> Path:
        return self.folder / "state.pt"

    def save(self) -> None:
        """Everything that a resumed run needs."""
        state = {
            "course": asdict(self.course),
            "step": self.step,
            "seconds": self.seconds,
            "calm": self.calm,
            "log": self.log,
            "params": {name: p.detach() for name, p in self.params.items()},
            "optimizer": self.optimizer.state(),
        }
        new = self.state_file.with_suffix(".new")
        torch.save(state, new)
        new.rename(self.state_file)

    def resume(self) -> bool:
        """Go on from the state file; False when there is none."""
        if not self.state_file.is_file():
            return False
        state = torch.load(self.state_file, map_location=self.device, weights_only=True)
        if state["course"] != asdict(self.course):
            raise ValueError(f"{self.state_file.name} is of another course: {state['course']}")
        with torch.no_grad():
            for name, p in self.params.items():
                p.copy_(state["params"][name])
        self.optimizer.restore(state["optimizer"])
        self.step, self.seconds, self.log = state["step"], state["seconds"], state["log"]
        self.calm = state["calm"]
        return True

    def retreat(self) -> None:
        """After a loss that is no number: the last saved parameters at half the rate, but the
        rows go on, since the same ones might lead there again."""
        step, seconds, log = self.step, self.seconds, self.log
        if not self.resume():
            raise FloatingPointError(f"the loss was lost before the first save, at step {step}")
        self.step, self.seconds, self.log = step, seconds, log
        self.calm /= 2

    def write(self) -> None:
        """The checkpoint's weights, the log and the plot."""
        weights.save(self.spec, self.params, self.folder / "model.safetensors")
        text = "".join([json.dumps(line) + "\n" for line in self.log])
        (self.folder / "log.jsonl").write_text(text)
        (self.folder / "loss.svg").write_text(plot.svg(self.log))

    # ---- steps

    def run(
        self,
        data: Path,
        workers: int,
        *,
        limit: float,
        every: int = 50,
        say: Callable[[str], None] = print,
    ) -> None:
        """Train to the end of the course, or until `limit` seconds have passed. `data` is the
        folder with tokenizer and template."""
        begun = saved = time.monotonic()
        before = self.seconds
        rows = batches.stream(data, self.course, self.step, workers)
        try:
            for packed in rows:
                outcome = self.advance(packed)
                now = time.monotonic()
                self.seconds = before + now - begun
                if self.step % every == 0 or self.step == self.course.steps:
                    say(self._note(packed, outcome))
                    if not math.isfinite(self.log[-1]["next"]):
                        self.retreat()
                    elif now - saved > SAVE_SECONDS:
                        self.save()
                        self.write()
                        saved = now
                if now - begun > limit:
                    break
        finally:
            rows.close()
        self.save()
        self.write()

    def advance(self, packed: Packed) -> Outcome:
        """One step on one row."""
        phase = self.course.phase(self.step)
        row = to_device(packed, phase.longest, self.device)
        outcome = self.net.outcome(
            row, phase.selection, self.course.draft_weight, self.course.index_weight
        )
        outcome.loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step(self.calm * self.course.rate_at(self.step))
        with torch.no_grad():
            for name, load in outcome.loads.items():
                self.params[name].add_(torch.sign(load.mean() - load), alpha=BIAS_RATE)
        self.step += 1
        return outcome

    def _note(self, packed: Packed, outcome: Outcome) -> str:
        """Add a line to the log; the same as text."""
        self._tally.add(
            scores.count(packed, outcome.best.cpu().numpy(), outcome.drafted.cpu().numpy())
        )
        rates = self._tally.rates()
        line: dict[str, Any] = {
            "step": self.step,
            "seconds": round(self.seconds, 1),
            "next": round(float(outcome.next_token), 4),
            "after_next": round(float(outcome.after_next), 4),
            "index": round(float(outcome.index), 4),
            **{name: round(rate, 3) for name, rate in rates.items()},
        }
        self.log.append(line)
        return " ".join([f"{name} {value}" for name, value in line.items()])
