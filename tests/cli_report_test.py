"""`inspect`, `doctor`, `bench` and `compare`."""

import json
import re

import pytest

from cli_support import environment
from conftest import SPARKLING


def test_inspect(sparkling, checkpoint):
    text = sparkling("inspect", checkpoint).stdout
    assert "KM KM + M" in text and "de ee + e" in text
    report = json.loads(sparkling("inspect", checkpoint, "--json").stdout)
    assert report["config"]["layers"] == 4
    assert report["parameters"]["total"] >= report["parameters"]["main"] > report["parameters"]["active"] > 0
    assert sum(c["bytes"] for c in report["components"]) == report["weight_bytes"]
    assert sum(c["bytes_per_token"] for c in report["components"]) == report["bytes_per_token"]
    assert report["cache_bytes_per_token"]["exact"] == 2 * report["cache_bytes_per_token"]["fast"] > 0
    assert report["state_bytes"] > 0 and report["fits"]["fits"] is True


def test_inspect_synthetic_and_layers(sparkling, checkpoint):
    given = ["inspect", "--synthetic", checkpoint / "config.json", "--json"]
    whole = json.loads(sparkling(*given).stdout)
    part = json.loads(sparkling(*given, "--layers", 2).stdout)
    assert part["config"]["layers"] == 2 and part["config"]["mtp_layers"] == whole["config"]["mtp_layers"] == 1
    assert part["weight_bytes"] < whole["weight_bytes"]
    assert "--layers needs --synthetic" in sparkling("inspect", checkpoint, "--layers", 2, status=2).stderr


def test_inspect_needs_no_memory_for_weights_that_it_does_not_read(sparkling):
    """Ling-3.0-flash's 65 GB are inspected on any machine, and the zeros that stand for them are no damage."""
    report = json.loads(sparkling("inspect", "--synthetic", "ling-3.0-flash", "--json").stdout)
    assert report["weight_bytes"] > 65e9 and report["notes"] == []


def token_bytes(plan):
    weights, states = re.search(r"bytes per token: ([\d.]+) MB of weights \+ ([\d.]+) MB of recurrent state", plan).groups()
    return 1e6 * (float(weights) + float(states))


def test_doctor(sparkling, checkpoint):
    assert "nothing to warm" in sparkling("doctor", checkpoint, "--warm").stderr
    report = json.loads(sparkling("doctor", checkpoint, "--json").stdout)
    assert report["self_test"]["passed"] and report["self_test"]["relative_error"] < 1e-4
    assert report["machine"]["read_bandwidth_gb_s"] > 0
    assert report["model"]["bytes_per_token"] == pytest.approx(token_bytes(report["plan"]), abs=2e4)
    done = sparkling("doctor", env=environment(NO_COLOR="1"))
    # The limit is that of the plan, with the head as it is used and the states.
    limit = re.search(r"bandwidth ([\d.]+) GB/s .* at most ([\d.]+) tok/s at ([\d.]+) MB/token", done.stdout)
    bandwidth, speed, megabytes = map(float, limit.groups())
    assert megabytes == pytest.approx(token_bytes(done.stdout) / 1e6, abs=0.02)
    assert speed == pytest.approx(1e3 * bandwidth / megabytes, rel=0.01)
    for part in ["machine", "bandwidth", "NO_COLOR=1", "self test passed", "template"]:
        assert part in done.stdout


def test_the_instruction_set_of_each_format_is_named(sparkling):
    """Nobody has to guess whether the fast loops run: the plan says it for every format of weights."""
    plan = sparkling("run", "-p", "x", "--max-tokens", 1, "--verbose").stderr
    line = next(line for line in plan.splitlines() if "weights by" in line)
    for name in ["F32", "BF16", "FP8", "MXFP4", "INT4"]:
        assert name in line
    used = re.search(r"weights by (\w+) loops", line)[1]
    flags = set(re.findall(r"\b(avx2|avx512f|asimd)\b", open("/proc/cpuinfo", encoding="utf-8").read()))
    best = "avx512" if "avx512f" in flags else "avx2" if "avx2" in flags else "neon" if "asimd" in flags else "generic"
    assert used == best and used in sparkling("doctor").stdout


KEYS = ["name", "tok_s", "ms_per_token", "gain_percent", "bytes_per_token", "gb_s", "roof_percent", "accept_length",
        "verify_over_step", "distinct_experts", "moe_percent", "attention_percent", "head_percent", "sampling_percent",
        "simulated"]  # fmt: skip


def test_bench_formats(sparkling, checkpoint):
    given = ["bench", checkpoint, "--in", 8, "--out", 5, "--repeat", 2, "--draft", 0]
    report = json.loads(sparkling(*given, "--format", "json").stdout)
    assert report["command"].startswith(str(SPARKLING)) and report["commit"] and report["machine"]
    row = report["rows"][0]
    assert list(row)[: len(KEYS)] == KEYS
    assert row["tok_s"] > 0 and row["bytes_per_token"] > 0 and row["gb_s"] > 0 and row["prefill_tok_s"] > 0
    assert row["accept_length"] is None and row["simulated"] is False
    assert "decode tok/s" in sparkling(*given).stdout
    assert sparkling(*given, "--format", "md").stdout.startswith("| test")
    head, body = sparkling(*given, "--format", "csv").stdout.splitlines()
    assert head.startswith("commit,name,tok_s") and head.count(",") == body.count(",")


def test_bench_synthetic_and_too_long(sparkling, checkpoint):
    report = sparkling("bench", "--synthetic", checkpoint / "config.json", "--in", 4, "--out", 3, "--repeat", 1,
                       "--format", "json").stdout  # fmt: skip
    assert json.loads(report)["rows"][0]["tok_s"] > 0
    done = sparkling("bench", checkpoint, "--in", 5000, "--out", 10, status=1)
    assert "4096" in done.stderr


def test_synthetic_weights_beyond_the_memory_exit_3(sparkling):
    done = sparkling("bench", "--synthetic", "ling-3.0-flash", "--memory", "1GiB", status=3)
    assert "GiB, found 1.00 GiB" in done.stderr and "--layers" in done.stderr


def test_compare_on_real_weights(sparkling):
    """Its products of one column a head nearly cancel in some row, which is no wrong product."""
    done = sparkling("compare")
    assert "all equal" in done.stdout and "matmul_many" in done.stdout


def test_compare(sparkling, checkpoint):
    done = sparkling("compare", checkpoint)
    assert "all equal" in done.stdout and "kda_mix" in done.stdout
    done = sparkling("compare", checkpoint, "--tokens", "1,2,3", "--stop-after", "layer.2.kda_mix")
    assert done.stdout.startswith("layer.2.kda_mix")
    done = sparkling("compare", checkpoint, "--tokens", "1,2,3", "--stop-after", "layer.2.kda_mixx", status=2)
    assert "never ran" in done.stderr
    assert "position 1" in sparkling("compare", checkpoint, "--tokens", "1,96", status=1).stderr
