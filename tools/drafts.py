"""What drafts bring: decode speed at several depths against none, one server each, the same requests in turn.

    tools/drafts.py [--threads 2] [--rounds 4] [--starts 3] [--tokens 256] [--model FOLDER] [--draft-head ROWS|auto]

Two tables: word problems as chats at depths 0, 1, 2, 3 and automatic, for three ways of sampling; and texts that drafts hardly
fit (prose, code, Chinese, random hex) with the automatic depth against none. Of each request the best of the rounds counts,
which a machine that others use disturbs least; the gain is the mean over the requests. A process keeps the memory that it
happened to get, and two of the same kind differ by several percent on one request: hence several starts of every server, and a
second server without drafts, whose "gain" is what a gain of nothing looks like on this machine.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
RNG = random.Random(5)
TEXTS = {
    "prose": ["The old harbour lay quiet in the morning light, and the boats", "When she opened the letter her hands began to",
              "It was the best of times, it was the worst of"],
    "code": ["def fibonacci(n):\n    a, b = 0, 1\n    while", "#include <stdio.h>\nint main(void) {\n  for (int i = 0;",
             "SELECT name, age FROM people WHERE"],
    "Chinese": ["今天的天气很好,我们去公园", "北京是中国的首都,上海是", "从前有一个小孩子,他"],
    "hex": ["".join(RNG.choice("0123456789abcdef") for _ in range(120)) for _ in range(3)],
}  # fmt: skip
DEPTHS = ["0", "0 again", "1", "2", "3", "auto"]
RECOMMENDED = {"temperature": 0.6, "top_p": 0.95, "top_k": 29}


class Server:
    def __init__(self, *options):
        program = os.environ.get("SPARKLING", str(ROOT / "build" / "sparkling"))
        self.process = subprocess.Popen([program, "serve", "--port", "0", "-q", *options], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.port = int(self.process.stdout.readline().decode().rsplit(":", 1)[1])

    def timings(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer["timings"]


def compare(servers, path, bodies, rounds, best):
    """Of every server and body the best timings, the earlier ones in `best` included."""
    for number in range(rounds):
        for at, body in enumerate(bodies):
            for i in range(len(servers)) if number % 2 else reversed(range(len(servers))):
                now = servers[i].timings(path, body)
                if best[i][at] is None or now["decode_tok_s"] > best[i][at]["decode_tok_s"]:
                    best[i][at] = now


def row(name, depth, timings, plain):
    gains = [t["decode_tok_s"] / p["decode_tok_s"] for t, p in zip(timings, plain, strict=True)]
    speed = statistics.mean(t["decode_tok_s"] for t in timings)
    length = statistics.mean(t["accept_length"] for t in timings)
    spread = f"{statistics.mean(gains):.2f} ({min(gains):.2f} to {max(gains):.2f})"
    print(f"| {name} | {depth} | {speed:.0f} | {spread} | {length:.2f} |", flush=True)


def work(tokens):
    """The tables: name, path, bodies, and the depths that are compared."""
    lines = (ROOT / "tests/data/nano/problems.jsonl").read_text(encoding="utf-8").splitlines()[:8]
    for name, sampling in (("problems, greedy", {"temperature": 0}), ("problems, 0.6 seeded", {**RECOMMENDED, "seed": 1}),
                           ("problems, 0.6", RECOMMENDED)):  # fmt: skip
        bodies = [{"messages": json.loads(line)["messages"], "max_tokens": 300, **sampling} for line in lines]
        yield name, "/v1/chat/completions", bodies, DEPTHS
    for kind, prompts in TEXTS.items():
        for name, sampling in (("greedy", {"temperature": 0}), ("1.0 seeded", {"temperature": 1.0, "seed": 1})):
            bodies = [{"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, **sampling} for prompt in prompts]
            yield f"{kind}, {name}", "/v1/completions", bodies, ["0", "0 again", "auto"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--threads", default="2")
    parser.add_argument("--rounds", type=int, default=4, help="of each start")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--model")
    parser.add_argument("--draft-head", default="auto")
    a = parser.parse_args()
    common = [*([a.model] if a.model else []), "--threads", a.threads]
    tables = list(work(a.tokens))
    best = [[[None] * len(bodies) for _ in depths] for _, _, bodies, depths in tables]
    for _ in range(a.starts):
        servers = {}
        try:
            for depth in DEPTHS:
                head = [] if depth.startswith("0") else ["--draft-head", a.draft_head]
                servers[depth] = Server(*common, "--draft", depth.split()[0], *head)
            for (_, path, bodies, depths), so_far in zip(tables, best, strict=True):
                compare([servers[depth] for depth in depths], path, bodies, a.rounds, so_far)
        finally:
            for server in servers.values():
                server.process.terminate()
                server.process.wait()
    print("| text | drafts | decode tok/s | gain (least to most) | accept length |\n|---|---|---|---|---|")
    for (name, _, _, depths), timings in zip(tables, best, strict=True):
        for depth, mine in zip(depths, timings, strict=True):
            row(name, depth, mine, timings[0])


if __name__ == "__main__":
    main()
