"""The compiling process: questions on stdin, grammars on stdout, until the pipe ends.

Owns one compiler over one vocabulary. Run as `python -m streamglm.grammars.process FOLDER
VOCABULARY STOPS`, so that a schema which takes for ever, or all memory, costs a process and nobody
else anything: the server ends it after its time. Holds itself below a limit of memory and behind
the ranks' priority.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import xgrammar

from streamglm.grammars.wire import LENGTH, Compile, Compiled, framed
from streamglm.sampling.grammar import tokenizer_info
from streamglm.sampling.vocabulary import Vocabulary
from streamglm.text.schemas import completed
from streamglm.text.tokenizer import Tokenizer

ROOM_BYTES = 2 << 30
"""Of memory beyond what the process has at its start."""
LONGEST_REFUSAL = 240

_PREFIX = re.compile(r"^\[[\d:]+\] \S+: ")
_VALUE = re.compile(r'"<arg_value>" \w+ ((?:(?!</?arg_value>).)*?) \w+ "</arg_value>"')
"""A value in the library's grammar of calls, between two rules for white space."""
_BARE = '"<arg_value>" xml_string "</arg_value>"'
"""A string of any form, which has none beside it."""
_EBNF = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)


def main(folder: str, vocab_size: int, stops: tuple[int, ...]) -> None:
    """Answer until stdin ends."""
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the whole group: the server answers it
    tokenizer = Tokenizer.from_folder(Path(folder))
    assert tokenizer is not None, "the server asks for a checkpoint with a tokenizer"
    vocabulary = Vocabulary.of(tokenizer.said, vocab_size, stops)
    compiler = xgrammar.GrammarCompiler(tokenizer_info(vocabulary), max_threads=1)
    _hold_memory()
    _hush()
    _say(Compiled())
    while header := sys.stdin.buffer.read(LENGTH.size):
        body = sys.stdin.buffer.read(*LENGTH.unpack(header))
        _say(answer(compiler, msgspec.msgpack.decode(body, type=Compile)))


def answer(compiler: xgrammar.GrammarCompiler, question: Compile) -> Compiled:
    """The compiled grammar, or the library's own words in one line."""
    try:
        grammars = []
        if question.calls:
            grammars.append(_calls(question.calls))
        if question.form:
            grammars.append(_content(question.form, question.source))
        grammar = grammars[0] if len(grammars) == 1 else xgrammar.Grammar.union(*grammars)
        return Compiled(compiler.compile_grammar(grammar).serialize_json().encode())
    except MemoryError:
        return Compiled(refusal="it takes too much memory")
    except Exception as error:  # the library raises what it likes
        line = _PREFIX.sub("", str(error).strip()).replace("\n", " ")
        return Compiled(refusal=line[:LONGEST_REFUSAL] or type(error).__name__)


def _calls(structure: str) -> xgrammar.Grammar:
    """Without white space beside values, which would be part of a string."""
    tag = {"type": "structural_tag", "format": _completed(json.loads(structure))}
    rules = str(xgrammar.Grammar.from_structural_tag(tag))
    bare, count = _VALUE.subn(r'"<arg_value>" \1 "</arg_value>"', rules)
    if count + rules.count(_BARE) != rules.count('"<arg_value>"'):
        raise ValueError("the library writes calls in another way than this server knows")
    return xgrammar.Grammar.from_ebnf(bare)


def _completed(structure: Any) -> Any:
    """Every schema of arguments in `structure` with what it leaves to be understood."""
    if structure["type"] == "json_schema":
        return structure | {"json_schema": completed(structure["json_schema"])}
    if "elements" in structure:
        return structure | {"elements": [_completed(one) for one in structure["elements"]]}
    return structure | {"content": _completed(structure["content"])}


def _content(form: str, source: str) -> xgrammar.Grammar:
    match form:
        case "json":
            schema = json.dumps(completed(json.loads(source)))
            return xgrammar.Grammar.from_json_schema(schema, any_whitespace=False)
        case "regex":
            return xgrammar.Grammar.from_regex(source)
        case "choice":
            return xgrammar.Grammar.from_structural_tag(_choice(json.loads(source)))
        case _:
            if _EBNF.search(source):
                return xgrammar.Grammar.from_ebnf(source)
            return xgrammar.Grammar.from_lark(source)


def _choice(texts: list[str]) -> dict[str, Any]:
    every = [{"type": "const_string", "value": text} for text in texts]
    chosen = every[0] if len(every) == 1 else {"type": "or", "elements": every}
    return {"type": "structural_tag", "format": chosen}


def _hold_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _hush() -> None:
    """What the library warns of from here on is what clients sent; the log is not theirs."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stderr.fileno())


def _say(message: Compiled) -> None:
    sys.stdout.buffer.write(framed(message))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _, _folder, _size, _stops = sys.argv
    main(_folder, int(_size), tuple(map(int, _stops.split(","))))
