"""Writes tests/golden/logits: the oracle's logits for fixed random checkpoints, so that the oracle itself cannot drift.

    python3 tools/golden.py            (re)writes the files
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import random_checkpoint
from oracle import Oracle

FOLDER = Path(__file__).resolve().parent.parent / "tests/golden/logits"
# name: (layout, config, seed, yarn)
CASES = {
    "bf16": ("bf16", "micro", 11, None), "fp8": ("fp8", "micro", 12, None), "fp4": ("fp4", "micro", 13, None),
    "int4": ("int4", "micro", 14, None), "qlora": ("fp4", "nano_qlora", 15, None),
    "yarn": ("fp4", "micro", 16, 4.0),
}  # fmt: skip
LENGTH = 12


def tokens_of(seed, vocab, length=LENGTH):
    return np.random.default_rng(seed).integers(0, vocab, length)


def compute(case):
    layout, config, seed, yarn = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        random_checkpoint.make(folder, layout, config, seed, yarn)
        tokens = tokens_of(seed, random_checkpoint.CONFIGS[config]["vocab_size"])
        return tokens, Oracle(folder).run(tokens)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        tokens, result = compute(case)
        np.savez_compressed(
            FOLDER / f"{case}.npz", tokens=tokens, logits=result["logits"].astype(np.float32),
            mtp=result["mtp"].astype(np.float32), routes=result["routes"],
        )  # fmt: skip
        print(case, result["logits"].shape, file=sys.stderr)
