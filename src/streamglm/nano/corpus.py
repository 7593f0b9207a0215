"""The text that nano's tokenizer learned its merges from: plain English, code and JSON.

Owns the words only. A change here changes the merges, and with them the checkpoint.
"""

from __future__ import annotations

WORDS = (
    "the of and to in is that it for was on are as with they be at this have from or one had by "
    "but not what all were we when your can said there use an each which she do how their if will "
    "up other about out many then them these so some her would make like him into time has look "
    "two more write go see number no way could people my than first water been call who oil its "
    "now find long down day did get come made may part over new sound take only little work know "
    "place year live me back give most very after thing our just name good sentence man think say "
    "great where help through much before line right too mean old any same tell boy follow came "
    "want show also around form three small set put end does another well large must big even "
    "such because turn here why ask went men read need land different home us move try kind hand "
    "picture again change off play spell air away animal house point page letter mother answer "
    "found study still learn should world"
).split()

SENTENCES = (
    "The answer depends on the question, and the question depends on who is asking.",
    "Thinking about it again, the first reading was right and the second was not.",
    "She said that there would be rain in the morning and sun in the afternoon.",
    "A small model writes small words; a larger one would write a longer story.",
    "What is the number of legs that a spider has? It is eight, as everyone knows.",
    "Let us look at the other part of the problem before we give an answer.",
    "There are many ways to do this, and each of them has something against it.",
    "I'll tell you what they're doing: they've been counting the pages again.",
    "Nothing in this text is true, but every sentence in it is meant to be read.",
    "The river runs down from the hills, through the town and into the sea.",
)

CODE = (
    "def main(self, name: str) -> int:\n    for line in range(10):\n        print(line)\n",
    "import json\nfrom pathlib import Path\n\nclass Reader:\n    def __init__(self) -> None:\n",
    "if value is not None and len(value) > 0:\n    return [item for item in value if item]\n",
    'else:\n    raise ValueError("no value")\n    return None\n        self.lines = []\n',
    "const result = await fetch(url);\nfunction render(element) {\n  return element.name;\n}\n",
    "SELECT name, count(*) FROM pages WHERE kept = 1 GROUP BY name ORDER BY count DESC;\n",
)

JSON = (
    '{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}\n',
    '{"name": "get_weather", "parameters": {"type": "object", "required": ["city"]}}\n',
    '{"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}\n',
    '{"id": 12, "type": "function", "function": {"name": "find", "arguments": {"count": 3}}}\n',
    '{"error": {"message": "not found", "code": null, "param": false, "retry": true}}\n',
)


def lines() -> list[str]:
    """The training text, common words first; each list is repeated to weigh its merges."""
    words = [" ".join(WORDS[i:]) for i in range(0, len(WORDS), 8)]
    return [*words, *SENTENCES * 4, *CODE * 3, *JSON * 3]
