"""The model against the oracle: random checkpoints in all layouts, both back ends, chunked and stepwise.

"Routed" comparisons replay the oracle's expert choice, because on random weights one flipped expert destroys a position.
Tolerances: reference computes in double and reads the same stored numbers, so 1e-6 relative per position leaves two
digits for the float32 file format (eps 6e-8); cpu computes in float: a few 1e-6 measured through 12 layers, 1e-4 allowed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import golden  # noqa: E402
import random_checkpoint  # noqa: E402
from oracle import Oracle  # noqa: E402

SPARKLING = os.environ.get("SPARKLING", str(ROOT / "build/sparkling"))
TOLERANCE = {"reference": 1e-6, "cpu": 1e-4}
LAYOUTS = ["bf16", "fp8", "fp4", "int4"]
LENGTH = 24


def run(*args, expect=0):
    done = subprocess.run([SPARKLING, *map(str, args)], capture_output=True, text=True, timeout=600)
    assert done.returncode == expect, done.stderr[-2000:]
    return done


def logits(folder, tokens, backend, *extra, routes_in=None, routes_out=None):
    with tempfile.TemporaryDirectory() as temp:
        out = Path(temp, "out.npy")
        args = ["logits", folder, "--tokens", ",".join(map(str, tokens)), "--backend", backend, "-o", out]
        if routes_in is not None:
            np.save(Path(temp, "in.npy"), routes_in.astype(np.int32))
            args += ["--routes-in", Path(temp, "in.npy")]
        if routes_out is not None:
            args += ["--routes-out", Path(temp, "routes.npy")]
        run(*args, *extra)
        if routes_out is not None:
            routes_out.append(np.load(Path(temp, "routes.npy")))
        return np.load(out)


def relative(a, b):
    """Error of each position, relative to the size of its row."""
    return np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)


def case(tmp, layout, config, seed, yarn=None, length=LENGTH):
    folder = tmp / f"{layout}-{config}-{seed}"
    random_checkpoint.make(folder, layout, config, seed, yarn)
    tokens = golden.tokens_of(seed, random_checkpoint.CONFIGS[config]["vocab_size"], length)
    return folder, tokens, Oracle(folder).run(tokens)


def check(folder, tokens, truth, backend):
    bound = TOLERANCE[backend]
    replayed = logits(folder, tokens, backend, routes_in=truth["routes"])
    assert relative(replayed, truth["logits"]).max() < bound
    if len(truth["mtp"]):
        replayed = logits(folder, tokens, backend, "--mtp", routes_in=truth["routes"])
        assert relative(replayed, truth["mtp"]).max() < bound
    # Free routes: right up to the first flip, and a flip only where two scores are closer than rounding.
    for mtp in (False, True) if len(truth["mtp"]) else (False,):
        taken = []
        free = logits(folder, tokens, backend, *["--mtp"] * mtp, routes_out=taken)
        differs = (taken[0] != truth["routes"]).any(-1)
        first = np.argwhere(differs)
        stop = len(free)
        if len(first):
            position, layer = first[0]
            assert truth["margins"][position, layer] < 1e-5
            stop = position
        assert stop == 0 or relative(free[:stop], (truth["mtp"] if mtp else truth["logits"])[:stop]).max() < bound


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("config,yarn", [("nano", None), ("nano_qlora", None), ("mid", 4.0)])
def test_random_checkpoints_equal_the_oracle(tmp_path, layout, backend, config, yarn):
    seed = int.from_bytes(os.urandom(3), "little")
    print("seed", seed)
    check(*case(tmp_path, layout, config, seed, yarn), backend)


@pytest.mark.parametrize("name", sorted(golden.CASES))
def test_golden_files(tmp_path, name):
    """The stored logits hold for today's oracle and for both back ends."""
    layout, config, seed, yarn = golden.CASES[name]
    folder, tokens, truth = case(tmp_path, layout, config, seed, yarn, golden.LENGTH)
    stored = np.load(golden.FOLDER / f"{name}.npz")
    assert (stored["tokens"] == tokens).all() and (stored["routes"] == truth["routes"]).all()
    assert relative(stored["logits"], truth["logits"]).max() < 1e-6
    for backend, bound in TOLERANCE.items():
        got = logits(folder, tokens, backend, routes_in=stored["routes"])
        assert relative(got, stored["logits"]).max() < bound


@pytest.fixture(scope="module")
def long_case(tmp_path_factory):
    return case(tmp_path_factory.mktemp("long"), "fp4", "nano", 21, length=1000)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 129, 1000])
def test_chunked_prefill_equals_token_by_token(long_case, length):
    folder, tokens, truth = long_case
    tokens, routes = tokens[:length], truth["routes"][:length]
    chunked = logits(folder, tokens, "cpu", routes_in=routes)
    stepwise = logits(folder, tokens, "cpu", "--chunk", 1, routes_in=routes)
    assert relative(chunked, stepwise).max() < 1e-4
    assert relative(chunked, truth["logits"][:length]).max() < 1e-4


def test_the_chunk_length_does_not_matter(long_case):
    folder, tokens, truth = long_case
    tokens, routes = tokens[:200], truth["routes"][:200]
    whole = logits(folder, tokens, "cpu", routes_in=routes)
    for chunk in (2, 7, 16, 33, 64, 100):
        assert relative(logits(folder, tokens, "cpu", "--chunk", chunk, routes_in=routes), whole).max() < 1e-4


def test_a_route_file_out_of_range_is_refused(tmp_path):
    folder, tokens, truth = case(tmp_path, "fp4", "micro", 3, length=6)
    routes = truth["routes"].copy()
    routes[2, 0, 0] = 99
    np.save(tmp_path / "r.npy", routes)
    done = run("logits", folder, "--tokens", ",".join(map(str, tokens)), "--routes-in", tmp_path / "r.npy",
               "-o", tmp_path / "o.npy", expect=1)  # fmt: skip
    assert "row 2" in done.stderr and "99" in done.stderr
