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
NANO = ROOT / "models/ling-nano"
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


def case(tmp, layout, config, seed, yarn=None, length=LENGTH, changes=None):
    folder = tmp / f"{layout}-{config}-{seed}"
    random_checkpoint.make(folder, layout, config, seed, yarn, changes=changes)
    vocab = {**random_checkpoint.CONFIGS[config], **(changes or {})}["vocab_size"]
    tokens = golden.tokens_of(seed, vocab, length)
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
        # As sets: among the chosen the order decides nothing, and two may be as close as any.
        differs = (np.sort(taken[0], -1) != np.sort(truth["routes"], -1)).any(-1)
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


# Every dimension comes from the config: numbers that no member has, ends of ranges, lengths that fill no vector.
ODD = {
    "all MLA": {"layer_group_size": 1},
    "group longer than the model": {"layer_group_size": 5},
    "one layer": {"num_hidden_layers": 1, "layer_group_size": 2, "first_k_dense_replace": 0,
                  "expert_swiglu_limit_list": [0.3], "share_expert_swiglu_limit_list": [0.4]},
    "no dense layer": {"first_k_dense_replace": 0},
    "only dense layers": {"first_k_dense_replace": 4},
    "all experts": {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 8},
    "one expert of groups of two": {"topk_group": 1, "num_experts_per_tok": 1},
    "many experts": {"num_experts": 256, "n_group": 128, "topk_group": 64, "num_experts_per_tok": 64},
    "three heads of 48": {"num_attention_heads": 3, "head_dim": 48},
    "heads of 1024": {"num_attention_heads": 1, "head_dim": 1024, "qk_nope_head_dim": 1024, "qk_head_dim": 1040, "v_head_dim": 1024,
                      "num_hidden_layers": 2, "expert_swiglu_limit_list": None, "share_expert_swiglu_limit_list": None},
    "MLA of 33, 2, 47 and 80": {"qk_nope_head_dim": 33, "qk_rope_head_dim": 2, "qk_head_dim": 35, "v_head_dim": 47, "kv_lora_rank": 80},
    "odd widths": {"intermediate_size": 101, "moe_shared_expert_intermediate_size": 33, "num_shared_experts": 3, "vocab_size": 97},
    "hidden size 160": {"hidden_size": 160},
    "low-rank queries of 7": {"q_lora_rank": 7},
    "matrices as narrow as the taps": {"q_lora_rank": 4, "intermediate_size": 4, "moe_shared_expert_intermediate_size": 4},
    "two taps": {"short_conv_kernel_size": 2},
    "nine taps": {"short_conv_kernel_size": 9},
    "sixteen taps": {"short_conv_kernel_size": 16},
    "other constants": {"kda_lower_bound": -0.5, "rms_norm_eps": 1e-2, "rope_theta": 100.0, "routed_scaling_factor": 16.0},
    "short clamp lists": {"expert_swiglu_limit_list": [0, 0.3], "share_expert_swiglu_limit_list": [None, None, 0.2]},
}  # fmt: skip


@pytest.mark.parametrize("layout", ["bf16", "fp4"])
@pytest.mark.parametrize("name", ODD)
def test_dimensions_that_no_member_has(tmp_path, layout, name):
    length = 20 if name == "heads of 1024" else 70
    folder, tokens, truth = case(tmp_path, layout, "micro", 31, length=length, changes=ODD[name])
    for backend in TOLERANCE:
        check(folder, tokens, truth, backend)


@pytest.mark.parametrize("changes, key", [({"head_dim": 17}, "head_dim"), ({"kv_lora_rank": 33}, "kv_lora_rank")])
def test_dimensions_that_the_cpu_does_not_take(tmp_path, changes, key):
    """Its vectors have 16 lanes; `reference` computes them all the same."""
    folder, tokens, truth = case(tmp_path, "bf16", "micro", 32, length=20, changes=changes)
    done = run("logits", folder, "--tokens", "1,2", "--backend", "cpu", "-o", tmp_path / "o.npy", expect=1)
    assert f"{key}: the cpu back end expected a multiple of 16, found {changes[key]}" in done.stderr
    got = logits(folder, tokens, "reference", routes_in=truth["routes"])
    assert relative(got, truth["logits"]).max() < TOLERANCE["reference"]


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


@pytest.fixture(scope="module")
def nano_stepwise():
    """1,000 ids of English and code through ling-nano, one by one: ids, logits, routes."""
    text = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "tools/oracle.py").read_text(encoding="utf-8")
    done = subprocess.run([SPARKLING, "tokenize"], input=text, capture_output=True, text=True, encoding="utf-8", check=True)
    tokens, routes = [int(i) for i in done.stdout.split()[:1000]], []
    assert len(tokens) == 1000
    return tokens, logits(NANO, tokens, "cpu", "--chunk", 1, routes_out=routes), routes[0]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 129, 1000])
def test_chunked_prefill_of_ling_nano(nano_stepwise, length):
    """A trained model with its own choice of experts: loosely equal, the same greedy token wherever the two best are apart."""
    tokens, stepwise, routes = nano_stepwise
    stepwise = stepwise[:length]
    taken = []
    chunked = logits(NANO, tokens[:length], "cpu", routes_out=taken)
    two = np.sort(stepwise, axis=1)[:, -2:]
    apart = two[:, 1] - two[:, 0] > 1e-2
    assert apart.mean() > 0.9, "almost nothing was compared"
    assert (chunked.argmax(1) == stepwise.argmax(1))[apart].all()
    same = (np.sort(taken[0][:, :-1], -1) == np.sort(routes[:length, :-1], -1)).mean()
    assert same > 0.999, f"{same:.5f} of the experts chosen alike"
    replayed = logits(NANO, tokens[:length], "cpu", routes_in=routes[:length])
    assert relative(replayed, stepwise).max() < 1e-4


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
