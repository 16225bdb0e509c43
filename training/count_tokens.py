"""Counts the tokens of the training mixture: models/ling-nano/token_counts.txt, from which `--draft-head ROWS` takes its rows.

    python count_tokens.py [--batches 24] [--gsm8k train.jsonl] [--prose prose.txt] >../models/ling-nano/token_counts.txt

Lines "id count", most frequent first, then by id: what `sparkling tokenize --count` prints over files.
"""

import argparse

import numpy as np
from data.mix import Mixture


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=24, help="of 65,536 tokens each")
    parser.add_argument("--gsm8k")
    parser.add_argument("--prose")
    parser.add_argument("--seed", type=int, default=21)
    arguments = parser.parse_args()
    mixture = Mixture(arguments.seed, arguments.gsm8k, arguments.prose)
    counts = np.zeros(1, np.int64)
    for batch, _ in zip(mixture.batches(65536), range(arguments.batches)):
        more = np.bincount(batch.tokens.astype(np.int64))
        if len(more) > len(counts):
            counts = np.pad(counts, (0, len(more) - len(counts)))
        counts[: len(more)] += more
    for token in sorted(np.flatnonzero(counts), key=lambda t: (-counts[t], t)):
        print(token, counts[token])


if __name__ == "__main__":
    main()
