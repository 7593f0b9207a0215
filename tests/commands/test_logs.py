"""The log's two forms."""

from __future__ import annotations

import json
import logging
import sys

from streamglm.commands.logs import JSONLines


def line(message: str, *args: object, fault: bool = False) -> str:
    info = None
    if fault:
        try:
            raise ValueError("bad\nthing")
        except ValueError:
            info = sys.exc_info()
    record = logging.LogRecord("a.b", logging.WARNING, "f.py", 1, message, args, info)
    return JSONLines().format(record)


def test_a_record_is_one_object_on_one_line() -> None:
    found = json.loads(line("two\nlines and %s", "words"))
    assert set(found) == {"time", "level", "logger", "message"}
    assert (found["level"], found["logger"]) == ("warning", "a.b")
    assert found["message"] == "two\nlines and words"
    assert found["time"].endswith("+00:00")


def test_a_traceback_is_in_the_same_line() -> None:
    text = line("oh", fault=True)
    assert "\n" not in text
    assert "ValueError: bad\nthing" in json.loads(text)["traceback"]


def test_what_is_no_text_costs_no_line() -> None:
    assert json.loads(line("half \ud83d"))["message"] == "half ?"
