"""`python -m bench MEASUREMENT`: one file a measurement.

Owns the dispatch. A measurement is imported when it is chosen, so that the load generator runs
without torch and `--help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from bench.record import Void

MEASUREMENTS = (
    ("serve", "load over HTTP: first token, gaps between tokens, request seconds, tokens a second"),
    ("streamed", "the same replies, streamed and whole, from one server in turns"),
    ("resume", "the first token of a prompt that is kept, beside the same prompt cold"),
    ("disk", "records read beside a plain read, streams beside writes, resumes after a restart"),
    ("soak", "many requests whose clients leave at random points: what is left afterwards"),
    ("split", "ranks of the latent split beside as many without it: tokens held, speed, bytes"),
    ("kernels", "every kernel beside its floor, its reference and its peers, on a GPU"),
    ("compiled", "what the compiler makes of every kernel, without a GPU: registers, spills"),
    ("prompt", "the prompt pass of random real shapes on a GPU, beside transformers"),
    ("decode", "our engine and our server beside transformers, same checkpoint, same machine"),
)


def main(argv: Sequence[str]) -> int:
    """Run one measurement. Status 0: recorded; 1: void, nothing was recorded as a time."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="measurement", metavar="MEASUREMENT", required=True)
    chosen = next((name for name, _ in MEASUREMENTS if name in argv[:1]), None)
    for name, text in MEASUREMENTS:
        command = commands.add_parser(name, help=text, description=text)
        if name == chosen:
            module = importlib.import_module(f"bench.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except Void as error:
        print(f"void: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
