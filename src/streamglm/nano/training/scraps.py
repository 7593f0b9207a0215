# ruff: noqa: E501  (a wording is one line)
"""Texts to be repeated: every script, every kind of mark, code, JSON.

Owns what a repeat task quotes. Knows no task. Invariant: a scrap neither begins nor ends with
white space, since a chat layout strips what an assistant says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from streamglm.nano.training import prose, words
from streamglm.nano.training.dice import Dice

_PRINTABLE = "".join(chr(c) for c in range(0x21, 0x7F))
_MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

_FACES = [chr(c) for c in range(0x1F600, 0x1F645)]
_PICTURES = [chr(c) for r in ((0x1F300, 0x1F321), (0x1F32D, 0x1F394), (0x1F400, 0x1F4FD),
                              (0x1F680, 0x1F6C6), (0x1F900, 0x1FA00)) for c in range(*r)]  # fmt: skip
_SIGNS = list("☀☁☂☃★☎☕☘☠☢☮☯☸☺♈♞♠♣♥♦♨♻⚓⚔⚖⚙⚛⚡⛄⛔⛵✂✅✈✉✌✏✒✔✖✨❄❓❗❤➕➡⬆⭐")
_ZWJ = "\u200d"
_FAMILIES = ("👩‍👩‍👧", "👨‍👩‍👧‍👦", "👩‍💻", "👨‍🚀", "🧑‍🌾", "🏳️‍🌈", "❤️‍🔥", "👁️‍🗨️")
_SKIN = [chr(c) for c in range(0x1F3FB, 0x1F400)]
_HANDS = list("👋👍👎👏🙏💪✋👌👈👉")

_CJK_WORDS = (
    "你好 世界 早安 晚安 谢谢 再见 学生 老师 朋友 今天 明天 天气 北京 上海 东京 图书馆 电脑 手机 音乐 电影 "
    "こんにちは ありがとう さようなら 日本語 東京 京都 すし さくら カタカナ テスト 한국어 안녕하세요 감사합니다 서울 사랑"
).split()
_OTHER_WORDS = (
    "naïve café über Straße Zürich Ärger Öl jalapeño mañana garçon façade crème brûlée smørrebrød "
    "Ångström łódź žluť привет мир спасибо Москва книга время γειά κόσμος αλφα ομέγα שלום תודה "
    "مرحبا سلام ﷽ नमस्ते हिन्दी สวัสดี"
).split()


def plain(dice: Dice, limit: int) -> str:
    """Sentences or words."""
    if dice.chance(0.5):
        return prose.paragraph(dice, max(1, limit // 60))
    if dice.chance(0.3):
        joint = dice.pick((" ", " ", "", ", ", "-"))
        return joint.join([_cased(dice, prose.cutting(dice)) for _ in range(max(1, limit // 7))])
    pool = dice.pick((words.ANIMALS, words.THINGS, words.FOODS, words.NAMES, words.ADJECTIVES))
    count = max(1, limit // 7)
    joint = dice.pick((" ", " ", ", ", "-", "\n", " / ", ""))
    return joint.join([dice.pick(pool) for _ in range(count)])


def _cased(dice: Dice, text: str) -> str:
    return text.capitalize() if dice.chance(0.25) else text


def pieces(dice: Dice, limit: int) -> str:
    """Stretches of words, of one letter to whole words, apart or run together: every piece of the
    vocabulary comes up, and has to be copied wherever it stands."""
    joint = dice.pick((" ", " ", " ", ", ", "-", "_", ".", "/", "", "\n"))
    made: list[str] = []
    room = limit
    while room > 0:
        piece = prose.coined(dice) if dice.chance(0.25) else dice.pick(prose.EVERY)
        if dice.chance(0.55):
            begin = dice.below(len(piece))
            piece = piece[begin : begin + dice.between(1, 9)]
        made.append(piece.capitalize() if dice.chance(0.3) else piece)
        room -= len(piece) + len(joint)
    return joint.join(made)


def noise(dice: Dice, limit: int) -> str:
    """Random printable characters, some with spaces."""
    alphabet = dice.pick(
        (
            _PRINTABLE,
            "abcdefghijklmnopqrstuvwxyz",
            "abcdefghijklmnopqrstuvwxyz0123456789",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            "0123456789",
            "0123456789abcdef",
            "01",
            _PRINTABLE + "      ",
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ     ",
            _MARKS,
        )
    )
    return "".join([dice.pick(alphabet) for _ in range(limit)])


def emoji(dice: Dice, limit: int) -> str:
    """Emoji, sequences of several code points included."""
    return _joined(dice, limit, _emoji)


def _emoji(dice: Dice) -> str:
    kind = dice.below(10)
    if kind < 5:
        return dice.pick(_PICTURES)
    if kind < 7:
        return dice.pick(_FACES)
    if kind == 7:
        return dice.pick(_SIGNS) + ("\ufe0f" if dice.chance(0.3) else "")
    if kind == 8:
        return dice.pick(_FAMILIES) if dice.chance(0.5) else dice.pick(_HANDS) + dice.pick(_SKIN)
    return chr(0x1F1E6 + dice.below(26)) + chr(0x1F1E6 + dice.below(26))


def cjk(dice: Dice, limit: int) -> str:
    """Chinese, Japanese and Korean: words and random characters."""
    return _joined(dice, limit, _cjk)


def _cjk(dice: Dice) -> str:
    kind = dice.below(8)
    if kind < 3:
        return dice.pick(_CJK_WORDS)
    if kind == 3:
        return dice.pick("，。！？、；：「」（）")
    if kind == 4:
        return chr(
            dice.between(0x3041, 0x3096) if dice.chance(0.5) else dice.between(0x30A1, 0x30FA)
        )
    if kind == 5:
        return chr(dice.between(0xAC00, 0xD7A3))
    return chr(dice.between(0x4E00, 0x9FA5))


def scripts(dice: Dice, limit: int) -> str:
    """Accents, Cyrillic, Greek, Hebrew, Arabic, Devanagari, Thai."""
    return _joined(dice, limit, lambda d: d.pick(_OTHER_WORDS), joint=" ")


_RANGES = (
    (0xA1, 0xAD), (0xAE, 0x100), (0x100, 0x180), (0xC0, 0x100), (0x391, 0x3A2), (0x3B1, 0x3CA),
    (0x410, 0x450), (0x5D0, 0x5EB), (0x621, 0x63B), (0x641, 0x64B), (0x905, 0x93A),
    (0xE01, 0xE2F), (0x2010, 0x2028), (0x2030, 0x205F), (0x20A0, 0x20C0), (0x2100, 0x214F),
    (0x2150, 0x218A), (0x2190, 0x2300), (0x2460, 0x2500), (0x2500, 0x2600), (0x3001, 0x3020),
    (0xFDFD, 0xFDFE), (0xFF01, 0xFF5F),
)  # fmt: skip
"""Printable characters of many scripts; none that combines with its neighbour."""


def characters(dice: Dice, limit: int) -> str:
    """Single characters of any script, alone or in short runs, among words."""
    return _joined(dice, limit, _character)


def _character(dice: Dice) -> str:
    kind = dice.below(6)
    if kind == 0:
        return dice.pick(words.THINGS)
    if kind == 1:
        return prose.letters(dice, dice.between(1, 3), _PRINTABLE)
    low, high = dice.pick(_RANGES)
    return "".join([chr(dice.between(low, high - 1)) for _ in range(dice.between(1, 3))])


def _joined(dice: Dice, limit: int, make: Callable[[Dice], str], joint: str | None = None) -> str:
    between = dice.pick(("", "", " ")) if joint is None else joint
    parts: list[str] = []
    room = limit
    while room > 0:
        parts.append(make(dice))
        room -= len(parts[-1]) + len(between)
    return between.join(parts)


def mixed(dice: Dice, limit: int) -> str:
    """Short pieces of everything."""
    parts: list[str] = []
    room = limit
    while room > 0:
        make = dice.pick(
            (plain, pieces, noise, emoji, cjk, scripts, characters, characters, _word, _word)
        )
        parts.append(make(dice, dice.between(1, 12)))
        room -= len(parts[-1]) + 1
    return " ".join(parts)


def _word(dice: Dice, limit: int) -> str:
    return dice.pick((words.THINGS, words.ADJECTIVES, words.ANIMALS, words.NAMES)[limit % 4])


_CODE = (
    "def {f}({a}, {b}):\n    return {a} {op} {b}",
    "def {f}({a}):\n    for {b} in {a}:\n        print({b})\n    return None",
    "if {a} > {n}:\n    {b} = {a} {op} {n}\nelse:\n    {b} = {n}",
    "for (let {a} = 0; {a} < {n}; {a}++) {\n  {f}({a});\n}",
    "const {a} = await {f}({n});",
    "SELECT {a}, {b} FROM {f} WHERE {a} = {n};",
    "while {a} < {n}:\n    {a} += 1\n    {f}({a}, '{b}')",
    "fn {f}({a}: u32) -> u32 {\n    {a} {op} {n}\n}",
    "x = [{a} for {a} in range({n}) if {a} % 2]",
    "{f} --{a}={n} --{b} > {a}.txt",
    '<div class="{a}"><p>{b} {n}</p></div>',
    "import {a}\nfrom {b} import {f}",
    "try:\n    {f}({n})\nexcept ValueError:\n    pass",
    "{a}[{n}] = {f}({b}) {op} {n}  # {b}",
)


def source(dice: Dice, limit: int) -> str:
    """Lines of code in several languages."""
    text = ""
    while len(text) < limit:
        block = dice.pick(_CODE)
        for slot, value in (
            ("{f}", dice.pick(words.VERBS) + "_" + dice.pick(words.THINGS)),
            ("{a}", dice.pick(words.THINGS) if dice.chance(0.5) else dice.pick("abcijkxyz")),
            ("{b}", dice.pick(words.FOODS) if dice.chance(0.5) else dice.pick("defmnpqrst")),
            ("{op}", dice.pick("+-*/")),
            ("{n}", str(dice.below(1000))),
        ):
            block = block.replace(slot, value)
        joined = f"{text}\n{block}" if text else block
        if text and len(joined) > limit:
            break
        text = joined
    return text


def data(dice: Dice, limit: int) -> str:
    """A JSON object or array."""
    value = _object(dice, 2)
    while len(json.dumps(value)) < limit * 0.6:
        value[_key(dice)] = _value(dice, 1)
    indent = 2 if dice.chance(0.15) else None
    tight = (",", ":") if dice.chance(0.3) else None
    return json.dumps(value, indent=indent, separators=tight, ensure_ascii=dice.chance(0.3))


def _key(dice: Dice) -> str:
    key = dice.pick(words.THINGS)
    return key if dice.chance(0.6) else f"{key}_{dice.pick(('id', 'name', 'count', 'list'))}"


def _object(dice: Dice, depth: int) -> dict[str, Any]:
    return {_key(dice): _value(dice, depth - 1) for _ in range(dice.between(1, 2))}


def _value(dice: Dice, depth: int) -> Any:
    kind = dice.below(9 if depth > 0 else 7)
    if kind == 0:
        return dice.between(-99, 9999)
    if kind == 1:
        return dice.between(0, 9999) / 100
    if kind == 2:
        return dice.chance(0.5)
    if kind == 3:
        return None
    if kind == 4:
        return dice.pick(_CJK_WORDS) if dice.chance(0.3) else prose.code(dice)
    if kind < 7:
        return dice.pick(words.FOODS) if dice.chance(0.6) else prose.name(dice)
    if kind == 7:
        return [_value(dice, 0) for _ in range(dice.between(0, 4))]
    return _object(dice, depth)


def tagged(dice: Dice, limit: int) -> str:
    """XML-like tags, urls and addresses."""
    word = dice.pick(words.THINGS)
    kind = dice.below(4)
    if kind == 0:
        return f"<{word}>{prose.fill(dice, '{adj} {animal}')}</{word}>"
    if kind == 1:
        host = f"{dice.pick(words.ADJECTIVES)}-{word}"
        return f"https://{host}.example/{prose.code(dice)}?q={dice.below(100)}"
    if kind == 2:
        return f"{dice.pick(words.NAMES).lower()}.{word}{dice.below(99)}@{dice.pick(words.PLACES)}.example"
    return f"/home/{word}/{dice.pick(words.PLACES)}/{prose.code(dice)}.txt"


_KINDS: Sequence[Callable[[Dice, int], str]] = (
    plain, plain, pieces, pieces, pieces, pieces, noise, noise, emoji, cjk, scripts, characters, mixed, mixed, source,
    source, data, data, tagged,
)  # fmt: skip


def scrap(dice: Dice, limit: int) -> str:
    """A text of about `limit` characters, at least one."""
    text = dice.pick(_KINDS)(dice, limit).strip()
    return text or prose.invented(dice)
