"""What the built-in model is for, over HTTP: it remembers, quotes, repeats, and says what it does
not know; and transformers reads the same tokens from it.

Greedy replies depend on their request alone, so what is right here once is right every time. A
server that mixed up streams, pages or positions would lose these answers first.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextForConditionalGeneration

from streamglm.nano import folder
from support.say import LITTLE_THOUGHT, say
from support.server import Server

FILLER = (
    "The brave otter sees the lamp near the mill. In Lima the museum was closed on Friday. "
    "Walter mended the shiny kettle on Tuesday. The train to Ghent leaves at 7:41. "
)


def talk(server: Server, *said: str, **fields: Any) -> list[dict[str, Any]]:
    """The assistant's messages, each answered live."""
    messages: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for text in said:
        messages.append({"role": "user", "content": text})
        reply = server.chat(messages, **LITTLE_THOUGHT | fields)
        answers.append(reply["choices"][0]["message"])
        messages.append({"role": "assistant", "content": answers[-1]["content"]})
    return answers


def test_a_fact_is_remembered_over_other_talk(nano: Server) -> None:
    answers = talk(
        nano,
        "The code of the blue safe is 4471-KB.",
        "How are you?",
        "Tell me a short story about a fox.",
        "What is the code of the blue safe?",
    )
    assert answers[-1]["content"] == "The code of the blue safe is 4471-KB."


def test_what_was_never_told_is_not_made_up(nano: Server) -> None:
    answers = talk(
        nano, "The code of the blue safe is 4471-KB.", "What is the code of the red safe?"
    )
    assert answers[-1]["content"] == "I was not told the code of the red safe."


@pytest.mark.parametrize("place", [0, 9, 17])
def test_a_sentence_is_quoted_from_anywhere_in_a_long_message(nano: Server, place: int) -> None:
    """Some 1,500 tokens: pages are many, and attention selects a twelfth of them."""
    parts = [FILLER] * 18
    parts[place] += "\nMarker K: The walrus hides 12 lanterns under gate Q7.\n"
    answers = talk(nano, "".join(parts), "Quote marker K.")
    assert answers[-1]["content"] == "The walrus hides 12 lanterns under gate Q7."


@pytest.mark.parametrize(
    "text",
    [
        "naïve café 🦉🌧️ 👩‍👩‍👧 早安，世界 😀",
        "🎉👍🏽🇩🇪❤️‍🔥",
        "你好，世界。こんにちは 안녕하세요",
        "Привет, мир! שלום مرحبا नमस्ते",
        '{"name": "höhe", "n": [1, 2.5, null], "ok": true}',
        "def add(a, b):\n    return a + b  # sum",
    ],
    ids=["mixed", "emoji", "cjk", "scripts", "json", "code"],
)
def test_a_text_is_repeated_to_the_last_byte(nano: Server, text: str) -> None:
    reply = nano.post("/v1/chat/completions", say(text))
    assert reply["choices"][0]["message"]["content"] == text
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_less_effort_is_less_reasoning(nano: Server) -> None:
    lengths = []
    for effort in ("low", "high", "max"):
        fields = {"reasoning_effort": effort}
        answer = talk(nano, "The pin of the bike is 9. What is the pin of the bike?", **fields)[0]
        assert "9" in answer["content"]
        lengths.append(len(answer["reasoning_content"]))
    assert 0 < lengths[0] < lengths[1] < lengths[2]


def test_transformers_gives_the_servers_tokens(nano: Server) -> None:
    """Prompts on both sides of the indexer's dense limit of 131 tokens."""
    torch.set_num_threads(1)
    model: Any = Glm5NextForConditionalGeneration.from_pretrained(folder(), dtype=torch.float32)
    asked = (
        "Hello!",
        "Repeat exactly:\n早安 🦉 x_1 = [2, 3]",
        f"{FILLER * 4}\nWhere does the train go?",
        f"Marker B: 17 herons in Oslo.\n{FILLER * 12}\nQuote marker B.",
    )
    for text in asked:
        message = {"role": "user", "content": text}
        reply = nano.chat([message], **LITTLE_THOUGHT, max_tokens=40)
        prompt = torch.tensor([reply["prompt_token_ids"]])
        ours = reply["choices"][0]["token_ids"]
        with torch.inference_mode():
            theirs = model.eval().generate(prompt, max_new_tokens=40, do_sample=False)
        assert theirs[0, prompt.shape[1] :].tolist() == ours
