"""LangChain's ChatOpenAI: chat completions and Responses, streamed and not, with a tool."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add as plus

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from support.said import ADDS, ANSWERS, CALLS
from support.speaking import Speaking

Make = Callable[[bool], ChatOpenAI]
TOOL = {"type": "function", "function": {"name": "add", "parameters": ADDS}}
APIS = pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])


@pytest.fixture
def make(served: Speaking) -> Make:
    def made(responses: bool) -> ChatOpenAI:
        return ChatOpenAI(
            base_url=served.url + "/v1",
            api_key=SecretStr("k1"),
            model="tiny",
            max_retries=0,
            use_responses_api=responses,
        )

    return made


@APIS
def test_an_answer_streamed_and_not(served: Speaking, make: Make, responses: bool) -> None:
    served.say(ANSWERS)
    model = make(responses)
    whole = model.invoke("hi")
    assert whole.text == "the answer é"
    assert isinstance(whole, AIMessage)
    streamed = reduce(plus, model.stream("hi"))
    assert streamed.text == "the answer é"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] > 0


@APIS
def test_a_tool_is_called_and_its_result_read(
    served: Speaking, make: Make, responses: bool
) -> None:
    served.say(CALLS, CALLS, ANSWERS)
    model = make(responses).bind_tools([TOOL])
    asked = HumanMessage("4+9?")
    called = model.invoke([asked])
    streamed = reduce(plus, model.stream([asked]))
    for message in (called, streamed):
        (call,) = message.tool_calls
        assert (call["name"], call["args"]) == ("add", {"a": 4, "b": 9})
        assert call["id"]
    (call,) = called.tool_calls
    answer = model.invoke([asked, called, ToolMessage("13", tool_call_id=call["id"])])
    assert answer.text == "the answer é"
    assert "<tool_call>add<arg_key>a</arg_key><arg_value>4</arg_value>" in served.prompt()
    assert "<tool_response>13</tool_response>" in served.prompt()
