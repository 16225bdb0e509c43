"""Texts of many voices: notes, talk, quoted speech, questions first, passive, given and wanted, one fact told by another.

`voice` gives a family whole texts in the language of phrases.py and compact.py; `a // b // ?question` are facts in any order, arranged
like the parts of phrases.py. `tell` gives the same to the sentences of a story. They were written blind: README.md says by what
rule. As everywhere, no text with a sentence of the held-out wording is drawn.
"""
import re
from dataclasses import dataclass

from .compact import listed
from .family import FAMILIES
from .phrases import SPACE, arranged, expanded, spun

DECAPITAL = re.compile(r"(A|An|The|One|There|Each|Every|Everybody|In|For|Making|On|Of) ")
TOLD = {}                   # scenario -> kind of sentence -> all its texts as one choice
ANY_ORDER = " // "


def clause(sentence):
    sentence = sentence.rstrip(".?")
    return sentence[0].lower() + sentence[1:] if DECAPITAL.match(sentence) else sentence


@dataclass
class Voices:
    texts: list

    def draw(self, rng):
        text = listed(rng, spun(rng, rng.choice(self.texts)))
        if ANY_ORDER in text:
            *facts, ask = text.split(ANY_ORDER)
            rng.shuffle(facts)
            text = arranged(rng, [clause(f) for f in facts], clause(ask.lstrip("?")))
        return SPACE.sub("", text)


def voice(name, *texts):
    assert FAMILIES[name].voices is None, name
    FAMILIES[name].voices = Voices([expanded(t) for t in texts])


def further(name, *texts):
    FAMILIES[name].voices.texts.extend(expanded(t) for t in texts)


def tell(scenario, kind, *texts):
    kinds = TOLD.setdefault(scenario, {})
    assert kind not in kinds, (scenario, kind)
    kinds[kind] = "|".join(texts)
