"""Writes the built-in checkpoint: `python -m streamglm.nano.build [FOLDER]`.

Owns the files of the folder. The chat template is written by hand and lies in the folder itself;
every other file is made here, byte for byte the same each time.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from streamglm.model.spec import ModelSpec
from streamglm.nano import folder, shape, tensors, tokens

TEMPLATE = "chat_template.jinja"


def write(target: Path) -> None:
    """Make the checkpoint in `target`, over what lies there."""
    target.mkdir(parents=True, exist_ok=True)
    tokenizer = tokens.train()
    _json(target / "config.json", shape.config())
    _json(target / "generation_config.json", shape.generation())
    _json(target / "tokenizer_config.json", tokens.config(shape.CONTEXT))
    (target / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
    if target != folder():
        shutil.copyfile(folder() / TEMPLATE, target / TEMPLATE)
    spec = ModelSpec.from_config(shape.config(), shape.generation())
    weights = target / "model.safetensors"
    save_file(tensors.tensors(spec, tokenizer), weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # the writer makes it private; whoever installs the package reads it


def _json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else folder()
    write(place)
    print(f"wrote {place}")
