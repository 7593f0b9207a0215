"""`python -m streamglm.nano.train`: make nano's weights from scratch.

Owns the command line. Needs a CUDA GPU and the `train` extra (`pip install 'streamglm[train]'`);
`--device cpu` runs the same code on small rows, for tests. The folder that it writes can be
served as it is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import torch

from streamglm.nano import folder as built_in
from streamglm.nano.training import backend, export, shape
from streamglm.nano.training.loop import Trainer
from streamglm.nano.training.schedule import Course


def main(arguments: list[str] | None = None) -> None:
    """Train, resume when the folder holds a state, and write the checkpoint."""
    given = build_parser().parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    export.write_files(given.folder)
    if not (given.folder / export.TEMPLATE).exists():
        shutil.copyfile(built_in() / export.TEMPLATE, given.folder / export.TEMPLATE)
    course = Course(steps=given.steps, tokens=given.tokens, rate=given.rate, seed=given.seed)
    device = torch.device(given.device)
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(
        shape.spec(),
        course,
        backend.cuda() if device.type == "cuda" else backend.plain(),
        given.folder,
        device,
        matrices=given.optimizer == "muon",
    )
    if trainer.resume():
        _say(f"resumed at step {trainer.step}")
    trainer.run(given.folder, given.workers, limit=given.seconds, every=given.every, say=_say)
    _say(f"step {trainer.step} of {course.steps} after {trainer.seconds:.0f} s")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m streamglm.nano.train", description=__doc__)
    parser.add_argument("folder", type=Path, help="where state, log and checkpoint go")
    parser.add_argument("--steps", type=int, default=7450, help="length of the whole course")
    parser.add_argument("--tokens", type=int, default=131_072, help="tokens of a step")
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="stop (resumable) after this long"
    )
    parser.add_argument("--every", type=int, default=50, help="steps between two lines of the log")
    parser.add_argument("--optimizer", choices=("muon", "adam"), default="muon")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    return parser


if __name__ == "__main__":
    main()
