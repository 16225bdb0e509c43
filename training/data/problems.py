"""Draws word problems: ordinary, hard, held-out wordings, unseen families; and turns one into a chat sample."""
from . import chains, families_goods, families_measure, families_money, families_people, families_unseen  # noqa: F401
from . import phrases_goods, phrases_measure, phrases_money, phrases_people  # noqa: F401
from . import compact_goods, compact_measure, compact_money, compact_people  # noqa: F401
from . import voices_goods, voices_measure, voices_money, voices_people  # noqa: F401
from . import further_goods, further_measure, further_money, further_people  # noqa: F401
from .family import COMPOSED, FAMILIES, expand

UNSEEN = families_unseen.UNSEEN
KNOWN = [name for name in FAMILIES if name not in UNSEEN]
SCENARIOS = list(chains.SCENARIOS)
HARD_SIZE = 3000          # largest starting numbers in training
HARD_TEST_SIZE = 6000     # of the hard set: chosen so that ling-nano scores between 50 and 90 % and a loss would show


def ordinary(rng, held_out=False, composed=COMPOSED, voiced=0):
    """`composed`: share of texts put together from parts; with 0 only the whole wordings of the families. `voiced`: of voices.py and turns.py."""
    distractors = rng.choice((0, 0, 0, 1))
    if rng.random() < 0.3:
        size = rng.choice((20, 60, 100, 300, 900))
        return chains.story(rng, rng.choice(SCENARIOS), rng.randint(1, 5), size, held_out, distractors, composed, voiced)
    return expand(rng, FAMILIES[rng.choice(KNOWN)], held_out, distractors, composed, voiced)


def two_step(rng):
    """The easiest figure of the card: known families of exactly two steps, whole wordings."""
    while True:
        problem = expand(rng, FAMILIES[rng.choice(KNOWN)], composed=0)
        if problem.steps == 2:
            return problem


def hard(rng, size=HARD_TEST_SIZE, composed=COMPOSED, voiced=0):
    return chains.story(rng, rng.choice(SCENARIOS), rng.randint(4, 6), size, False, rng.randint(1, 2), composed, voiced)


def unseen(rng):
    return expand(rng, FAMILIES[rng.choice(UNSEEN)])


def sample(rng, problem, thinking=True):
    """Worked steps go into the thinking block, or, with thinking off, in front of the answer."""
    worked, answer = "\n".join(problem.lines), f"{problem.closing}\n#### {problem.answer}"
    reply = dict(role="assistant", content=answer if thinking else f"{worked}\n{answer}")
    if thinking:
        reply["reasoning_content"] = worked
    return dict(messages=[dict(role="user", content=problem.question), reply], thinking=thinking)
