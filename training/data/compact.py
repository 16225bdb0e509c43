"""Compact wordings: several facts in one clause, numbers inside the question, lists in any order. `phrases.say` puts one fact into
one clause; a model that knows only that takes numbers for one another where a sentence holds several.

`brief` gives a family whole texts in the language of phrases.py; ~a~b~c~ is a list in a random order. As there, a sentence of the
held-out wording is never written.
"""
import re

from .family import FAMILIES
from .phrases import SPACE, expanded, sentences, spun

LIST = re.compile(r"~([^~]+(?:~[^~]+)+)~")


def listed(rng, text):
    """`~a~b~c~` as `b, c and a`."""
    def put(match):
        entries = match.group(1).split("~")
        rng.shuffle(entries)
        return ", ".join(entries[:-1]) + rng.choice((" and ", " and ", " and ", ", and ", " plus ", " as well as ")) + entries[-1]
    return LIST.sub(put, text)


class Compact:
    def __init__(self, texts, barred):
        self.texts, self.barred = [expanded(t) for t in texts], barred

    def draw(self, rng):
        while True:
            text = SPACE.sub("", re.sub(" +", " ", listed(rng, spun(rng, rng.choice(self.texts)))))
            if not self.barred.intersection(s.lower() for s in sentences(text)):
                return text


def brief(name, *texts):
    family = FAMILIES[name]
    family.compact = Compact(texts, family.parts.barred)
