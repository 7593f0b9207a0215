"""What the server process reads of a checkpoint folder before anything is started.

Owns the order of the checks, and the checkpoint's own sampling. Knows no ranks and no memory.
Imports no torch. Invariant: a folder that is read here has been checked whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from streamglm import nano
from streamglm.config import Settings
from streamglm.errors import CheckpointError
from streamglm.model.spec import ModelSpec, read_json
from streamglm.request import SamplingParams
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer
from streamglm.weights import fit


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the server process has read of a checkpoint folder."""

    folder: Path
    spec: ModelSpec
    files: fit.Plan
    spelled: int | None
    tokenizer: Tokenizer | None
    template: ChatTemplate | None
    defaults: SamplingParams


def read_checkpoint(settings: Settings) -> Checkpoint:
    """The folder's configuration, headers, tokenizer and template, each checked."""
    folder = nano.folder() if settings.model == "nano" else Path(settings.model)
    if not folder.is_dir():
        raise CheckpointError(f"{settings.model}: no such folder; MODEL is a folder, or nano")
    spec = ModelSpec.from_folder(folder)
    files = fit.check_files(folder, spec)
    if not files.mtp:
        spec = replace(spec, mtp_layers=0)
    spelled = fit.check_tokenizer(spec, folder)
    tokenizer = Tokenizer.from_folder(folder)
    template = ChatTemplate.from_folder(folder) if tokenizer is not None else None
    return Checkpoint(folder, spec, files, spelled, tokenizer, template, _defaults(folder))


def _defaults(folder: Path) -> SamplingParams:
    """The checkpoint's own sampling, for requests that name none."""
    path = folder / "generation_config.json"
    raw = read_json(path) if path.is_file() else {}

    def number(name: str, default: float, least: float = 0.0, most: float = 1e9) -> float:
        value = raw.get(name)
        if value is None:
            return default
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (number and least <= value <= most):
            raise CheckpointError(
                f"{path.name}: {name} is {value!r}, not a number from {least:g} to {most:g}"
            )
        return float(value)

    return SamplingParams(
        temperature=number("temperature", 1.0),
        top_k=int(number("top_k", 0)),
        top_p=number("top_p", 1.0, least=1e-9, most=1.0),
        min_p=number("min_p", 0.0, most=1.0),
        repetition_penalty=number("repetition_penalty", 1.0, least=0.01, most=100.0),
    )
