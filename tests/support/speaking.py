"""An application on a real port that says canned replies: the built-in model's layout and tokens,
an engine in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamglm.config import Settings
from streamglm.edge.app import build_app
from streamglm.edge.served import ServedModel
from streamglm.nano import folder
from streamglm.request import Event, Request, SamplingParams
from streamglm.text.template import ChatTemplate
from streamglm.text.tokenizer import Tokenizer
from support.engine import FakeEngine, says
from support.live import live
from support.manual import ManualClock

KEY = "k1"


@dataclass
class Speaking:
    """`url` has no path; the key is `KEY` and the model `tiny`."""

    url: str
    engine: FakeEngine
    tokenizer: Tokenizer

    def say(self, *texts: str) -> None:
        """The replies in order; the last one is said from then on."""
        ends = self.tokenizer.encode("<|endoftext|>")
        scripts = [says([*self.tokenizer.encode(text), *ends]) for text in texts]

        def script(request: Request) -> Iterable[Event]:
            return (scripts.pop(0) if len(scripts) > 1 else scripts[0])(request)

        self.engine.script = script

    def prompt(self, number: int = -1) -> str:
        """The prompt of a request, as text."""
        return self.tokenizer.decode(self.engine.replies[number].request.prompt)


@contextmanager
def speaking() -> Iterator[Speaking]:
    """Served until the block ends."""
    tokenizer, template = Tokenizer.from_folder(folder()), ChatTemplate.from_folder(folder())
    assert tokenizer is not None
    engine = FakeEngine()
    ends = frozenset(tokenizer.encode("<|endoftext|><|user|><|observation|>"))
    plain = SamplingParams()
    model = ServedModel("tiny", 32768, tokenizer.size, tokenizer, template, ends, plain, 1)
    app = build_app(engine, model, Settings(api_key=KEY), ManualClock())
    with live(app) as (host, port):
        yield Speaking(f"http://{host}:{port}", engine, tokenizer)
