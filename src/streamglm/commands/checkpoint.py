"""What the server process reads of a checkpoint folder before anything is started.

Owns the order of the checks, and the checkpoint's own sampling. A random model is a checkpoint
without a folder. Knows no ranks and no memory. Imports no torch. Invariant: a folder that is read
here has been checked whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from streamglm import nano
from streamglm.config import Settings
from streamglm.errors import CheckpointError, SettingError
from streamglm.model.shapes import GLM_5_3_FLASH, RANDOM, random_spec
from streamglm.model.spec import ModelSpec, read_json
from streamglm.request import SamplingParams
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer
from streamglm.weights import fit, made
from streamglm.weights.headers import catalogue


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the server process has read of a checkpoint folder."""

    folder: Path
    """Of a random model one that is not there, and has its name."""
    spec: ModelSpec
    files: fit.Plan
    spelled: int | None
    tokenizer: Tokenizer | None
    template: ChatTemplate | None
    defaults: SamplingParams
    experts: str | None = None
    """How a random model's routed experts are held."""

    def of(self, rank: int, world: int) -> fit.Plan:
        """`files`, as `rank` of `world` takes them."""
        if world == 1:
            return self.files
        if self.experts is not None:
            return made.plan(self.spec, self.experts, rank=rank, world=world)
        return fit.plan(self.spec, catalogue(self.folder), rank=rank, world=world)

    @property
    def place(self) -> str:
        """Where a rank has its weights from."""
        there = self.folder.is_dir()
        return str(self.folder.resolve() if there else self.folder)


def read_checkpoint(settings: Settings) -> Checkpoint:
    """The folder's configuration, headers, tokenizer and template, each checked. Raises
    `CheckpointError` and `SettingError`."""
    if settings.model.startswith(RANDOM):
        return _random(settings)
    as_it_lies(settings)
    folder = nano.folder() if settings.model == "nano" else Path(settings.model)
    if not folder.is_dir():
        raise CheckpointError(
            f"{settings.model}: no such folder; MODEL is a folder, nano or {GLM_5_3_FLASH}"
        )
    spec = ModelSpec.from_folder(folder)
    files = fit.check_files(folder, spec)
    if not files.mtp:
        spec = replace(spec, mtp_layers=0)
    spelled = fit.check_tokenizer(spec, folder)
    tokenizer = Tokenizer.from_folder(folder)
    template = ChatTemplate.from_folder(folder) if tokenizer is not None else None
    return Checkpoint(folder, spec, files, spelled, tokenizer, template, _defaults(folder))


def as_it_lies(settings: Settings) -> None:
    """Raise `SettingError` for settings that would change a checkpoint's weights."""
    for name, given in (("layers", settings.layers), ("expert-format", settings.expert_format)):
        if given not in (None, "bf16"):
            raise SettingError(
                f"--{name} is {given}, and {settings.model} is served as it lies: leave it out, or "
                f"serve {GLM_5_3_FLASH}"
            )


def _random(settings: Settings) -> Checkpoint:
    """Shapes without weights, tokenizer or template: prompts of token ids, and replies of ids."""
    spec, experts = random_spec(settings.model, settings.layers), settings.expert_format
    folder, files = Path(settings.model), made.plan(spec, experts)
    return Checkpoint(folder, spec, files, None, None, None, SamplingParams(), experts)


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
