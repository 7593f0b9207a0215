"""The built-in model's tokenizer: byte-complete, with the real special tokens."""

from __future__ import annotations

import pytest

from streamglm.nano import folder
from streamglm.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_folder(folder())
    assert found is not None
    return found
