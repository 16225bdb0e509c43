"""Precision `fast` against `exact`: what int8 experts and an FP8 head may cost, and what must not change at all.

With the exact side's routes replayed, because on random weights one flipped expert destroys a position. Bounds per position,
relative to the norm of its logits. An int8 expert is off by at most 2.2e-2 (tests/cpu_packed_test.cc); through the layers such
errors add up as squares beside a residual stream that carries most of the signal, so 5e-2 holds the model, 1e-1 the draft layer,
whose input is that model's hidden row: at 99 % of all positions of all models. A test sees 400 positions of one model, of which by
chance more than 1 % may lie outside (over 30 random models 0.2 to 1.0 % did); it allows as many as a share of 1 % exceeds once
in 10,000 draws. An FP8 weight is off by at most 2^-4 of itself, 2^-4 / sqrt(3) = 3.6e-2 as a root mean
square at the worst place of a binade, 2.6e-2 on average. The terms of one logit are off independently, so the error is that share of
the root of the terms' squares, which a trained head, whose terms agree or cancel, makes half or twice the logits themselves.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import random_checkpoint  # noqa: E402
from divergence import chats, divergence  # noqa: E402
from oracle import Tensors  # noqa: E402

SPARKLING = os.environ.get("SPARKLING", str(ROOT / "build/sparkling"))
NANO = ROOT / "models/ling-nano"
LENGTH = 400
PACKED = ["--precision", "fast", "--moe", "packed", "--lm-head", "stored"]
HEAD = ["--precision", "exact", "--lm-head", "fp8"]


def logits(folder, ids, *options, routes_in=None):
    """Logits, and the routes that were taken when none are given."""
    with tempfile.TemporaryDirectory() as temp:
        routes = Path(temp, "routes.npy")
        command = [SPARKLING, "logits", str(folder), "--tokens", ",".join(map(str, ids)), "-o", str(Path(temp, "out.npy"))]
        if routes_in is None:
            command += ["--routes-out", str(routes)]
        else:
            np.save(routes, routes_in)
            command += ["--routes-in", str(routes)]
        subprocess.run([*command, *map(str, options)], check=True, capture_output=True)
        return np.load(Path(temp, "out.npy")).astype(np.float64), np.load(routes)


def relative(a, b):
    return np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)


def most_outside(positions, share=0.01, chance=1e-4):
    """Of so many positions, each outside with probability `share`, more than these are outside with less than `chance`."""
    left = 1.0
    for k in range(positions):
        left -= math.comb(positions, k) * share**k * (1 - share) ** (positions - k)
        if left < chance:
            return k
    return positions


@pytest.fixture(scope="module", params=["nano", "mid", "ling-nano"])
def case(request, tmp_path_factory):
    """A model, ids, and both kinds of exact logits with the routes that made them."""
    if request.param == "ling-nano":
        folder, ids = NANO, chats(LENGTH)
    else:
        folder = tmp_path_factory.mktemp(request.param)
        random_checkpoint.make(folder, "fp4", request.param, int.from_bytes(os.urandom(3), "little"))
        vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
        ids = np.random.default_rng(3).integers(0, vocab, LENGTH).tolist()
    mtp, routes = logits(folder, ids, "--precision", "exact", "--mtp")
    main, _ = logits(folder, ids, "--precision", "exact", routes_in=routes)
    return folder, ids, main, mtp, routes


@pytest.mark.parametrize("chunk", [256, 1])
def test_packed_experts_stay_near(case, chunk):
    folder, ids, main, mtp, routes = case
    for truth, bound, which in ((main, 5e-2, []), (mtp, 1e-1, ["--mtp"])):
        got, _ = logits(folder, ids, *PACKED, "--chunk", chunk, *which, routes_in=routes)
        error = relative(got, truth)
        print(f"chunk {chunk} {which}: median {np.median(error):.1e}, 99 % {np.quantile(error, .99):.1e}")
        assert error.max() > 1e-5, "nothing was quantised"
        assert (error > bound).sum() <= most_outside(len(error))


def size_of_terms(head, logits):
    """Per position the root of the squares of all products weight x hidden value; the hidden row is the one that gives the logits."""
    hidden = np.linalg.lstsq(head, logits.T, rcond=None)[0].T
    assert np.abs(hidden @ head.T - logits).max() < 1e-3
    return np.sqrt(hidden**2 @ (head**2).sum(0))


def test_an_fp8_head_stays_near(case):
    folder, ids, main, _, routes = case
    got, _ = logits(folder, ids, *HEAD, routes_in=routes)
    terms = size_of_terms(Tensors(folder).plain("lm_head.weight").astype(np.float64), main)
    error = np.linalg.norm(got - main, axis=1) / terms
    print(f"fp8 head: median {np.median(error):.1e}, most {error.max():.1e}; terms over logits to {(terms / np.linalg.norm(main, axis=1)).max():.2f}")
    assert error.max() > 1e-4, "nothing was quantised"
    assert error.max() <= 2**-4 / np.sqrt(3)


def test_distributions_stay_near():
    """The short form of tools/divergence.py; docs/BENCHMARKS.md has the figure over 10,000 tokens."""
    kl, same = divergence(chats(1000), ["--precision", "fast", "--chunk", 1])
    print(f"mean KL {kl.mean():.2e}, same likeliest token {same.mean():.4f}")
    assert kl.mean() <= 0.01


def answer(*options):
    done = subprocess.run([SPARKLING, "run", "--json", "--raw", "-p", "Question: 12 + 30 =", "--max-tokens", "96", "--ignore-eos",
                           *map(str, options)], check=True, capture_output=True, text=True)  # fmt: skip
    return json.loads(done.stdout)["tokens"]


@pytest.mark.parametrize("sampling", [["--temperature", 0], ["--temperature", 0.8, "--seed", 4]])
def test_drafts_do_not_change_a_fast_text(sampling):
    plain = answer(*sampling, "--precision", "fast", "--draft", 0)
    assert len(plain) == 96
    for draft in (1, 2, 3, 5, 7, "auto"):
        assert answer(*sampling, "--precision", "fast", "--draft", draft) == plain, draft


def test_packed_experts_need_fast_precision():
    for options in (["--precision", "exact"], ["--precision", "fast", "--backend", "reference"]):
        done = subprocess.run([SPARKLING, "run", "-p", "x", "--max-tokens", "1", "--moe", "packed", *options],
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 2 and "--precision fast" in done.stderr
