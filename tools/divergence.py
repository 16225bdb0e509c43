"""What precision `fast` costs: the divergence of its next-token distributions from those of `exact`, teacher-forced.

    python3 tools/divergence.py [--model FOLDER] [--tokens N] [-- options of the second `logits` run]

The text: the held-out questions of tests/data/nano (no training text) with the answers that the model gives in exact precision, one
chat after another, N tokens (10,000). Prints the mean KL(exact || other) in nats per position, its 99th percentile and the share of
equal likeliest tokens. Nothing is replayed: routes are each side's own. The other side: --precision fast --chunk 1, so that every
position is decoded, with the kernels of single tokens.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from score import ask

ROOT = Path(__file__).resolve().parent.parent
SPARKLING = os.environ.get("SPARKLING", str(ROOT / "build/sparkling"))
SETS = sorted((ROOT / "tests/data/nano").glob("*.jsonl"))
CHUNK = 2000  # positions a run: logits of 4,096 tokens for each are 32 MB


def chats(count, model=None):
    """`count` ids of chats, questions of all sets in turn."""
    items = [path.read_text(encoding="utf-8").splitlines() for path in SETS]
    ids = []
    for row in zip(*items):
        for line in row:
            answer = ask(json.loads(line), model, ["--precision", "exact"])
            ids += answer["prompt_tokens"] + answer["tokens"]
            if len(ids) >= count:
                return ids[:count]
    sys.exit(f"the sets give {len(ids)} tokens, expected {count}")


def logits(ids, *options, model=None):
    with tempfile.TemporaryDirectory() as temp:
        out = Path(temp, "out.npy")
        command = [SPARKLING, "logits", *([str(model)] if model else []), "--tokens", ",".join(map(str, ids)), "-o", str(out)]
        subprocess.run([*command, *map(str, options)], check=True, stderr=subprocess.PIPE)
        return np.load(out).astype(np.float64)


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def divergence(ids, options, model=None):
    """KL(exact || other) of each position, and whether the likeliest token is the same."""
    kl, same = [], []
    for at in range(0, len(ids), CHUNK):
        part = ids[at : at + CHUNK]
        a = log_softmax(logits(part, "--precision", "exact", model=model))
        b = log_softmax(logits(part, *options, model=model))
        kl.append((np.exp(a) * (a - b)).sum(1))
        same.append(a.argmax(1) == b.argmax(1))
    return np.concatenate(kl), np.concatenate(same)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=10000)
    parser.add_argument("options", nargs="*", help="of the second run, after --")
    arguments = parser.parse_args()
    text = chats(arguments.tokens, arguments.model)
    kl, same = divergence(text, arguments.options or ["--precision", "fast", "--chunk", 1], arguments.model)
    print(f"{len(kl)} tokens: mean KL {kl.mean():.2e} nats, 99th percentile {np.quantile(kl, 0.99):.2e}, "
          f"same likeliest token {100 * same.mean():.2f} %")  # fmt: skip
