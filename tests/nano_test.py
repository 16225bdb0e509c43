"""ling-nano answers what it was trained on, so a broken kernel, cache, template or tokenizer shows as wrong answers.

50 items of a kind, fixed seed (tests/data/nano, written by training/make_tests.py --count 50), asked of one server. Each kind must score what the
shipped files scored when they were stored, less two: other instruction sets never change a result, other compilers' libm might.
Two kinds of the card are not here: ten unseen families, which it cannot do, and look-up at 8K tokens, minutes of prompts.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from score import Engine, read, score  # noqa: E402

STORED = {"two_step": 50, "problems": 50, "no_thinking": 50, "json": 50,
          "more/composed": 50, "more/hard": 41, "more/held_out": 40, "more/fresh": 35, "more/tool_calls": 50, "more/tool_answers": 50,
          "more/copy": 49, "more/lookup_2k": 49, "more/chat": 50}  # fmt: skip


@pytest.fixture(scope="module")
def engine():
    with Engine(extra=["--threads", "1"]) as running:      # small matrices: a second thread gains little and waits on a busy machine
        yield running


@pytest.mark.parametrize("kind", sorted(STORED))
def test_scores_hold(engine, kind):
    result = score(read(ROOT / "tests/data/nano" / f"{kind}.jsonl"), engine)
    assert result.asked == 50
    assert result.good >= STORED[kind] - 2, result.wrong
