"""Asks `sparkling serve` the questions of a test set and judges the answers: what the model card's figures mean, measured by
the engine itself.

    python3 tools/score.py SET.jsonl... [--model FOLDER] [--limit N] [--temperature X --seed N] [--out FILE] [-- options of serve]

Sets are written by training/make_tests.py: one JSON object a line, {id, messages, thinking, check, answer} and, where offered,
tools. Checks: `number` (the text after ####), `exact` (the whole answer), `json` (equal value), `calls` (names, arguments and their
types, in order). Greedy unless a temperature is given: then the accept length of the drafts is what one looks at. Exit status 1
when a request fails, not when an answer is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPARKLING = os.environ.get("SPARKLING", str(ROOT / "build/sparkling"))


class Engine:
    """A `sparkling serve` on a free port for as long as the `with` block lasts."""

    def __init__(self, model=None, extra=()):
        command = [SPARKLING, "serve", *([str(model)] if model else []), "--port", "0", "--quiet", *extra]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise SystemExit(f"sparkling serve: exit status {self.process.wait()}, expected a line 'listening on ...', got {line!r}")
        self.url = line.split()[-1] + "/v1/chat/completions"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, item, temperature=0, seed=0):
        """The whole answer of the API to one item."""
        body = dict(messages=as_sent(item["messages"]), temperature=temperature, seed=seed, max_tokens=1024,
                    chat_template_kwargs=dict(enable_thinking=item["thinking"]))
        if item.get("tools"):
            body["tools"] = item["tools"]
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{item['id']}: status {error.code}: {error.read().decode()}") from error


def as_sent(messages):
    """OpenAI's spelling: arguments as text, and every result names its call."""
    out, waiting = [], []
    for message in messages:
        message = dict(message)
        if message.get("tool_calls"):
            calls = [dict(id=f"call_{len(out)}_{i}", type="function",
                          function=dict(name=c["function"]["name"], arguments=json.dumps(c["function"]["arguments"], ensure_ascii=False)))
                     for i, c in enumerate(message["tool_calls"])]
            message["tool_calls"], waiting = calls, [c["id"] for c in calls]
        if message["role"] == "tool":
            message["tool_call_id"] = waiting.pop(0)
        out.append(message)
    return out


def ask(item, model=None, extra=()):
    """One question without tools through `sparkling run`: its --json object, with the ids of prompt and answer."""
    *before, user = item["messages"]
    command = [SPARKLING, "run", *([str(model)] if model else []), "--json", "--temperature", "0", "--max-tokens", "1024"]
    for message in before:
        if message["role"] != "system":
            raise ValueError(f"{item['id']}: more than one turn")
        command += ["--system", message["content"]]
    command += ["--thinking", "on" if item["thinking"] else "off", *extra]
    done = subprocess.run(command, input=user["content"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{item['id']}: exit status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def same(a, b):
    """Equal in value and in JSON type, so that 1 is not true."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def right(item, message):
    text, calls = message["content"] or "", message.get("tool_calls") or []
    if item["check"] == "number":
        head, mark, number = text.rpartition("####")
        return bool(mark) and number.strip().lstrip("$") == item["answer"]
    try:
        if item["check"] == "json":
            return same(json.loads(text), item["answer"])
        if item["check"] == "calls":
            return same([dict(name=c["function"]["name"], arguments=json.loads(c["function"]["arguments"])) for c in calls], item["answer"])
    except ValueError:
        return False
    return text == item["answer"] and not calls


class Score:
    """Of one set: how many answers are right, which are not, and what the drafts did."""

    def __init__(self):
        self.asked, self.wrong, self.cycles, self.tokens, self.accepted = 0, [], 0, 0, []

    @property
    def good(self):
        return self.asked - len(self.wrong)

    def add(self, item, answer):
        """Counts one answer of the API; returns what is kept of it."""
        message, timings = answer["choices"][0]["message"], answer["timings"]
        ok, cycles = right(item, message), timings["cycles"]
        self.asked += 1
        self.wrong += [] if ok else [item["id"]]
        self.cycles += cycles
        self.tokens += cycles * timings["accept_length"]
        return dict(id=item["id"], right=ok, content=message["content"], reasoning=message.get("reasoning_content"),
                    calls=message.get("tool_calls"), timings=timings)


def read(path, limit=None):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()][:limit]


def score(items, engine, temperature=0, seed=0, keep=None):
    """Asks one after the other; `keep` is an open file that gets every answer as a line."""
    out = Score()
    for item in items:
        row = out.add(item, engine.ask(item, temperature, seed))
        if keep:
            print(json.dumps(row, ensure_ascii=False), file=keep, flush=True)
    return out


def main():
    argv, extra = sys.argv[1:], []
    if "--" in argv:
        argv, extra = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--model")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="all answers, one JSON object a line")
    options = parser.parse_args(argv)
    keep = open(options.out, "a", encoding="utf-8") if options.out else None
    with Engine(options.model, extra) as engine:
        for path in options.sets:
            result = score(read(path, options.limit), engine, options.temperature, options.seed, keep)
            print(f"{Path(path).stem}: {result.good} of {result.asked} right, {100 * result.good / result.asked:.2f} %; "
                  f"accept length {result.tokens / max(1, result.cycles):.2f}; wrong: {' '.join(result.wrong) or 'none'}", flush=True)


if __name__ == "__main__":
    main()
