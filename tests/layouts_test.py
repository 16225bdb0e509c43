"""One model in all four published layouts: what each layout costs on ling-nano, teacher-forced.

The shipped fp4 files are the truth. BF16 holds every MXFP4 and FP8 value exactly (at most 4 significant bits), so the bf16 export must
give the same logits; fp8 and int4 round the experts again, and the bounds are what a wrong scale, axis or partial block would break by far.

Of 1,000 tokens a handful decide between two near equals and hold nine tenths of the mean divergence: rounding one of them differently moves
the mean by half. So the bounds of fp8 and int4 are of the mean of the 99 % that diverge least, which any wrong scale moves: 4.8e-4 and 1.2e-3
(1.3e-3 and 1.4e-3 with ling-nano's second weights); the first block of each row a quarter too large in fp8 gives 1.1e-1, the last 64 rows doubled
1.2, the last group of int4 a quarter too large 5.0e-3. Nothing here sees all scales of fp8 4 % off (1.2e-3).
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import json  # noqa: E402

from oracle import Tensors  # noqa: E402
from random_checkpoint import Writer  # noqa: E402
from score import ask  # noqa: E402

SPARKLING = os.environ.get("SPARKLING", str(ROOT / "build/sparkling"))
NANO = ROOT / "models/ling-nano"
# Against fp4: mean KL divergence in nats of the share of tokens that diverge least, that share, and share of equal arg-max.
BOUNDS = {"bf16": (1e-8, 1.0, 1.0), "fp8": (2e-3, 0.99, 0.98), "int4": (3e-3, 0.99, 0.98)}


def export(folder, layout, mtp=None):
    """The shipped weights, dequantised and written again in `layout`; those of the MTP layer in `mtp`."""
    tensors = Tensors(NANO)
    config = json.loads((NANO / "config.json").read_text())
    config.pop("quantization_config", None)
    writer = Writer(config, layout, seed=0)
    for name, (kind, data) in tensors.stored.items():
        if name.endswith("_scale_inv"):
            continue
        if kind == "F32":
            writer.exact(name, data)
            continue
        base = name.removesuffix(".weight")
        form = mtp if mtp and name.startswith(f"model.layers.{config['num_hidden_layers']}.") else layout
        quantised = f"{name}_scale_inv" in tensors
        value = tensors.matrix(base) if quantised else tensors.plain(name)
        if not quantised or form == "bf16" or (form == "int4" and ".experts." not in name):
            writer.plain(name, value)
        elif form == "fp4" and ".experts." in name:
            writer.mxfp4(base, value)
        elif form == "int4":
            writer.int4(base, value)
        else:
            writer.fp8(base, value)
    writer.save(folder, 1)


def chats():
    """About 2,000 ids of chats whose answers ling-nano wrote itself, and which of them are answers: the text it was made for.

    Elsewhere (docs, other languages) a model of this size hardly prefers one token to the next, and rounding noise decides.
    """
    ids, written = [], []
    for line in (ROOT / "tests/data/nano/problems.jsonl").read_text(encoding="utf-8").splitlines():
        answer = ask(json.loads(line))
        ids += answer["prompt_tokens"] + answer["tokens"]
        written += [False] * (len(answer["prompt_tokens"]) - 1) + [True] * len(answer["tokens"]) + [False]
        if len(ids) > 2000:
            break
    return [str(i) for i in ids], np.array(written)


def logits(model, ids, out):
    subprocess.run([SPARKLING, "logits", str(model), "--tokens", ",".join(ids), "-o", str(out)], check=True,
                   capture_output=True)  # fmt: skip
    return np.load(out).astype(np.float64)


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    ids, written = chats()
    assert len(ids) > 1500 and written.sum() > 800
    return ids, written, log_softmax(logits(NANO, ids, tmp_path_factory.mktemp("fp4") / "out.npy"))


@pytest.mark.parametrize("layout", sorted(BOUNDS))
def test_each_layout_keeps_the_model(tmp_path, truth, layout):
    ids, written, fp4 = truth
    export(tmp_path / "model", layout)
    other = log_softmax(logits(tmp_path / "model", ids, tmp_path / "out.npy"))[written]
    fp4 = fp4[written]
    kl = np.sort((np.exp(fp4) * (fp4 - other)).sum(1))
    most, share, least = BOUNDS[layout]
    trimmed, agree = kl[:round(share * len(kl))].mean(), (fp4.argmax(1) == other.argmax(1)).mean()
    print(f"{layout}: mean KL {kl.mean():.2e}, {trimmed:.2e} of {share:.0%} of the tokens, top-1 agreement {agree:.4f}")
    assert trimmed < most and agree >= least
