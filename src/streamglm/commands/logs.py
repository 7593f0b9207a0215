"""How the log is written: lines for a person, or one JSON object a line for a machine.

Owns the form of a line. Knows no message. Invariant: in JSON every record is one line, whatever is
in its message or its traceback, with the same names: `time` (UTC), `level`, `logger`, `message`,
and `traceback` where there is one.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson

HUMAN = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JSONLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # half a surrogate pair in a message must not cost the line
        clean = {name: value.encode(errors="replace").decode() for name, value in line.items()}
        return orjson.dumps(clean).decode()


def set_up(level: str, form: str) -> None:
    """Log to stderr from `level` on, in the form `human` or `json`. Called once, by a command."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines() if form == "json" else logging.Formatter(HUMAN))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
