"""Nano's tokenizer: byte-level BPE with the real model's special tokens in their real order.

Owns the ids. Base entries come first (256 bytes, then merges), the 36 added tokens behind them,
as in the real vocabulary, where the same list starts at id 154820. Invariant: every byte string
has ids, and the last id is `VOCAB_SIZE - 1`. No normaliser and no automatic first token: a
prompt's prefix comes from the chat template.

The pre-split differs from the real one on purpose: a word is a token sequence of its own, without
the space before it, and every digit, mark and space stands alone. So a text has the same tokens
wherever it stands, which is what lets a model this small repeat it without an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer

from streamglm.nano.training import corpus

VOCAB_SIZE = 2048

# Hidden from text when special tokens are skipped, up to the audio tokens; kept as text from the
# code tokens on, because a reply's markup (think, tool calls) is parsed from its text.
HIDDEN = (
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
    "<|begin_of_audio|>",
    "<|end_of_audio|>",
    "<|begin_of_transcription|>",
    "<|end_of_transcription|>",
)
VISIBLE = (
    "<|code_prefix|>",
    "<|code_middle|>",
    "<|code_suffix|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "/nothink",
    "<|begin_of_box|>",
    "<|end_of_box|>",
    "<|image|>",
    "<|video|>",
)
ADDED = HIDDEN + VISIBLE
END = ("<|endoftext|>", "<|user|>", "<|observation|>")

SPLIT = r"[A-Z]?[a-z]+|[\s\S]"
"""A word, lower case but for its first letter, or any single character."""


def token_id(token: str) -> int:
    """The id of an added token."""
    return VOCAB_SIZE - len(ADDED) + ADDED.index(token)


def train(lines: Iterable[str] | None = None) -> Tokenizer:
    """The tokenizer, its merges learned from `lines`, by default `corpus.lines()`; the same text
    gives the same merges."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    base = VOCAB_SIZE - len(ADDED)
    trainer = BpeTrainer(
        vocab_size=base,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(corpus.lines() if lines is None else lines, trainer)
    assert tokenizer.get_vocab_size() == base, "the corpus is too small for its merges"
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in HIDDEN])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in VISIBLE])
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    return tokenizer


def config(context: int) -> dict[str, Any]:
    """`tokenizer_config.json`, the fields of the real one."""
    return {
        "tokenizer_class": "TokenizersBackend",
        "model_max_length": context,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
    }
