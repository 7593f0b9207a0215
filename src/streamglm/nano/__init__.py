"""The built-in model: a checkpoint folder that ships inside the package."""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """The folder of the built-in checkpoint; `python -m streamglm.nano.train` made its weights."""
    return Path(__file__).parent / "checkpoint"
