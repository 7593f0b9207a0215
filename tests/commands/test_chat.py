"""`streamglm chat` without a terminal: its parts as calls, and the command over a pipe.

The server is canned bytes in this process, so every case says exactly what comes in. Each
check fails when the line it names is taken out of the chat; none depends on the clock.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from streamglm.commands import chat
from streamglm.commands.chat_client import (
    ChatError,
    Ended,
    Piece,
    Server,
    reply_events,
    sse_lines,
    sse_objects,
)
from streamglm.commands.chat_session import Command, Options, Say, Session, read_message, understand
from support.canned import DONE, Canned, chat_reply, event, serving


@pytest.fixture
def canned() -> Iterator[Canned]:
    with serving(Canned()) as value:
        yield value


@pytest.fixture
def session(canned: Canned) -> Iterator[Session]:
    with Server(canned.url) as server:
        yield Session(server, "tiny", Options(), now=itertools.count().__next__)


def ask(session: Session, text: str) -> Piece:
    pieces = list(session.ask(text))
    return Piece("".join(p.reasoning for p in pieces), "".join(p.answer for p in pieces))


# -- framing


def test_a_stream_cut_at_any_byte_gives_the_same_lines() -> None:
    body = 'data: {"a": "zwölf 🐟"}\r\n\r\n: note\n\ndata: [DONE]\n\n'.encode()
    whole = list(sse_lines([body]))
    for cut in range(len(body)):
        assert list(sse_lines([body[:cut], body[cut:]])) == whole


def test_a_line_separator_inside_text_does_not_end_the_line() -> None:
    """`str.splitlines` would cut this event in two."""
    text = "one\u2028two\x0bthree\x85four"
    objects = list(sse_objects(sse_lines([event({"text": text}), DONE])))
    assert objects == [{"text": text}]


def test_comments_are_passed_over() -> None:
    assert list(sse_objects([": waiting", "", 'data: {"a": 1}', "data: [DONE]"])) == [{"a": 1}]


def test_a_stream_that_ends_early_is_an_error() -> None:
    with pytest.raises(ChatError, match="closed before the reply ended"):
        list(sse_objects(['data: {"a": 1}']))


def test_an_error_event_is_an_error_with_the_servers_words() -> None:
    line = "data: " + json.dumps({"error": {"message": "rank 0 died", "code": "engine_failed"}})
    with pytest.raises(ChatError, match=r"rank 0 died \(engine_failed\)"):
        list(sse_objects([line]))


def test_usage_is_read_from_the_last_event_without_choices() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    usage_event = {"choices": [], "usage": usage, "streamglm": {"token_sha": "ff00"}}
    first = {"choices": [{"delta": {"content": "x"}, "finish_reason": "length"}], "usage": None}
    assert list(reply_events([first, usage_event])) == [
        Piece(answer="x"),
        Ended("length", 9, 0, 4, "ff00"),
    ]


# -- lines of input


def reader(lines: list[str]) -> Callable[[str], str]:
    left = iter(lines)

    def read(prompt: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    return read


def test_a_trailing_backslash_joins_lines() -> None:
    assert read_message(reader(["one\\", "\\", "three", "four"])) == "one\n\nthree"


def test_the_end_of_input_inside_a_message_ends_the_message() -> None:
    assert read_message(reader(["one\\"])) == "one"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("hello", Say("hello")),
        ("/effort  low", Command("effort", "low")),
        ("/new", Command("new", "")),
        ("//usr is a path", Say("/usr is a path")),
        ("   ", None),
    ],
    ids=["text", "argument", "bare", "slash", "blank"],
)
def test_a_line_is_text_or_a_command(line: str, wanted: Say | Command | None) -> None:
    assert understand(line) == wanted


def test_an_unknown_command_is_not_sent_to_the_model() -> None:
    with pytest.raises(ChatError, match="unknown command /nwe"):
        understand("/nwe")


# -- history


def test_a_question_carries_every_earlier_turn(canned: Canned, session: Session) -> None:
    canned.replies = [chat_reply(reasoning="hm", answer="four"), chat_reply(answer="six")]
    assert ask(session, "2+2?") == Piece("hm", "four")
    ask(session, "3+3?")
    assert canned.bodies[1]["messages"] == [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "four", "reasoning_content": "hm"},
        {"role": "user", "content": "3+3?"},
    ]


def test_undo_takes_back_the_last_turn_alone(canned: Canned, session: Session) -> None:
    canned.replies = [chat_reply(answer="a"), chat_reply(answer="b"), chat_reply(answer="c")]
    ask(session, "1")
    ask(session, "2")
    assert session.command(Command("undo", "")) == "forgotten: 2"
    ask(session, "3")
    assert [m["content"] for m in canned.bodies[2]["messages"]] == ["1", "a", "3"]


def test_retry_asks_again_without_the_answer_it_replaces(canned: Canned, session: Session) -> None:
    canned.replies = [chat_reply(answer="a"), chat_reply(answer="b")]
    ask(session, "1")
    ask(session, session.retry())
    assert canned.bodies[1]["messages"] == [{"role": "user", "content": "1"}]
    assert [turn.answer for turn in session.turns] == ["b"]


def test_retry_after_a_failure_keeps_the_turns_before(canned: Canned, session: Session) -> None:
    canned.replies = [chat_reply(answer="a"), [b": nothing\n\n"], chat_reply(answer="c")]
    ask(session, "1")
    with pytest.raises(ChatError):
        ask(session, "2")
    ask(session, session.retry())
    assert [m["content"] for m in canned.bodies[2]["messages"]] == ["1", "a", "2"]


def test_new_forgets_everything_but_the_system_text(canned: Canned, session: Session) -> None:
    canned.replies = [chat_reply(answer="a"), chat_reply(answer="b")]
    session.command(Command("system", "Be brief."))
    ask(session, "1")
    session.command(Command("new", ""))
    ask(session, "2")
    assert [m["content"] for m in canned.bodies[1]["messages"]] == ["Be brief.", "2"]
    session.command(Command("new", ""))
    with pytest.raises(ChatError, match="nothing to retry"):
        session.retry()


def test_options_are_sent_and_omitted_ones_are_not(canned: Canned, session: Session) -> None:
    canned.replies = [chat_reply(answer="a"), chat_reply(answer="b")]
    ask(session, "1")
    assert not {"reasoning_effort", "seed", "temperature", "max_tokens"} & set(canned.bodies[0])
    session.options = Options(temperature=0.0, seed=0, max_tokens=5)
    session.command(Command("effort", "low"))
    ask(session, "2")
    sent = {"reasoning_effort": "low", "seed": 0, "temperature": 0.0, "max_tokens": 5}
    assert sent.items() <= canned.bodies[1].items()


def test_an_effort_that_does_not_exist_names_those_that_do(session: Session) -> None:
    with pytest.raises(ChatError, match="'huge': it may be low, high, max"):
        session.command(Command("effort", "huge"))


# -- stopping and numbers


def test_closing_a_reply_closes_the_connection_and_keeps_what_came(
    canned: Canned, session: Session
) -> None:
    """Fails when the stream is left to the garbage collector: the event would never be set."""
    canned.replies, canned.hold = [chat_reply(answer="partly")[:4]], True
    reply = session.ask("1")
    assert next(reply) == Piece(answer="p")
    reply.close()
    assert canned.left.wait(10)
    assert [turn.answer for turn in session.turns] == ["p"]
    assert session.summary is None


def test_a_reply_stopped_before_its_answer_leaves_no_turn(canned: Canned, session: Session) -> None:
    canned.replies, canned.hold = [chat_reply(reasoning="hm")[:3]], True
    reply = session.ask("1")
    next(reply)
    reply.close()
    assert session.turns == []
    assert session.retry() == "1"


def test_the_status_line_has_the_servers_counts_and_the_clients_seconds(
    canned: Canned, session: Session
) -> None:
    """The clock counts 0, 1, 2 ...: asked at 0, four pieces at 1 to 4."""
    canned.replies = [chat_reply(answer="abcd", tokens=7, cached=8, finish="length")]
    ask(session, "1")
    assert session.summary
    assert session.summary.line() == (
        "7 tokens · 2.0 tokens/s · first after 1.00 s · 8 of 10 prompt tokens cached"
        " · token_sha abababab · stopped by the token limit"
    )


def test_a_reply_of_one_piece_has_no_rate(canned: Canned, session: Session) -> None:
    canned.replies = [chat_reply(answer="a", tokens=1)]
    ask(session, "1")
    assert session.summary
    assert "tokens/s" not in session.summary.line()


# -- the server's refusals


def test_no_server_says_how_to_start_one() -> None:
    with serving(Canned()) as gone:
        pass
    with Server(gone.url) as server, pytest.raises(ChatError, match="`streamglm serve`"):
        server.model()


def test_a_refusal_is_one_line_with_status_and_code(canned: Canned) -> None:
    canned.status = 503
    with Server(canned.url) as server, pytest.raises(ChatError, match=r"503: no \(refused\)$"):
        list(server.reply({}))


def test_a_missing_key_names_the_flag(canned: Canned) -> None:
    canned.status = 401
    with Server(canned.url) as server, pytest.raises(ChatError, match="--api-key"):
        server.model()


def test_the_key_is_sent(canned: Canned) -> None:
    canned.replies = [chat_reply(answer="a")]
    with Server(canned.url, "k1") as server:
        list(server.reply({}))
    assert canned.keys == ["Bearer k1"]


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "h:1"])
def test_spellings_of_an_address(url: str) -> None:
    with Server(url) as server:
        assert server.url == "http://h:1"


def test_another_kind_of_server_is_named_as_such(canned: Canned) -> None:
    canned.models = {"data": []}
    with Server(canned.url) as server, pytest.raises(ChatError, match="not as a streamglm server"):
        server.model()


# -- the command


def command(monkeypatch: pytest.MonkeyPatch, url: str, stdin: str, *flags: str) -> int:
    parser = argparse.ArgumentParser()
    chat.add_arguments(parser)
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    return chat.run(parser.parse_args(["--url", url, *flags]))


def test_a_pipe_gets_answers_alone(
    canned: Canned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    canned.replies = [chat_reply(reasoning="hm", answer="a\tb"), chat_reply(answer="[b]c[/b]\n")]
    assert command(monkeypatch, canned.url, "one\ntwo\n") == 0
    out, err = capsys.readouterr()
    assert out == "a\tb\n[b]c[/b]\n"
    assert err.count("token_sha abababab") == 2


def test_a_pipe_can_ask_for_the_reasoning(
    canned: Canned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    canned.replies = [chat_reply(reasoning="hm", answer="a")]
    assert command(monkeypatch, canned.url, "one\n", "--show-thinking") == 0
    assert capsys.readouterr().out == "hm\n\na\n"


def test_a_reply_without_an_answer_is_not_kept_and_says_so(
    canned: Canned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    canned.replies = [chat_reply(reasoning="hm", finish="length"), chat_reply(answer="a")]
    assert command(monkeypatch, canned.url, "one\ntwo\n") == 0
    assert capsys.readouterr().err.count("no answer came") == 1
    assert canned.bodies[1]["messages"] == [{"role": "user", "content": "two"}]


def test_a_pipe_stops_at_the_first_error(
    canned: Canned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    canned.replies = [[b": nothing\n\n"], chat_reply(answer="never asked")]
    assert command(monkeypatch, canned.url, "one\ntwo\n") == 1
    assert len(canned.bodies) == 1
    assert capsys.readouterr().err.startswith("streamglm chat: the connection closed")


def test_quit_leaves_lines_unread(canned: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(monkeypatch, canned.url, "/quit\none\n") == 0
    assert canned.bodies == []


def test_no_server_exits_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Canned()) as gone:
        pass
    assert command(monkeypatch, gone.url, "one\n") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_reply_cannot_control_the_terminal() -> None:
    """The escape that would clear the screen arrives as plain characters."""
    out = io.StringIO()
    with chat.Drawing(Console(file=out), thinking=True) as drawing:
        drawing.piece(Piece(answer="a\x1b[2Jb\rc\x9bd\x07\n"))
    assert out.getvalue() == "a[2Jbcd\n"
