"""Conversations on the disk, through HTTP and real ranks (CO-05 to CO-09, J31 to J38).

The reference keeps nothing. A resume that was silently off fails each of these: what was found is
part of what is asserted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamglm import nano
from support import kills
from support.server import Server, refused, serving
from support.talk import cached, greedy, ids, words

PAGE = 64
GREEDY: dict[str, Any] = {**greedy(12), "logprobs": 3}


@pytest.fixture(scope="module")
def fresh() -> Iterator[Server]:
    """Keeps nothing, so every reply is computed whole."""
    with serving("nano", "--prompt-cache-gib", "0", "--kv-poison") as server:
        yield server


def learning(folder: Path, *flags: str) -> tuple[str, ...]:
    return ("--learn-conversations", str(folder), "--kv-poison", "--parallel", "2", *flags)


def settled(server: Server) -> None:
    """Return once nothing is on its way to the disk."""
    deadline = time.monotonic() + 30
    while server.metric("streamglm_disk_queue"):
        assert time.monotonic() < deadline, "the disk is not settled after 30 s"
        time.sleep(0.01)  # a poll with a bound, not a wait for luck


def bits(reply: dict[str, Any]) -> tuple[object, ...]:
    """All that must be the same: tokens, their hash, and every log-probability."""
    return ids(reply), reply["streamglm"]["token_sha"], reply["choices"][0]["logprobs"]


def warnings(server: Server) -> list[str]:
    return [line for line in server.lines if " WARNING streamglm.disk" in line]


def size_of(folder: Path) -> int:
    """What `du -sb` says, of a folder that changes."""
    total = folder.stat().st_size
    for at, folders, files in os.walk(folder):  # which goes on where a folder has gone
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(Path(at, name)).st_size
    return total


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`streamglm conversations`, over a folder."""
    line = [sys.executable, "-m", "streamglm", "conversations"]
    line += ["--learn-conversations", str(folder), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_memory_disk_and_restart_give_one_reply(fresh: Server, tmp_path: Path) -> None:
    """J36: two slots, so that other prompts push a state out of memory."""
    first = words(1, 700)
    longer = first + words(2, 90)
    asks = [GREEDY | {"draft": draft, "learn": False} for draft in (True, False)]
    want = [bits(fresh.complete(longer, **ask)) for ask in asks]
    found = []
    with serving("nano", *learning(tmp_path, "--kv-share", "2")) as server:
        server.complete(first, **GREEDY)
        found += [server.complete(longer, **ask) for ask in asks]
        settled(server)
        for other in range(3):
            server.complete(words(10 + other, 130), **GREEDY | {"learn": False})
        found += [server.complete(longer, **ask) for ask in asks]
        assert any("from a disk state" in line for line in server.lines)
    with serving("nano", *learning(tmp_path)) as server:
        found += [server.complete(longer, **ask) for ask in asks]
        assert any("from a disk state" in line for line in server.lines)
    assert [bits(reply) for reply in found] == want * 3
    assert all(640 <= cached(reply) <= 790 - 1 for reply in found)


def test_killed_while_saving(fresh: Server, tmp_path: Path) -> None:
    """CO-05, sized down: `support/kills.py` was run for 200 lives."""
    want = kills.references(fresh, 2)
    record = kills.lives(tmp_path, want, 2, seed=1)
    assert record.lives == 2
    assert not record.warnings
    assert not kills.clean(tmp_path)
    checked = command(tmp_path, "verify")
    assert checked.returncode == 0
    assert ", 0 damaged" in checked.stdout


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 16
    path.write_bytes(data)


def test_every_damage_is_found_said_once_and_repaired(fresh: Server, tmp_path: Path) -> None:
    """CO-06: one conversation a kind of damage, one warning each, and the same replies."""
    kinds = ("cut", "empty", "middle", "header", "gone", "folder", "swapped")
    prompts = {kind: words(20 + i, 330) for i, kind in enumerate(kinds)}
    following = {kind: prompt + words(40, 30) for kind, prompt in prompts.items()}
    want = {kind: bits(fresh.complete(one, **GREEDY)) for kind, one in following.items()}
    files: dict[str, list[Path]] = {}
    known: set[Path] = set()
    with serving("nano", *learning(tmp_path)) as server:
        for kind, prompt in prompts.items():
            server.complete(prompt, **GREEDY)
            settled(server)
            now = {path for path in tmp_path.rglob("*.0-1") if path.is_file()}
            files[kind] = sorted(now - known, key=lambda path: path.stat().st_size)
            known = now
            assert len(files[kind]) == 6
    for kind, (small, *_, large) in files.items():
        match kind:
            case "cut":
                os.truncate(large, large.stat().st_size - 1)
            case "empty":
                os.truncate(small, 0)
            case "middle":
                flip(large, large.stat().st_size // 2)
            case "header":
                flip(small, 40)
            case "gone":
                small.unlink()
            case "folder":
                large.unlink()
                large.mkdir()
            case "swapped":
                other = files[kind][1]
                data = small.read_bytes()
                small.write_bytes(other.read_bytes().ljust(len(data), b"\0")[: len(data)])
    with serving("nano", *learning(tmp_path)) as server:
        replies = {kind: server.complete(one, **GREEDY) for kind, one in following.items()}
        settled(server)
        assert {kind: bits(reply) for kind, reply in replies.items()} == want
        assert {kind: cached(reply) for kind, reply in replies.items()} == dict.fromkeys(kinds, 0)
        assert len(warnings(server)) == len(kinds), warnings(server)
    assert ", 0 damaged" in command(tmp_path, "verify").stdout
    assert command(tmp_path, "ls", "--json").stdout.count('"tokens": 320,') >= len(kinds)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The built-in model, in a folder that a test may change."""
    return Path(shutil.copytree(nano.folder(), tmp_path / "X"))


def test_other_weights_and_settings_read_nothing(fresh: Server, checkpoint: Path) -> None:
    """CO-07: a changed tensor, another row format; then the first again, copied with new times.
    Template, tokenizer and world are tests of the identity."""
    folder, prompt = checkpoint.parent / "d", words(60, 330)
    longer = prompt + words(61, 20)
    copy = Path(shutil.copytree(checkpoint, checkpoint.parent / "copy"))
    weights = Path(shutil.copytree(checkpoint, checkpoint.parent / "weights"))
    path = weights / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with serving(checkpoint, *learning(folder)) as server:
        server.complete(prompt, **GREEDY)
    for model, flags, why in (
        (weights, (), "another weights"),
        (checkpoint, ("--kv-cache", "bf16"), "row format"),
    ):
        with serving(model, *learning(folder, *flags)) as server:
            reply = server.complete(longer, **GREEDY | {"learn": False})
            assert cached(reply) == 0
            said = [line for line in server.lines if "are not read" in line]
            assert len(said) == 1
            assert why in said[0]
    with serving(copy, *learning(folder)) as server:
        reply = server.complete(longer, **GREEDY)
        assert cached(reply) == 320
        assert bits(reply) == bits(fresh.complete(longer, **GREEDY))


def test_the_limit_is_a_limit_at_the_start_as_well(tmp_path: Path) -> None:
    """CO-08: never above it, also while conversations come; under half of it after a restart."""
    limit = int(0.006 * 2**30)
    seen, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            seen.append(size_of(tmp_path))

    with serving("nano", *learning(tmp_path, "--learn-gib", "0.006")) as server:
        watcher = threading.Thread(target=watch)
        watcher.start()
        for seed in range(24):
            server.complete(words(100 + seed, 260), **greedy(2))
        settled(server)
        stop.set()
        watcher.join()
        assert server.metric("streamglm_disk_evicted_total") > 5
        assert max(seen) <= limit
        assert cached(server.complete(words(123, 260), **greedy(2))) > 0
    assert max(seen) > 0.6 * limit
    with serving("nano", *learning(tmp_path, "--learn-gib", "0.003")) as server:
        assert size_of(tmp_path) <= int(0.003 * 2**30)
        assert cached(server.complete(words(123, 260), **greedy(2))) > 0
        assert cached(server.complete(words(100, 260), **greedy(2))) == 0


def test_conversations_that_think_resume_after_a_restart(fresh: Server, tmp_path: Path) -> None:
    """CO-09: two conversations, by clients that echo the reasoning and by such that do not; the
    fourth turn of each, after a restart and without one. SIGTERM comes while the disk writes."""
    talks: dict[str, list[dict[str, Any]]] = {}
    fields: dict[str, Any] = {**greedy(20), "logprobs": True}

    def turn(server: Server, name: str, number: int, **more: Any) -> dict[str, Any]:
        said = " ".join(f"{name}{number}{i:03}" for i in range(40))
        talks[name].append({"role": "user", "content": said})
        reply = server.chat(talks[name], **fields, **more)
        message = reply["choices"][0]["message"]
        answer = {"role": "assistant", "content": message.get("content") or "yes"}
        if name.endswith("echo"):
            answer["reasoning_content"] = message.get("reasoning_content") or "so"
        talks[name].append(answer)
        return reply

    names = ("A", "B", "A-echo", "B-echo")
    with serving("nano", *learning(tmp_path)) as server:
        for name in names:
            talks[name] = []
            for number in range(3):
                turn(server, name, number)
        without = {name: turn(server, name, 3, learn=False) for name in names}
    with serving("nano", *learning(tmp_path)) as server:
        for name in reversed(names):
            messages = talks[name][:-1]
            after = server.chat(messages, **fields)
            assert ids(after) == ids(without[name]) == ids(fresh.chat(messages, **fields))
            assert cached(after) > 0
            assert abs(cached(after) - cached(without[name])) <= PAGE


def test_thirty_turns_write_little_more_than_the_conversation(tmp_path: Path) -> None:
    """At most 1.5 times the final size and thirty fixed parts; then it is seen, exported and
    deleted, and nothing of it is left."""
    with serving("nano", *learning(tmp_path, "--learn-gib", "1")) as server:
        prompt = words(1, 70)
        for turn in range(30):
            server.complete(prompt, **greedy(1))
            prompt += words(2 + turn, 67)
        settled(server)
        with server.client() as client:
            (talk,) = client.get("/v1/conversations").json()["data"]
            fixed = sum(state["bytes"] for state in talk["states"])
            written = server.metric("streamglm_disk_written_bytes_total")
            assert len(talk["states"]) <= 31
            assert written <= 1.5 * (talk["bytes"] - fixed) + 30 * fixed / len(talk["states"])
            shown = command(tmp_path, "show", talk["id"][:6])
            assert f"id: {talk['id']}" in shown.stdout
            exported = command(tmp_path, "export", talk["id"], "--model", "nano")
            assert exported.stdout.count("token_ids") == 1
            busy = command(tmp_path, "rm", talk["id"])
            second = refused("nano", *learning(tmp_path))
            for done in (busy, second):
                assert done.returncode == 1
                assert f"process {server.process.pid};" in done.stderr
            assert client.get("/v1/conversations/none").status_code == 404
            gone = client.delete(f"/v1/conversations/{talk['id']}")
            assert gone.json()["deleted"] is True
            assert not list(tmp_path.rglob("*.0-1"))
            assert client.get("/v1/conversations").json()["data"] == []
        assert cached(server.complete(words(1, 70) + words(2, 67), **greedy(1))) == 0


def test_starts_that_cannot_learn_are_refused(tmp_path: Path) -> None:
    """Each says what is wrong and what to do, before anything is loaded."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for flags, said in (
        (("--learn-conversations", str(tmp_path / "mine")), "no learned conversations"),
        (("--learn-conversations", str(tmp_path / "d"), "--learn-gib", "0"), "--learn-gib is 0"),
        (
            ("--learn-conversations", str(tmp_path / "d"), "--prompt-cache-gib", "0"),
            "--prompt-cache-gib",
        ),
    ):
        done = refused("nano", *flags)
        assert done.returncode == 1
        assert said in done.stderr
