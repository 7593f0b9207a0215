"""What LiteLLM makes of a server, as one JSON object: run by `test_litellm.py` in an interpreter of
its own, since the library changes logging and warnings of the process that imports it.

    python litellm_client.py URL TOOL
"""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm


def main(url: str, tool: dict[str, Any]) -> dict[str, Any]:
    """Answers and calls by way of OpenAI's chat completions and of Anthropic's messages."""
    found = {}
    for name, base in (("openai/tiny", url + "/v1"), ("anthropic/tiny", url)):
        options: dict[str, Any] = {
            "model": name,
            "api_base": base,
            "api_key": "k1",
            "max_tokens": 400,
            "num_retries": 0,
            "messages": [{"role": "user", "content": "4+9?"}],
        }
        whole = litellm.completion(**options)
        chunks = list(litellm.completion(**options, stream=True))
        calls = [
            litellm.completion(**options, tools=[tool]),
            litellm.stream_chunk_builder(
                list(litellm.completion(**options, tools=[tool], stream=True))
            ),
        ]
        found[name] = {
            "whole": whole.choices[0].message.content,
            "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
            "completion_tokens": whole.usage.completion_tokens,
            "calls": [
                [(one.function.name, json.loads(one.function.arguments)) for one in tool_calls]
                for call in calls
                if (tool_calls := call.choices[0].message.tool_calls)
            ],
            "finish": [call.choices[0].finish_reason for call in calls],
        }
    return found


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
