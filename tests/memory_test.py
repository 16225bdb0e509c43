"""How much memory the program really takes: the kernel's own high-water mark of the running process.

The promise: at most the weights x 1.15, plus the caches, plus 64 MiB, whatever the program does on the way: the bandwidth
test at the end of an answer included. And --memory is a hard limit.
"""

import json
import re
import subprocess
import sys
import time

import pytest

from conftest import ROOT, SPARKLING

sys.path.insert(0, str(ROOT / "tools"))
import random_checkpoint  # noqa: E402  (needs the path above)

MIB = 1 << 20


def peak(*arguments, status=0):
    """(high-water mark of resident memory in bytes, standard error) of one run, read every few milliseconds.

    The mark only grows, so that a peak between two looks is not missed. Not by getrusage: that counts the copy of this
    process too, which every child begins as.
    """
    process = subprocess.Popen([str(SPARKLING), *map(str, arguments)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    high = 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
                found = re.search(r"VmHWM:\s+([0-9]+) kB", file.read())
        except OSError:  # it has just ended
            found = None
        if found:
            high = max(high, 1024 * int(found[1]))
        time.sleep(0.003)
    said = process.stderr.read()
    assert process.returncode == status, said
    return high, said


def sizes(sparkling, model):
    """Bytes of the weights, and a function from tokens to bytes of the caches."""
    report = json.loads(sparkling("inspect", *model, "--json").stdout)
    return report["weight_bytes"], lambda tokens: report["cache_bytes_per_token"]["exact"] * tokens + report["state_bytes"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """About 300 MB of random weights."""
    folder = tmp_path_factory.mktemp("memory") / "large"
    random_checkpoint.make(folder, "bf16", "large", 9, None)
    return folder


CONTEXT = 4096


def check(high, weights, caches, what):
    allowed = 1.15 * weights + caches + 64 * MIB
    print(f"{what}: peak {high / MIB:.1f} MiB, allowed {allowed / MIB:.1f} MiB")
    assert high > 0.3 * weights, "nothing was measured"
    assert high <= allowed


@pytest.mark.parametrize("more", [[], ["--memory", "100MiB"], ["--draft", 0], ["--lm-head", "fp8"], ["--threads", 1]])
def test_an_answer_of_ling_nano(sparkling, more):
    weights, caches = sizes(sparkling, [ROOT / "models" / "ling-nano"])
    high, said = peak("run", "-p", "What is 2 + 3? " * 100, "--max-tokens", 200, "--ignore-eos", "--context", CONTEXT, *more)
    assert " % of " in said, "the bandwidth test is part of the run"
    check(high, weights, caches(CONTEXT), f"run {more}")
    if "--memory" in more:
        assert high <= 100 * MIB


def test_a_larger_checkpoint(sparkling, large):
    weights, caches = sizes(sparkling, [large])
    assert weights > 280e6
    for more in ([], ["--memory", "520MiB"]):
        high, _ = peak("bench", large, "--in", 300, "--out", 30, "--repeat", 1, "--context", CONTEXT, *more)
        check(high, weights, caches(CONTEXT), f"bench {more}")
        if more:
            assert high <= 520 * MIB
    high, _ = peak("logits", large, "--tokens", ",".join(["7"] * 100), "-o", "/dev/null")
    check(high, weights, caches(100), "logits")


def test_a_long_context_costs_what_is_used(sparkling, checkpoint):
    """A window of a million tokens must not be paid by who asks 500: work buffers follow the step, caches what is written."""
    weights, caches = sizes(sparkling, [checkpoint])
    for context in (262144, 1048576):
        high, said = peak("bench", checkpoint, "--context", context, "--in", 500, "--out", 5, "--repeat", 1, "--verbose")
        assert re.search(rf"caches [0-9.]+ MiB for {context} tokens", said), "the plan is said before it is carried out"
        assert high <= 1.15 * weights + caches(1000) + 64 * MIB, f"{high / MIB:.1f} MiB for a context of {context}"


def test_a_context_that_does_not_fit_is_refused_with_the_plan(sparkling, checkpoint):
    done = sparkling("bench", checkpoint, "--context", 1048576, "--memory", "64MiB", "--in", 8, "--out", 2, status=3)
    assert "expected at most 67108864 bytes" in done.stderr and "for 1048576 tokens" in done.stderr


def test_a_refusal_names_what_would_do(sparkling):
    """Nobody asked for a context: the need is that of the least one, not of the model's longest."""
    ask = ("run", "-p", "x", "--memory")
    found = re.search(r"found a need of ([0-9]+) .* for ([0-9]+) tokens", sparkling(*ask, "20MiB", status=3).stderr)
    need, tokens = map(int, found.groups())
    assert f"context cut to {tokens} tokens" in sparkling(*ask, need + 4096).stderr
    sparkling(*ask, need - 4096, status=3)


def test_a_context_beyond_the_machine_is_refused_before_it_is_used(sparkling, checkpoint):
    """Without --memory too: pages are taken as they are written, so nothing would be said until the kernel kills somebody."""
    done = sparkling("bench", checkpoint, "--context", 1 << 30, "--in", 8, "--out", 2, status=3)
    assert "--context 1073741824: expected at most" in done.stderr and "a token" in done.stderr
    most = int(re.search(r"expected at most ([0-9]+) tokens", done.stderr)[1])
    assert 0 < most < 1 << 30
