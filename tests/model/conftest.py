"""Tiny checkpoints that the model tests share: written once, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from streamglm.model.executor import Executor
from support.tiny import Folder, TinyShape, executor, tiny_model, write


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """(shape, seed, row counts) -> folder of that checkpoint."""
    folders: dict[object, Path] = {}

    def folder(shape: TinyShape, seed: int, **rows: int) -> Path:
        key = shape, seed, *rows.items()
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("tiny")
            write(tiny_model(shape, seed), folders[key], **rows)
        return folders[key]

    return folder


@pytest.fixture
def engine(tiny: Folder) -> Executor:
    """The default shape, poisoned, with all lanes free."""
    return executor(tiny(TinyShape(), 0))
