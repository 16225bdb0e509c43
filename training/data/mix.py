"""The training mixture: draws samples of all kinds and packs them into batches of a fixed number of tokens."""
import random
from dataclasses import dataclass

import numpy as np

from . import chat, copying, json_answers, lookup, problems, scripts, tools
from .corpora import Gsm8k, Prose
from .render import Renderer

MAX_DOCUMENTS = 640        # per batch; fixed, since captured graphs need fixed shapes. 65,536 / 640 = 102 tokens each
LONGEST = 8448             # tokens of one document: 8K of context plus questions


@dataclass
class Batch:
    tokens: np.ndarray      # [T] int16
    weights: np.ndarray     # [T] float16, weight of predicting this token from those before it
    positions: np.ndarray   # [T] int16, inside the document
    bounds: np.ndarray      # [MAX_DOCUMENTS + 1] int32, padded with T: empty documents


# Of samples, not tokens: look-up texts are forty times longer than word problems. "second" is the phase that teaches many
# wordings: about half of its tokens are word problems.
SHARES = {
    "first": dict(problem=62, hard=12, tool=8, talk=9, copy=3.5, json=6, short_lookup=3, middle_lookup=0, long_lookup=0.55,
                  other_scripts=2, gsm=2.5, passage=1.5),
    "second": dict(problem=110, hard=16, tool=4.5, talk=6, copy=3, json=4, short_lookup=2, middle_lookup=1.2, long_lookup=0.7,
                   other_scripts=1, gsm=1, passage=0.5),
    "third": dict(problem=120, hard=18, tool=6.5, talk=6, copy=3.2, json=4, short_lookup=2, middle_lookup=1.2, long_lookup=0.7,
                  other_scripts=1, gsm=1, passage=0.5),
    "fourth": dict(problem=125, hard=18, tool=7, talk=6, copy=3.4, json=4, short_lookup=2, middle_lookup=1.2, long_lookup=0.75,
                   other_scripts=1, gsm=1, passage=0.5),
    "fifth": dict(problem=105, hard=30, tool=9, talk=6, copy=7, json=4, short_lookup=2, middle_lookup=1.2, long_lookup=0.75,
                  other_scripts=1, gsm=1, passage=0.5),
}
VOICED = {"fourth": (0.65, 0.4), "fifth": (0.65, 0.4)}        # shares of ordinary and of hard word problems that are turned texts (voices.py, turns.py)


class Mixture:
    def __init__(self, seed, gsm8k=None, prose=None, folder=None, phase="first"):
        self.rng = random.Random(seed)
        self.renderer = Renderer(folder) if folder else Renderer()
        self.gsm8k = Gsm8k(gsm8k) if gsm8k else None
        self.prose = Prose(prose) if prose else None
        self.voiced, self.voiced_hard = VOICED.get(phase, (0, 0))
        self.kinds = {getattr(self, kind): share for kind, share in SHARES[phase].items()
                      if share and (self.gsm8k or kind != "gsm") and (self.prose or kind != "passage")}

    def problem(self):
        return problems.sample(self.rng, problems.ordinary(self.rng, voiced=self.voiced), thinking=self.rng.random() < 0.78)

    def hard(self):
        return problems.sample(self.rng, problems.hard(self.rng, self.rng.choice((300, 1000, problems.HARD_SIZE)), voiced=self.voiced_hard))

    def tool(self):
        return tools.sample(self.rng)

    def talk(self):
        return chat.sample(self.rng)

    def copy(self):
        return copying.sample(self.rng)

    def json(self):
        return json_answers.sample(self.rng)

    def other_scripts(self):
        return scripts.sample(self.rng)

    def short_lookup(self):
        return lookup.sample(self.rng, self.rng.randint(200, 3000), self.rng.randint(1, 6), self.prose and self.prose.sentence)

    def middle_lookup(self):
        return lookup.sample(self.rng, self.rng.randint(4000, 10000), self.rng.randint(2, 6), self.prose and self.prose.sentence)

    def long_lookup(self):
        return lookup.sample(self.rng, self.rng.randint(3000, 26500), self.rng.randint(6, 16), self.prose and self.prose.sentence)

    def gsm(self):
        return self.gsm8k.sample(self.rng)

    def passage(self):
        return dict(raw=self.prose.passage(self.rng, self.rng.randint(200, 1500)))

    def documents(self):
        kinds, shares = list(self.kinds), list(self.kinds.values())
        while True:
            for make in self.rng.choices(kinds, shares, k=64):
                ids, weights = self.renderer.document(make())
                if len(ids) <= LONGEST:
                    yield ids, weights

    def batches(self, size):
        """A document that does not fit any more is cut; its rest is dropped, so that no answer starts mid-text."""
        source = self.documents()
        while True:
            tokens, weights = np.zeros(size, np.int16), np.zeros(size, np.float16)
            positions, bounds = np.zeros(size, np.int16), np.full(MAX_DOCUMENTS + 1, size, np.int32)
            at = count = 0
            while at < size:
                ids, w = next(source)
                last = count == MAX_DOCUMENTS - 1
                n = min(len(ids), size - at)
                tokens[at:at + n], weights[at:at + n], positions[at:at + n] = ids[:n], w[:n], np.arange(n)
                weights[at] = 0         # nothing comes before a document's first token
                bounds[count] = at
                at, count = at + n, count + 1
                if last and at < size:  # table full: the tail becomes part of the last document, without loss
                    positions[at:] = np.minimum(np.arange(n, n + size - at), LONGEST)
                    break
            yield Batch(tokens, weights, positions, bounds)
