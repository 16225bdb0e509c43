"""Asks `sparkling run` the questions of a test set and judges the answers: what the model card's figures mean, measured by
the engine itself.

    python3 tools/score.py SET.jsonl [--model FOLDER] [--limit N] [-- further options of run]

Sets are written by training/make_tests.py: one JSON object a line, {id, messages, thinking, check, answer}. Judged here are the
checks `number` (the text after ####), `exact` (the whole answer) and `json` (equal value); items with more than one user message
or with tools are left to the server's tests. Greedy. Exit status 1 when a run fails, not when an answer is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPARKLING = os.environ.get("SPARKLING", str(ROOT / "build/sparkling"))


def right(item, text):
    if item["check"] == "number":
        head, mark, number = text.rpartition("####")
        return bool(mark) and number.strip() == item["answer"]
    if item["check"] == "json":
        try:
            return json.loads(text) == item["answer"]
        except ValueError:
            return False
    return text == item["answer"]


def ask(item, model=None, extra=()):
    """The parsed --json object of one answer."""
    *before, user = item["messages"]
    command = [SPARKLING, "run", *([model] if model else []), "--json", "--temperature", "0", "--max-tokens", "1024"]
    for message in before:
        if message["role"] != "system":
            raise ValueError(f"{item['id']}: more than one turn")
        command += ["--system", message["content"]]
    command += ["--thinking", "on" if item["thinking"] else "off", *extra]
    done = subprocess.run(command, input=user["content"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{item['id']}: exit status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def score(path, limit=None, model=None, extra=()):
    """(right, asked, ids of wrong answers)"""
    items = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()][:limit]
    wrong = [item["id"] for item in items if not right(item, ask(item, model, extra)["text"])]
    return len(items) - len(wrong), len(items), wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set")
    parser.add_argument("--model")
    parser.add_argument("--limit", type=int)
    parser.add_argument("extra", nargs="*")
    a = parser.parse_args()
    good, asked, wrong = score(a.set, a.limit, a.model, a.extra)
    print(f"{Path(a.set).stem}: {good} of {asked} right, {100 * good / asked:.1f} %; wrong: {' '.join(wrong) or 'none'}")
