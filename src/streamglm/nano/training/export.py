"""The small files of a checkpoint: everything but the weights.

Owns their contents and names. The chat template is written by hand and lies in the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamglm.nano.training import shape, tokens

TEMPLATE = "chat_template.jinja"


def write_files(folder: Path) -> None:
    """`config.json`, `generation_config.json`, `tokenizer.json` and `tokenizer_config.json`."""
    _json(folder / "config.json", shape.config())
    _json(folder / "generation_config.json", shape.generation())
    _json(folder / "tokenizer_config.json", tokens.config(shape.CONTEXT))
    tokenizer = tokens.train()
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")


def _json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
