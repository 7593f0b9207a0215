"""Nano in transformers: it loads whole, and its replies are varied and clear of rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoTokenizer
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextForConditionalGeneration

from streamglm.nano import folder

PROMPTS = ("How many legs has a spider?", "hi", "def main():")
MTP = "model.language_model.layers.8."


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, dict[str, Any]]:
    torch.set_num_threads(1)
    model, report = Glm5NextForConditionalGeneration.from_pretrained(
        folder(), dtype=torch.float32, output_loading_info=True
    )
    return model.eval(), report


@pytest.fixture(scope="module", params=PROMPTS)
def reply(request: pytest.FixtureRequest, loaded: tuple[Any, dict[str, Any]]) -> Any:
    """Forty-eight greedy tokens, and the logits they were taken from."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder())
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": request.param}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )["input_ids"]
    with torch.inference_mode():
        return loaded[0].generate(
            prompt,
            max_new_tokens=48,
            min_new_tokens=48,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )


def test_text_loads_whole(loaded: tuple[Any, dict[str, Any]]) -> None:
    """Only vision may be missing, which nano has not, and only the next-token layer be left over,
    which transformers has not."""
    report = loaded[1]
    assert not report["mismatched_keys"]
    assert all(key.startswith("model.visual.") for key in report["missing_keys"])
    assert all(key.startswith(MTP) for key in report["unexpected_keys"])


def test_a_reply_is_varied(reply: Any) -> None:
    assert len(set(reply.sequences[0, -48:].tolist())) >= 30


def test_a_reply_does_not_end_at_once(reply: Any) -> None:
    first = [int(logits.argmax()) for logits in reply.logits[:8]]
    assert not {476, 483, 485} & set(first)


def test_greedy_choices_stand_far_above_rounding(reply: Any) -> None:
    top = torch.stack([logits[0].topk(2).values for logits in reply.logits])
    gaps = top[:, 0] - top[:, 1]
    assert float(gaps.min()) > 1e-3
    assert float(gaps.mean()) > 0.5


def test_markup_that_a_random_model_cannot_use_is_not_written(reply: Any) -> None:
    written = set(reply.sequences[0, -48:].tolist())
    assert not {i for i in written if i >= 476} - {476, 483, 498}
