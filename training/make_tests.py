"""Writes the fixed-seed test sets, one JSONL file per kind. No item can occur in training except by chance: other seeds,
and the held-out, fresh and unseen sets use texts that training never draws.

    python make_tests.py --out tests --count 50          (default: the counts of the model card)
    python make_tests.py --out fresh --count 1000 --seed 31337 --kinds problems held_out

One item a line: {id, kind, messages, thinking, check, answer} and, where offered, tools. `messages` end before the turn
that the model has to write. `check` says how scoring.py judges: number (after `####`), exact (the whole content), json
(equal value), calls (names, arguments and types of all calls, in order).
"""
import argparse
import json
import random
from pathlib import Path

from data import chat, copying, fresh, json_answers, lookup, problems, tools
from data.render import Renderer

SEED = 2026
HARD_COMPOSED = 0.75        # a constant, so that the set stays the same when training draws another share


def item(sample, kind, check, answer):
    out = dict(kind=kind, messages=sample["messages"][:-1], thinking=sample["thinking"], check=check, answer=answer)
    if sample.get("tools"):
        out["tools"] = sample["tools"]
    return out


def number(draw, thinking=True):
    def make(rng, index, kind, renderer):
        problem = draw(rng)
        return item(problems.sample(rng, problem, thinking), kind, "number", problem.answer)
    return make


def fresh_wording(rng, index, kind, renderer):
    problem = fresh.problem(rng, index)
    return item(problems.sample(rng, problem), kind, "number", problem.answer)


def content(draw):
    def make(rng, index, kind, renderer):
        sample = draw(rng)
        return item(sample, kind, "exact", sample["messages"][-1]["content"])
    return make


def tool_call(rng, index, kind, renderer):
    sample = tools.sample(rng)
    calls = [m for m in sample["messages"] if m.get("tool_calls")]
    if not calls:
        return item(sample, kind, "exact", sample["messages"][-1]["content"])
    asked = dict(sample, messages=sample["messages"][:2])
    return item(asked, kind, "calls", [c["function"] for c in calls[0]["tool_calls"]])


def tool_answer(rng, index, kind, renderer):
    sample = tools.sample(rng, calls=rng.choice((1, 1, 1, 2, 2, 3)))
    return item(sample, kind, "exact", sample["messages"][-1]["content"])


def look_up(tokens):
    """One question about a text whose whole prompt has `tokens` tokens, give or take 3 %."""
    def make(rng, index, kind, renderer):
        characters = tokens * 4
        while True:
            sample = lookup.sample(rng, characters, 1)
            length = len(renderer.prompt(sample))
            if abs(length / tokens - 1) < 0.03:
                return item(sample, kind, "exact", sample["messages"][-1]["content"])
            characters = int(characters * tokens / length)
    return make


def copy(rng, index, kind, renderer):
    while True:
        sample = copying.sample(rng, 150, 950, thinking=False)
        answer = sample["messages"][-1]["content"]
        if 100 <= len(renderer.tokenizer.encode(answer, add_special_tokens=False).ids) <= 400:
            return item(sample, kind, "exact", answer)


def json_answer(rng, index, kind, renderer):
    sample = json_answers.sample(rng)
    return item(sample, kind, "json", json.loads(sample["messages"][-1]["content"]))


KINDS = {
    "problems": (1000, number(lambda rng: problems.ordinary(rng, composed=0))),
    "composed": (1000, number(lambda rng: problems.ordinary(rng, composed=1))),
    "two_step": (500, number(problems.two_step)),
    "no_thinking": (500, number(lambda rng: problems.ordinary(rng, composed=0), thinking=False)),
    "hard": (2000, number(lambda rng: problems.hard(rng, composed=HARD_COMPOSED))),
    "held_out": (500, number(lambda rng: problems.ordinary(rng, held_out=True))),
    "fresh": (500, fresh_wording),
    "unseen": (500, number(problems.unseen)),
    "tool_calls": (300, tool_call),
    "tool_answers": (300, tool_answer),
    "lookup_2k": (200, look_up(2000)),
    "lookup_8k": (200, look_up(8000)),
    "copy": (200, copy),
    "json": (200, json_answer),
    "chat": (200, content(chat.sample)),
}


def make(kind, count=None, renderer=None, seed=SEED):
    renderer = renderer or Renderer()
    rng, (full, draw) = random.Random(f"{seed} {kind}"), KINDS[kind]
    return [dict(id=f"{kind}-{i:04d}", **draw(rng, i, kind, renderer)) for i in range(count or full)]


def gsm8k(path):
    """The questions of GSM8K's own test file, as items."""
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(row) for row in file]
    return [dict(id=f"gsm8k-{i:04d}", kind="gsm8k", messages=[dict(role="user", content=row["question"])], thinking=True,
                 check="number", answer=row["answer"].split("#### ")[1].replace(",", "")) for i, row in enumerate(rows)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, help="items of each kind")
    parser.add_argument("--seed", type=int, default=SEED, help="another one draws items that no test has seen (%(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="only these kinds")
    options = parser.parse_args()
    out, renderer = Path(options.out), Renderer()
    out.mkdir(parents=True, exist_ok=True)
    for kind in options.kinds:
        with open(out / f"{kind}.jsonl", "w", encoding="utf-8") as file:
            for row in make(kind, options.count, renderer, options.seed):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
