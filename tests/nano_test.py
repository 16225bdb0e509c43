"""ling-nano answers what it was trained on, so a broken kernel, cache or tokenizer shows as wrong answers.

50 questions of a kind, fixed seed (tests/data/nano, written by training/make_tests.py). Each kind must score what the shipped
files scored when they were stored, less two questions: other instruction sets never change a result, other compilers' libm might.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from score import Engine, read, score  # noqa: E402

STORED = {"two_step": 50, "problems": 50, "no_thinking": 50, "json": 50}


@pytest.fixture(scope="module")
def engine():
    with Engine(extra=["--threads", "1"]) as running:      # small matrices: a second thread gains little and waits on a busy machine
        yield running


@pytest.mark.parametrize("kind", sorted(STORED))
def test_scores_hold(engine, kind):
    result = score(read(ROOT / "tests/data/nano" / f"{kind}.jsonl"), engine)
    assert result.asked == 50
    assert result.good >= STORED[kind] - 2, result.wrong
