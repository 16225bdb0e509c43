"""N09: each option that is there for speed, alone and together, against exact arithmetic on the same questions.

The limit: an option may be a default only while it costs at most 3 of 100 questions here, which is two standard errors of the
few pairs that disagree; the figure for 1,000 questions is in docs/BENCHMARKS.md.
"""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT, SPARKLING

sys.path.insert(0, str(ROOT / "tools"))
import questions  # noqa: E402  (needs the path above)

LIMIT = 0.03
EXACT = ("--precision", "exact", "--draft", "0")
FAST = {
    "packed experts": ("--moe", "packed", "--lm-head", "stored", "--draft", "0"),
    "fp8 head": ("--moe", "plain", "--lm-head", "fp8", "--draft", "0"),
    "drafts": ("--precision", "exact", "--draft", "3"),
    "the defaults": (),
}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    path = tmp_path_factory.mktemp("quality") / "questions.jsonl"
    rows = []
    for name in ("problems", "two_step"):
        for line in (ROOT / f"tests/data/nano/{name}.jsonl").read_text(encoding="utf-8").splitlines():
            rows.append(questions.question(json.loads(line)))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row), encoding="utf-8")
    return path


def run(sparkling, asked, out, options):
    sparkling("eval", "set", asked, "--thinking", "on", "--temperature", "0", "--max-tokens", "600", "--out", out, *options)
    return out


@pytest.fixture(scope="module")
def exact(sparkling, asked, tmp_path_factory):
    return run(sparkling, asked, tmp_path_factory.mktemp("exact") / "exact.jsonl", EXACT)


@pytest.mark.parametrize("name", FAST)
def test_speed_costs_no_answers(sparkling, asked, exact, tmp_path, name):
    fast = run(sparkling, asked, tmp_path / "fast.jsonl", FAST[name])
    pair = json.loads(sparkling("eval", "compare", exact, fast, "--json").stdout)
    assert pair["pairs"] >= 60
    assert pair["report_a"]["accuracy_percent"] > 80, "the questions must be ones that the model can answer"
    lost = pair["right_in_a_only"] - pair["right_in_b_only"]
    assert lost <= LIMIT * pair["pairs"], (name, lost, pair["pairs"])
    if name == "drafts":
        assert pair["right_in_a_only"] == pair["right_in_b_only"] == 0, "a greedy text must not depend on drafts"


def test_tool_sets_convert():
    """Only items that are one question with one value become questions."""
    item = {"id": "a", "messages": [{"role": "user", "content": "1+1?"}], "check": "number", "answer": "2"}
    assert questions.question(item) == {"id": "a", "question": "1+1?", "answer": "#### 2"}
    assert questions.question({**item, "tools": [{}]}) is None
    assert questions.question({**item, "check": "json"}) is None
    assert questions.question({**item, "messages": item["messages"] * 2}) is None


def test_what_each_layout_costs_is_one_table(asked):
    """tools/formats.py: accuracy and divergence of fp4, bf16, fp8 and int4, one line each; two short answers are enough for its form."""
    command = [sys.executable, str(ROOT / "tools/formats.py"), str(asked), "--limit", "2", "--", "--max-tokens", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "SPARKLING": str(SPARKLING)})
    lines = [line.strip("|").split("|") for line in done.stdout.splitlines() if line.startswith("| ")]
    head, rows = [cell.strip() for cell in lines[0]], [[cell.strip() for cell in line] for line in lines[1:]]
    assert [row[0] for row in rows] == ["fp4 (shipped)", "bf16", "fp8", "int4"] and all(len(row) == len(head) for row in rows)
    divergence = [float(row[head.index("mean KL, nats")]) for row in rows]
    assert divergence[0] == divergence[1] == 0 and 0 < divergence[2] and 0 < divergence[3]
    assert [row[head.index("lost, won")] for row in rows[:2]] == ["0, 0", "0, 0"]
    assert "2 questions of" in done.stdout
