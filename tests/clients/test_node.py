"""The AI SDK's client of OpenAI-compatible servers, which opencode uses, in Node.

Skipped where node is missing or `make node` could not install the two packages: neither belongs to
Python's world, and no test may need a network.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.said import ADDS, ANSWERS, CALLS
from support.speaking import Speaking

FOLDER = Path(__file__).parents[1] / "node"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules" / "ai").exists(), reason="run `make node` for its packages"
    ),
]


def test_answers_calls_and_results_streamed_and_not(served: Speaking) -> None:
    served.say(ANSWERS, ANSWERS, CALLS, ANSWERS, CALLS, ANSWERS)
    done = subprocess.run(
        [str(NODE), "client.mjs", served.url, json.dumps(ADDS)],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["whole"] == found["streamed"] == "the answer é"
    assert found["reasoning"] == found["streamedReasoning"] == "weigh it"
    assert found["usage"]["outputTokens"] == found["streamedUsage"]["outputTokens"] > 0
    assert {"reasoning-delta", "text-delta", "finish"} <= set(found["kinds"])
    for told in found["steps"]:
        assert told["text"] == "the answer é"
        assert told["calls"] == [["add", {"a": 4, "b": 9}]]
        assert told["results"] == ["13"]
        assert told["finish"] == ["tool-calls", "stop"]
    assert "<tool_response>13</tool_response>" in served.prompt()
