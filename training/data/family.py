"""The small language in which word-problem families are written, and its expansion into one problem.

A family is: variables, steps, wordings. Variables are drawn in order:
  (lo, hi) or (lo, hi, step)  a number;   a list  one of its entries;   "name", "items", ...  a pool of words.py;
  "= expression"              derived from earlier ones with Python arithmetic on exact fractions.
Steps are (key, expression of arithmetic.work, label); the last one is the answer. Wordings are texts with {variables}
and [one|of|these]; the one at HELD_OUT is kept out of training.
"""
import re
from dataclasses import dataclass, field
from fractions import Fraction

from . import arithmetic, turns, words

POOLS = {"name": words.NAMES, "items": words.ITEMS, "goods": words.GOODS, "food": words.FOODS, "animals": words.ANIMALS,
         "place": words.PLACES, "shop": words.SHOPS, "job": words.JOBS, "color": words.COLORS,
         "vehicle": words.VEHICLES, "city": words.CITIES}
HELD_OUT = -2               # neither the plainest nor the oddest wording
COMPOSED = 0.8              # share of training texts put together from parts, where a family has parts
COMPACT = 0.45              # share of those that hold several facts in one clause
VOICES = 0.7                # share of texts of many voices, where turned texts are drawn; the others are turned texts of the kinds above
START = re.compile(r"^[a-z]|(?<=[.?!] )[a-z]")
CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")


@dataclass
class Problem:
    question: str
    lines: list                    # worked steps, one text each
    answer: str                    # canonical number
    closing: str                   # the short sentence of the answer
    family: str
    steps: int = 0


@dataclass
class Family:
    name: str
    variables: dict
    steps: list
    wordings: list
    closing: str
    codes: dict = field(default_factory=dict)
    parts: object = None           # phrases.Parts: wordings put together from independent parts
    compact: object = None         # compact.Compact: several facts in one clause
    voices: object = None          # voices.Voices: texts of many voices


FAMILIES = {}


def fam(name, variables, steps, wordings, closing):
    assert name not in FAMILIES and len(wordings) >= 3, name
    family = Family(name, variables, steps, wordings, closing)
    for key, rule in variables.items():
        if isinstance(rule, str) and rule.startswith("="):
            family.codes[key] = compile(rule[1:].strip(), name, "eval")
    FAMILIES[name] = family


def spin(rng, wording):
    """Resolves every [a|b|c]."""
    return CHOICE.sub(lambda m: rng.choice(m.group(1).split("|")), wording)


def wording(rng, wordings, held_out):
    if held_out:
        return wordings[HELD_OUT]
    return rng.choice(wordings[:HELD_OUT] + wordings[HELD_OUT + 1:])


def draw(rng, rule, used):
    if isinstance(rule, tuple):
        low, high, step = (*rule, 1)[:3]
        step = Fraction(str(step))
        return low + step * rng.randint(0, int((high - low) / step))
    if isinstance(rule, list):
        return rng.choice(rule)
    while True:
        word = rng.choice(POOLS[rule])
        if word not in used:
            used.add(word)
            return word


def draw_values(rng, family):
    """Variables and step results, redrawn until every number can be printed and no result is zero."""
    for _ in range(200):
        env, used = {}, set()
        for key, rule in family.variables.items():
            env[key] = (eval(family.codes[key], {"Fraction": Fraction}, env) if key in family.codes
                        else draw(rng, rule, used))
        numbers = [v for v in env.values() if not isinstance(v, str)]
        if not all(v > 0 and arithmetic.tidy(v) for v in numbers):
            continue
        lines, ok = [], True
        for key, expression, label in family.steps:
            try:
                line, value = arithmetic.work(expression, env)
            except (ZeroDivisionError, AssertionError):
                ok = False
                break
            if value <= 0 or not arithmetic.tidy(value):
                ok = False
                break
            env[key] = value
            lines.append((label, line))
        if ok:
            return env, lines
    raise ValueError(f"family {family.name}: no printable draw")


def shown(env):
    return {k: v if isinstance(v, str) else arithmetic.text(v) for k, v in env.items()}


DISTRACTORS = [
    "{n} is {d} years old.", "The {place} is {d} kilometers away.", "There are {d} {items} in the window.",
    "{n} also saw {d} {items} on the way.", "It took {d} minutes to get there.", "Last year {n} had {d} {items}.",
    "A neighbor owns {d} {items}.", "The {color} box weighs {d} pounds.", "{n} lives at number {d}.",
    "The {shop} opened {d} years ago.", "Yesterday the temperature was {d} degrees.", "A {goods} costs ${d} there.",
]


def distractor(rng):
    used = set()
    env = {k: draw(rng, k, used) for k in ("place", "items", "color", "shop", "goods")}
    return rng.choice(DISTRACTORS).format(n=rng.choice(words.NAMES), d=rng.randint(2, 90), **env)


def with_distractors(rng, question, count):
    sentences = re.split(r"(?<=[.!]) ", question)
    for _ in range(count):
        sentences.insert(rng.randint(0, len(sentences) - 1), distractor(rng))
    return " ".join(sentences)


def worded(rng, family, texts, held_out, composed):
    """A text with {variables}; those that only its words depend on are put into `texts`."""
    if family.parts and composed and not held_out and rng.random() < composed:
        if family.compact and rng.random() < COMPACT:
            return family.compact.draw(rng)
        texts.update(family.parts.words(rng))
        return family.parts.compose(rng)
    return spin(rng, wording(rng, family.wordings, held_out))


def filled(text, texts):
    return START.sub(lambda m: m.group().upper(), text.format(**texts))


def turned_text(rng, family, texts, alone, composed):
    """A text of many voices or of the other kinds, turned; no sentence of the held-out wording, turned or not."""
    barred = {turns.plain(sentence.format(**texts)) for sentence in family.parts.barred}
    while True:
        text = family.voices.draw(rng) if rng.random() < VOICES else worded(rng, family, texts, False, composed)
        text = turns.turned(rng, filled(text, texts), alone)
        if not barred.intersection(map(turns.plain, turns.split(text))):
            return text


def expand(rng, family, held_out=False, distractors=0, composed=COMPOSED, voiced=0):
    """`voiced`: share of turned texts. With 0 not even a random number is drawn for it, so that test sets stay the same."""
    env, lines = draw_values(rng, family)
    texts = shown(env)
    turning = voiced and not held_out and family.voices and rng.random() < voiced
    question = (turned_text(rng, family, texts, not distractors, composed) if turning else
                filled(worded(rng, family, texts, held_out, composed), texts))
    worked = [f"{spin(rng, label).format(**texts)}: {line}" for label, line in lines]
    answer = texts[family.steps[-1][0]]
    closing = spin(rng, family.closing).format(**texts)
    question = with_distractors(rng, question, distractors)
    if turning:
        question = turns.finished(rng, question)
    return Problem(question, worked, answer, closing, family.name, len(lines))
