"""Nano in transformers: it loads whole, answers what is asked, and is clear of rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoTokenizer
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextForConditionalGeneration

from streamglm.nano import folder

ANSWERS = {
    "What is the capital of Norway?": "The capital of Norway is Oslo.",
    "Spell walrus.": "w-a-l-r-u-s",
    'Say exactly: {"a": [1, "é"]} 🦉': '{"a": [1, "é"]} 🦉',
}
MTP = "model.language_model.layers.8."


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, dict[str, Any]]:
    torch.set_num_threads(1)
    model, report = Glm5NextForConditionalGeneration.from_pretrained(
        folder(), dtype=torch.float32, output_loading_info=True
    )
    return model.eval(), report


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(folder())


def greedy(model: Any, tokenizer: Any, text: str) -> tuple[str, torch.Tensor]:
    """The reply to a message, reasoning included, and how far its tokens stood above the second
    best."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )["input_ids"]
    with torch.inference_mode():
        made = model.generate(
            prompt,
            max_new_tokens=80,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    best = torch.stack([logits[0].topk(2).values for logits in made.logits])
    reply = tokenizer.decode(made.sequences[0, prompt.shape[1] :], skip_special_tokens=True)
    return reply, best[:, 0] - best[:, 1]


def test_text_loads_whole(loaded: tuple[Any, dict[str, Any]]) -> None:
    """Only vision may be missing, which nano has not, and only the next-token layer be left over,
    which transformers has not."""
    report = loaded[1]
    assert not report["mismatched_keys"]
    assert all(key.startswith("model.visual.") for key in report["missing_keys"])
    assert all(key.startswith(MTP) for key in report["unexpected_keys"])


@pytest.mark.parametrize(("asked", "answer"), ANSWERS.items(), ids=["knows", "spells", "repeats"])
def test_a_reply_thinks_answers_and_ends(
    loaded: tuple[Any, dict[str, Any]], tokenizer: Any, asked: str, answer: str
) -> None:
    """With gaps this wide, rounding in another order cannot change a token."""
    reply, gaps = greedy(loaded[0], tokenizer, asked)
    reasoning, _, said = reply.partition("</think>")
    assert (bool(reasoning), said) == (True, answer)
    assert float(gaps.min()) > 1e-2
    assert float(gaps.mean()) > 3
