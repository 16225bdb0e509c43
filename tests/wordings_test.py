"""The wordings that ling-nano is trained on: none is a held-out or fresh one, each says every number, and stored test sets do not move.

What fails here prints counts and names of families and kinds, never a text: who writes wordings must not see the test's.
"""

import json
import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "training"))
import make_tests  # noqa: E402
from data import chains, fresh, problems, turns, words  # noqa: E402
from data.family import FAMILIES, POOLS, expand, filled, draw_values, shown  # noqa: E402

FILES = ROOT / "tests/data/nano"
STORED = {path.stem: path for path in [*FILES.glob("*.jsonl"), *FILES.glob("more/*.jsonl")]
          if path.stem in make_tests.KINDS and "lookup" not in path.stem}     # look-up texts hold no wording and take seconds each
POOLED = sorted({word for pool in POOLS.values() for word in pool}, key=len, reverse=True)
MASK = re.compile(r"\b(?:" + "|".join(map(re.escape, POOLED)) + r")(?:s|es)?\b", re.I)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def masked(text):
    """Names and things as one sign, numbers as another, small letters, no punctuation, single blanks."""
    text = MASK.sub("X", NUMBER.sub("#", turns.percent(None, text)))
    return " ".join(re.sub(r"[^\w#X ]", " ", text).lower().split())


@pytest.fixture(scope="module")
def barred():
    """family or scenario -> masked texts of its held-out and fresh wording"""
    rng, out = random.Random(1), {}
    for _ in range(6000):
        problem = problems.ordinary(rng, held_out=True)
        out.setdefault(problem.family, set()).add(masked(problem.question))
    for index in range(3000):
        problem = fresh.problem(rng, index)
        out.setdefault(problem.family, set()).add(masked(problem.question))
    return out


def test_no_training_wording_is_held_out_or_fresh(barred):
    rng, equal = random.Random(2), Counter()
    assert set(problems.KNOWN) <= set(barred)
    for name in problems.KNOWN:
        for voiced in (0, 1):
            for _ in range(60):
                equal[name] += masked(expand(rng, FAMILIES[name], voiced=voiced).question) in barred[name]
        family = FAMILIES[name]
        texts = shown(draw_values(rng, family)[0])
        for _ in range(100):                                    # as written, without turns
            equal[name] += masked(filled(family.voices.draw(rng), texts)) in barred[name]
    for scenario in problems.SCENARIOS:
        for voiced in (0, 1):
            for _ in range(300):
                equal[scenario] += masked(chains.story(rng, scenario, rng.randint(1, 5), 300, voiced=voiced).question) in barred[scenario]
    assert not +equal, +equal


def test_a_held_out_wording_would_be_noticed(barred):
    """The mask is fine enough to tell wordings apart and coarse enough to find one again with other names and numbers."""
    rng = random.Random(3)
    for name in problems.KNOWN:
        noticed = masked(expand(rng, FAMILIES[name], held_out=True).question) in barred[name]
        assert noticed, name            # not in one line: pytest would print the texts


@pytest.mark.parametrize("name", problems.KNOWN)
def test_each_voice_says_what_the_answer_needs(name):
    """Every number of a step, and every word of the labels and the closing sentence, is said; nothing else is."""
    family, rng = FAMILIES[name], random.Random(4)
    results = {key for key, _, _ in family.steps}
    numbers = {token for _, expression, _ in family.steps for token in expression.split()[0::2] if not token.isdigit()} - results
    shown_words = set(re.findall(r"{(\w+)}", " ".join(label for _, _, label in family.steps) + family.closing)) - results
    allowed = numbers | {key for key, value in draw_values(rng, family)[0].items() if isinstance(value, str)}
    assert len(family.voices.texts) >= 11
    for _ in range(40 * len(family.voices.texts)):
        text = family.voices.draw(rng)
        used = set(re.findall(r"{(\w+)}", text))
        assert numbers | shown_words <= used <= allowed, text
        assert not re.search(r"[\[\]|~]|//|  ", text), text


def amounts(text, words_before=None):
    """All numbers of a text; of words only those that `words_before` lacks."""
    found = Counter(number.replace(",", "") for number in NUMBER.findall(text))
    if words_before is not None:
        new = Counter(re.findall(r"[a-z]+", text.lower())) - Counter(re.findall(r"[a-z]+", words_before.lower()))
        value = {word: str(i) for i, word in enumerate(turns.SMALL)} | {word: str(i) for i, word in turns.TENS.items()} | {"twice": "2"}
        for word, count in new.items():
            if word in value:
                found[value[word]] += count
    return found


@pytest.mark.parametrize("turn", [turn for turn, _ in turns.TURNS + turns.LAST_TURNS if turn is not turns.fractions] + [turns.pronouns],
                         ids=lambda turn: turn.__name__)
def test_a_turn_changes_no_number(turn):
    rng, changed = random.Random(6), 0
    for _ in range(4000):
        text = problems.ordinary(rng, voiced=0.7).question
        other = turn(rng, text)
        changed += other != text
        before = amounts(text)
        after = amounts(other, text if turn in (turns.number_words, turns.twice) else None)
        assert before == after, (text, other)
    assert changed > 15


def test_fractions_as_words():
    rng = random.Random(7)
    assert turns.fractions(rng, "She keeps 1/2 of the 40 eggs, 7/9 of the rest.") == "She keeps half of the 40 eggs, 7/9 of the rest."
    assert turns.fractions(rng, "What is 3/4 of 80?") == "What is three quarters of 80?"


def test_turns_by_example():
    rng = random.Random(8)
    assert turns.twice(rng, "Ben has 2 times as many, not 12 times.") == "Ben has twice as many, not 12 times."
    assert turns.dollars(rng, "He pays $5 each with a $20 bill.") == "He pays 5 dollars each with a $20 bill."
    assert turns.pronouns(rng, "Ana has 5 eggs. Ana buys 3. How many does Ana have?") == "Ana has 5 eggs. She buys 3. How many does she have?"
    assert turns.pronouns(rng, "Ana has 5 eggs. Ben has 3 more than Ana.") == "Ana has 5 eggs. Ben has 3 more than Ana."
    assert turns.indirect("How many eggs does Ana have now?") == "how many eggs Ana has now"
    assert turns.indirect("How many eggs are there?") == "how many eggs there are"
    assert turns.indirect("Why does Ana have 3?") is None
    assert turns.question_first(rng, "Ana has 5 eggs. How many of them are left?") == "Ana has 5 eggs. How many of them are left?"


@pytest.mark.parametrize("kind", sorted(STORED))
def test_stored_sets_are_what_the_generator_draws(kind):
    """New wordings must not move the random numbers of a test set."""
    stored = [json.loads(row) for row in STORED[kind].read_text(encoding="utf-8").splitlines()]
    made = json.loads(json.dumps(make_tests.make(kind, len(stored))))
    changed = sum(a != b for a, b in zip(stored, made))
    assert len(stored) == 50 and changed == 0


def test_names_have_a_pronoun():
    assert turns.FEMALE <= set(words.NAMES)
