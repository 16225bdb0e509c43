"""Wordings put together from independent parts: facts and a question, each in many spellings, in several orders.

`say` gives a family its parts. A part is a text with {variables}, <macros> and nested [one|of|these]; facts are clauses without
a capital or full stop, so that they can stand alone, be joined, or hang on an "if". Training draws from here and from
the family's whole wordings. What is held out stays out: a sentence of a held-out wording is never composed.
"""
import re
from dataclasses import dataclass

from .family import FAMILIES, HELD_OUT, POOLS

MACROS = {
    "has": "[has|owns|holds|keeps|had|possesses]", "starts": "[has|had|starts with|began with|owns|begins with]",
    "gains": "[buys|gets|finds|receives|picks up|is given|wins|adds|brings]", "loses": "[gives away|sells|loses|uses|hands out|donates|throws away]",
    "more": "[more|others|additional ones|further ones|extra ones]", "each": "[each|apiece|a piece|for each one|per piece]",
    "total": "[in all|in total|altogether|overall|all in all|all together]", "now": "[now|then|after that|in the end|at the end|finally]",
    "left": "[are left|remain|are still there|are left over|stay]", "stillhas": "[still have|have left|keep|have in the end|end up with]",
    "isleft": "[is left|remains|is left over|is still there]", "cost": "[costs|is|sells for|is sold for|goes for|is priced at]",
    "day": "[a day|per day|each day|every day|daily]", "hour": "[an hour|per hour|each hour|every hour|hourly]",
    "week": "[a week|per week|each week|every week|weekly]", "month": "[a month|per month|each month|every month|monthly]",
    "minute": "[a minute|per minute|each minute|every minute]", "year": "[a year|per year|each year|every year|yearly]",
    "box": "[boxes|bags|baskets|crates|cartons|packs|cases|sacks|trays]", "abox": "[box|bag|basket|crate|carton|pack|case|sack|tray]",
    "equally": "[equally|evenly|fairly|in equal parts]", "pays": "[pays|spends|gives|has to pay|must pay]",
    "howmuch": "[how much|how many dollars|what amount|what sum]",
    "times": "times [as many|that many|that number|the number]",
    "two": "[they|both|the two|both people|the two of them]", "kids": "[children|students|pupils|kids]", "find": "[find|work out|calculate|determine|compute|give|tell]",
}
COMMAND = re.compile(r"(find|work out|calculate|determine|compute|give|tell|count|add up|name) ")
SPACE = re.compile(r" +(?=[ .,;?])")
INNER = re.compile(r"\[([^\[\]]*)\]")


@dataclass
class Parts:
    facts: list
    ask: str
    free: bool          # facts may come in any order
    barred: set         # sentences of the held-out wording, numbers and names still as variables
    extra: dict         # variables that only these words depend on, such as the unit: name -> entries

    def words(self, rng):
        out = {}
        for key, entries in self.extra.items():
            out[key] = rng.choice([e for e in entries if e not in out.values()])
        return out

    def compose(self, rng):
        while True:
            facts = [spun(rng, f) for f in self.facts]
            if self.free:
                rng.shuffle(facts)
            text = SPACE.sub("", arranged(rng, facts, spun(rng, self.ask)))
            if not self.barred.intersection(s.lower() for s in sentences(text)):
                return text


def spun(rng, text):
    """Resolves nested choices from the inside out."""
    while True:
        shorter = INNER.sub(lambda m: rng.choice(m.group(1).split("|")), text)
        if shorter == text:
            return text
        text = shorter


def expanded(text):
    for _ in range(3):
        text = re.sub(r"<(\w+)>", lambda m: MACROS[m.group(1)], text)
    return f"[{text}]"


def sentences(text):
    return re.split(r"(?<=[.!?]) ", text)


def every_spin(text):
    choice = re.search(r"\[([^\[\]]*\|[^\[\]]*)\]", text)
    if not choice:
        return [text]
    return [t for option in choice.group(1).split("|") for t in every_spin(text[:choice.start()] + option + text[choice.end():])]


def say(name, facts, ask, free=False, **extra):
    """`extra`: variables that only these words depend on; a pool's name or a list."""
    family = FAMILIES[name]
    extra = {key: POOLS[rule] if isinstance(rule, str) else rule for key, rule in extra.items()}
    assert not extra.keys() & family.variables.keys(), name
    barred = {s.lower() for text in every_spin(family.wordings[HELD_OUT]) for s in sentences(text)}
    family.parts = Parts([expanded(f) for f in facts], expanded(ask), free, barred, extra)


def capital(text):
    return text[0].upper() + text[1:]


def joined(rng, facts):
    """Facts as sentences; neighbours are sometimes drawn together."""
    out = [facts[0]]
    for fact in facts[1:]:
        if rng.random() < 0.3:
            out[-1] += rng.choice((" and ", ", and ", "; ", ", while ", ", and then ")) + fact
        else:
            out.append(fact)
    return out


def closed(ask):
    return capital(ask) + ("." if COMMAND.match(ask) else "?")


def arranged(rng, facts, ask):
    shape = rng.random()
    if shape < 0.12:
        opening = rng.choice(("If", "When", "If", "Given that", "Assuming that", "Suppose that"))
        text = ", ".join(facts[:-1]) + (" and " if len(facts) > 1 else "") + facts[-1]
        return f"{opening} {text}, {closed(ask)[0].lower()}{closed(ask)[1:]}"
    if shape < 0.2 and not COMMAND.match(ask):
        return f"{capital(ask)} if " + ", ".join(facts[:-1]) + (" and " if len(facts) > 1 else "") + facts[-1] + "?"
    told = " ".join(capital(f) + "." for f in joined(rng, facts))
    if shape < 0.26:
        return f"{closed(ask)} {told}"
    if shape < 0.32 and len(facts) > 1:           # the last fact belongs to the question
        told = " ".join(capital(f) + "." for f in joined(rng, facts[:-1]))
        return f"{told} {rng.choice(('If', 'When', 'Once'))} {facts[-1]}, {closed(ask)[0].lower()}{closed(ask)[1:]}"
    return f"{told} {closed(ask)}"

