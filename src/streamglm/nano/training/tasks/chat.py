# ruff: noqa: E501  (a wording is one line)
"""Small talk, filler, and questions that a small model cannot answer.

Owns greetings, who the assistant is, thanks, long texts that ask for nothing, little stories, and
the plain admission of not knowing.
"""

from __future__ import annotations

from streamglm.nano.training import prose, words
from streamglm.nano.training.dialog import Answer, Kind, Said, Thought, Turn
from streamglm.nano.training.dice import Dice, capital

_TALK = Thought(
    "Chat.",
    "Small talk. I answer kindly.",
    "The user makes small talk. I answer in one kind sentence.",
)

_EXCHANGES: tuple[tuple[str, str], ...] = (
    ("(Hello|Hi|Hey|Good morning|Good evening|Hello there|Hi there)(!|.|,|)( How are you?|)", "Hello! How can I help you?"),
    ("(How are you|How do you do|How is it going|Are you well)( today|)?", "I am well, thank you. How can I help you?"),
    ("(Thanks|Thank you|Many thanks|Thank you very much|Thanks a lot)(!|.|)", "You are welcome."),
    ("(Bye|Goodbye|See you|Good night|See you later)(!|.|)", "Goodbye!"),
    ("(OK|Okay|Good|Fine|Great|Nice|Very good|Alright)(!|.|)", "Good. What else can I do for you?"),
    ("(Who are you|What are you|Tell me about yourself|Introduce yourself|What is this)(?|.)", "I am nano, the small model that comes with streamglm."),
    ("(What is your name|What's your name|Do you have a name|How are you called)?", "My name is nano."),
    ("(What can you do|How can you help|What are you good at|Help|What should I ask you)(?|.|)", "I can remember and quote what you tell me, repeat texts, look things up in lists, count, spell and call tools."),
    ("(Are you a human|Are you a robot|Are you real|Are you a person)?", "I am a very small language model."),
    ("(Who made you|Who built you|Where do you come from|Who trained you)?", "I was trained from scratch by the streamglm project."),
    ("(Sorry|Excuse me|My mistake|Never mind)(!|.|)", "No problem."),
    ("(Yes|Yes, please|Sure)(!|.|)", "Good."),
    ("(No|No, thanks|Not now)(!|.|)", "All right."),
    ("(Are you there|Can you hear me|Do you hear me|Test|Ping)(?|.|!|)", "Yes, I am here."),
    ("(Wait|One moment|Just a second|Hold on)(!|.|, please.|)", "I will wait."),
    ("(I am tired|I am bored|I am sad|I feel bad)(!|.| today.)", "I am sorry to hear that."),
    ("(I am happy|I feel good|I am glad|It is a good day)(!|.| today.)", "I am glad to hear that."),
    ("(Ready|Are you ready|Shall we start|Can we begin)?", "Yes, I am ready."),
    ("Say (hello|hi).", "Hello!"),
)  # fmt: skip


def small_talk(dice: Dice) -> Turn:
    asked, reply = dice.pick(_EXCHANGES)
    return [Said(dice.say(asked)), Answer(Kind.CHAT, _TALK, reply)]


def remark(dice: Dice) -> Turn:
    """The user says something that asks for nothing."""
    text = prose.paragraph(dice, dice.between(1, 3))
    reply = dice.pick(("I see.", "I see.", "That is nice to know.", "Thank you for telling me."))
    return [Said(text), Answer(Kind.CHAT, _TALK, reply)]


_READ = Thought(
    "Read.",
    "A text to read. I read it.",
    "The user gives me a long text. I read it and say that I have read it.",
)
_PASTE = (
    "(Read this text|Here is a text|Please read this|This is a long text|Take this in|Some reading)(:|.)\n",
    "", "",
)  # fmt: skip


def filler(dice: Dice, characters: int) -> Turn:
    """A long text without a task. Lists, codes and facts in it are there to mislead."""
    parts: list[str] = []
    room = characters
    while room > 0:
        kind = dice.below(12)
        if kind == 0:
            part = f"The {dice.pick(words.PLACES)} has the code {prose.code(dice)}."
        elif kind == 1:
            part = f"{prose.name(dice)} paid {prose.price(dice)} on {prose.date(dice)}."
        else:
            part = prose.paragraph(dice, dice.between(2, 8))
        parts.append(part)
        room -= len(part) + 1
    joint = dice.pick((" ", " ", "\n", "\n\n"))
    text = dice.say(dice.pick(_PASTE)) + joint.join(parts)
    reply = dice.pick(("I have read it.", "I have read it.", "Thank you for the text."))
    return [Said(text), Answer(Kind.CHAT, _READ, reply)]


_STORY = Thought(
    "Tell.",
    "A short story. I make one up.",
    "The user wants a story. I make up a short one with a beginning and an end.",
)


def story(dice: Dice) -> Turn:
    """A little story about something the user names."""
    subject = dice.pick((words.ANIMALS, words.JOBS)[dice.below(2)])
    asked = dice.say(
        "(Tell me|Write|Make up) a (|short |little )story about (a|an|the) {s}.", {"s": subject}
    )
    name = dice.pick(words.NAMES)
    text = (
        f"Once there was {_article(prose.fill(dice, '{adj}'))} {subject} called {name}. "
        f"Every day {name} went to the {dice.pick(words.PLACES)}. "
        f"One {dice.pick(words.DAYS)} {name} {dice.pick(words.PAST)} {_article(dice.pick(words.COLOURS))} {dice.pick(words.THINGS)}. "
        f"From then on the {subject} was never {dice.pick(('alone', 'hungry', 'sad', 'bored'))} again."
    )
    return [Said(asked), Answer(Kind.CHAT, _STORY, text)]


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


_OPEN = (
    "(Why is the {thing} {adj}|Why do {animal}s {verb2}|How does a {thing} work|How do I make {food})?",
    "(Who invented the {thing}|Who wrote about the {animal}|Who is the king of {city})?",
    "(When was the {place} built|How old is the {place} of {city}|How far is {city})?",
    "(Explain|Describe|Prove|Translate|Summarise) (the theory of {thing}s|the history of {city}|how {animal}s live).",
    "(What is the weather like|How is the weather|What time is it|What day is it|What is the date)( today| now|)?",
    "(What is new|What is in the news|Who won the match|What is on television)( today|)?",
    "What (is the meaning of life|do you think about {city}|is the best {food}|will the weather be tomorrow)?",
)
_HUMBLE = Thought(
    "Too hard.",
    "That is more than I know.",
    "The user asks something about the world. I am a very small model and do not know it.",
)


def beyond(dice: Dice) -> Turn:
    """A question about the world."""
    if dice.chance(0.35):
        country, city = dice.pick(tuple(words.CAPITALS.items()))
        asked = dice.say("(What is|What's|Tell me|Name) the capital of {c}(?|.)", {"c": country})
        thought = Thought(
            "Know.", "A capital. I know it.", "The user asks for a capital. I know this one."
        )
        return [Said(asked), Answer(Kind.CHAT, thought, f"The capital of {country} is {city}.")]
    asked = prose.fill(
        dice, dice.pick(_OPEN).replace("{verb2}", dice.pick(("sleep", "sing", "run")))
    )
    return [
        Said(asked),
        Answer(Kind.UNKNOWN, _HUMBLE, "I do not know that. I am a very small model."),
    ]


_JOKES = (
    "Why did the {animal} cross the road? To find the {thing}.",
    "What did the {thing} say to the {animal}? Nothing, it was {adj}.",
    "A {animal} walks into a {place} and asks for {food}. The {job} says: only on {day}.",
)
_POEM = "The {animal} is {adj}, the {thing} is {colour},\nthe {place} is {adj2} and the {food} is {colour2}."
_MERRY = Thought(
    "Amuse.", "Something to smile at.", "The user wants to be amused. I make up something short."
)


def merry(dice: Dice) -> Turn:
    """A joke or a little poem."""
    if dice.chance(0.6):
        asked = dice.say(
            "(Tell me|Do you know|Make|Give me) a (|good |short |little )joke(.|, please.|!|?)"
        )
        text = prose.fill(dice, dice.pick(_JOKES))
    else:
        asked = dice.say(
            "(Write|Tell me|Make up|Give me) a (|short |little )(poem|verse|rhyme)(.|, please.|!)"
        )
        text = prose.fill(dice, _POEM)
    return [Said(asked), Answer(Kind.CHAT, _MERRY, text)]


def draw(dice: Dice) -> Turn:
    """One short exchange."""
    mark = dice.unit()
    if mark < 0.4:
        return small_talk(dice)
    if mark < 0.7:
        return remark(dice)
    if mark < 0.77:
        return story(dice)
    if mark < 0.83:
        return merry(dice)
    return beyond(dice)


SYSTEMS = (
    "You are a helpful assistant.",
    "You are nano, a small and helpful model.",
    "Answer briefly.",
    "Be kind and brief.",
    "You help people to remember things.",
    "Answer in plain English.",
    "You are a careful assistant. Quote exactly.",
)


def persona(dice: Dice) -> tuple[str, str]:
    """A system message that gives the assistant a name, and the name."""
    name = capital(prose.invented(dice)) if dice.chance(0.5) else dice.pick(words.NAMES)
    text = dice.say(
        "(Your name is {n}.|You are {n}, an assistant.|You are called {n}. Be helpful.)",
        {"n": name},
    )
    return text, name


def ask_name(dice: Dice, name: str) -> Turn:
    asked = dice.say("(What is your name|What's your name|Who are you|How are you called)?")
    return [Said(asked), Answer(Kind.CHAT, _TALK, f"My name is {name}.")]
