"""LiteLLM, as a client of OpenAI's chat completions and of Anthropic's messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.said import ADDS, ANSWERS, CALLS, CALLS_AT_ONCE
from support.speaking import Speaking

CLIENT = Path(__file__).parent / "litellm_client.py"
TOOL = {"type": "function", "function": {"name": "add", "description": "sum", "parameters": ADDS}}


@pytest.mark.slow
def test_answers_and_calls_streamed_and_not(served: Speaking) -> None:
    plain = ANSWERS.partition("</think>")[2]
    served.say(ANSWERS, ANSWERS, CALLS, CALLS, plain, plain, CALLS_AT_ONCE, CALLS_AT_ONCE)
    done = subprocess.run(
        [sys.executable, str(CLIENT), served.url, json.dumps(TOOL)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},  # or it asks the network
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {"openai/tiny", "anthropic/tiny"}
    for told in found.values():
        assert told["whole"] == told["streamed"] == "the answer é"
        assert told["completion_tokens"] > 0
        assert told["calls"] == [[["add", {"a": 4, "b": 9}]]] * 2
        assert told["finish"] == ["tool_calls"] * 2
