"""`bench`: forms, columns, simulated rows, real text, figures. Numbers are checked against each other and against bytes, never
against the clock.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as tree

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import random_checkpoint  # noqa: E402  (needs the path above)

TINY = ("--synthetic", "ling-3.0-tiny", "--layers", "2")  # no draft layer
QUICK = ("--in", "24", "--out", "9", "--repeat", "1")


@pytest.fixture(scope="module")
def flash_like(tmp_path_factory):
    """config.json of a small member with a draft layer, for --synthetic."""
    folder = tmp_path_factory.mktemp("bench") / "micro"
    random_checkpoint.make(folder, "fp4", "micro", 5, None)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["num_nextn_predict_layers"] = 1
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def bench(sparkling):
    def run(*arguments):
        return json.loads(sparkling("bench", "--format", "json", *arguments).stdout)

    return run


def close(a, b):
    return a == pytest.approx(b, rel=1e-6)


def check_row(row):
    """N01, N11: the numbers of a row follow from each other."""
    assert close(row["ms_per_token"], 1000 / row["tok_s"])
    assert row["roof_percent"] == pytest.approx(100 * row["gb_s"] / row["roof_gb_s"], rel=1e-6)
    assert row["bytes_per_token"] > 0 and row["pass_p95_ms"] >= 0


# ---- one row, several depths, real text ----


def test_a_row_names_what_it_was_measured_on(sparkling, bench):
    """N03, N06: build, weights, machine, clocks; two builds cannot pass for one."""
    report = bench(*QUICK)
    assert report["commit"] in sparkling("--version").stdout and report["build"]
    assert re.fullmatch("[0-9a-f]{16}", report["weights"]) and "cores" in report["machine"]
    assert "before" in report["clocks"] and "after" in report["clocks"] and "load" in report["clocks"]
    assert report["sampling"] == "greedy"
    check_row(report["rows"][0])


def test_prefill_is_cold_and_warm_on_purpose(bench):
    """N07: nothing of a repetition's prompt was cached, which the program checks; the warm time is given apart."""
    row = bench("--in", "600", "--out", "4", "--repeat", "2", "--draft", "0")["rows"][0]
    assert row["cold_ttft_ms"] > 0 and row["warm_ttft_ms"] > 0
    # 600 tokens in the cold one, one in the warm one: no clock is so bad.
    assert row["warm_ttft_ms"] < row["cold_ttft_ms"]


def test_long_runs_tell_their_drop(bench):
    """N06: the speed of the second half of the tokens against the first; too few tokens tell nothing."""
    rows = [bench("--in", "8", "--out", out, "--repeat", "1", "--draft", "0")["rows"][0] for out in ("64", "160")]
    assert rows[0]["drop_percent"] is None and rows[1]["drop_percent"] <= 100


def test_depths_are_rows_and_read_more_latents(bench):
    rows = bench(*QUICK, "--draft", "0", "--depth", "0,64,300")["rows"]
    assert [row["name"] for row in rows] == ["in24+out9@0", "in24+out9@64", "in24+out9@300"]
    latents = 2 * (512 + 64) * 4  # two MLA layers of ling-nano, floats
    for before, after, more in ((rows[0], rows[1], 64), (rows[1], rows[2], 236)):
        assert after["bytes_per_token"] - before["bytes_per_token"] == pytest.approx(more * latents)


def test_real_text(sparkling, bench, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('"Tom has 3 apples and buys 4 more. How many apples does he have?"\n{"prompt": "Hello!", "kind": "chat"}\n')
    report = bench("--prompts", prompts, "--out", "24", "--repeat", "1", "--draft", "3", "--temperature", "0.6")
    row = report["rows"][0]
    assert row["name"] == "2 prompts+out24" and 1 <= row["accept_length"] <= 4 and row["drafts"] <= 3
    assert "temperature 0.6" in report["sampling"]
    check_row(row)
    prompts.write_text("{}\n")
    done = sparkling("bench", "--prompts", prompts, status=1)
    assert "line 1: expected a text \"prompt\"" in done.stderr


# ---- the ladder ----


def test_ladder_has_a_rung_an_option(bench):
    report = bench("--ladder", "--in", "32", "--out", "24", "--repeat", "1")
    rows = report["rows"]
    names = [row["name"] for row in rows]
    assert names[0] == "plain experts, fp32 head" and names[-2] == "+ fp8 head" and names[-1] == "+ MTP, 3 drafts"
    for row in rows:
        check_row(row)
        shares = [row[key] for key in ("moe_percent", "attention_percent", "head_percent", "sampling_percent")]
        assert all(share > 0 for share in shares) and sum(shares) <= 100.5
        assert row["roof_gb_s"] == rows[0]["roof_gb_s"] and row["simulated"] is False
    for before, after in zip(rows, rows[1:]):
        assert close(after["gain_percent"], 100 * (after["tok_s"] / before["tok_s"] - 1))
        assert close(after["gain_total_percent"], 100 * (after["tok_s"] / rows[0]["tok_s"] - 1))
    # Counted bytes: the head alone changes from float to FP8 with a scale a row.
    assert rows[-3]["bytes_per_token"] - rows[-2]["bytes_per_token"] == 4096 * 256 * 4 - 4096 * (256 + 4)
    drafted = rows[-1]
    assert 1 <= drafted["accept_length"] <= 4 and 4 <= drafted["distinct_experts"] <= 16
    assert close(drafted["verify_over_step"], drafted["verify_ms"] / rows[-2]["ms_per_token"])


def test_a_head_that_is_the_first_row_s_makes_no_rung(bench):
    names = [row["name"] for row in bench("--ladder", "--in", "8", "--out", "4", "--repeat", "1", "--lm-head", "fp32", "--draft", "0")["rows"]]
    assert names[0] == "plain experts, fp32 head" and "+ fp32 head" not in names and len(names) <= 2


def test_simulated_rows_say_so_and_hold_the_wanted_numbers(sparkling, bench, flash_like):
    given = ("--ladder", "--synthetic", flash_like, "--in", "16", "--out", "160", "--repeat", "2", "--simulate-acceptance", "2.68")
    rows = bench(*given)["rows"]
    assert [row["simulated"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert rows[-1]["accept_length"] == pytest.approx(2.68, abs=0.1)  # 120 passes
    assert "(simulated)" in sparkling("bench", *given).stdout
    row = bench(*given, "--simulate-experts", "5")["rows"][-1]
    # The last pass of an answer may have too few rows for five.
    assert row["distinct_experts"] == pytest.approx(5, abs=0.05) and row["simulated"] is True


@pytest.mark.parametrize("arguments, expected", [
    (["--simulate-acceptance", "5", "--draft", "3"], "expected at most 4 with --draft 3"),
    (["--simulate-acceptance", "2", "--draft", "0"], "need drafts"),
    (["--ladder", "--profile"], "expected one of --ladder"),
    (["--ladder", "--depth", "1,2"], "expected --ladder or --depth"),
    (["--plot", "x.gif"], "expected FILE.svg or FILE.png"),
    (["--kernel", "no-such"], "expected part of kda-in"),
    (["--kernel", "experts", "--depth", "1,2"], "expected one --depth, found 2"),
    (["--kernel", "experts", "--simulate-experts", "8"], "--kernel chooses that itself"),
    (["--ladder", "--moe", "plain"], "--ladder chooses that itself: expected no --moe"),
    (["--acceptance", "--draft", "2"], "expected no --draft"),
    (["--acceptance", "--temperature", "0.3"], "expected no --temperature"),
    (["--acceptance", "--simulate-acceptance", "2"], "expected no --simulate-acceptance"),
    (["--simulate-experts", "3", "--draft", "3"], "--simulate-experts: expected 4 (those of one row) to 16"),
    (["--simulate-experts", "17", "--draft", "3"], "to 16 (of all rows), found 17"),
    (["--simulate-experts", "33"], "to 32 (of all rows), found 33"),
    (["--depth", "-1"], "expected whole numbers from 0 on"),
    (["--depth", "1,x"], "separated by commas, found '1,x'"),
    (["--ladder", "--require", "moe=packed"], "--ladder chooses that itself: expected no --require"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(sparkling, arguments, expected):
    done = sparkling("bench", *arguments, status=2)
    assert expected in done.stderr and done.stdout == ""


# ---- study, profile, kernels ----


def test_acceptance_study(bench, flash_like):
    rows = bench("--acceptance", "--synthetic", flash_like, "--in", "16", "--out", "16", "--repeat", "1")["rows"]
    assert [(row["kind"], row["temperature"], row["out"]) for row in rows] == [
        ("random tokens", t, out) for t in (0, 0.6, 1.0) for out in (4, 16)]
    for row in rows:
        speeds = [row[f"tok_s_{d}"] for d in range(6)]
        assert row["best_depth"] == speeds.index(max(speeds))
        assert all(1 <= row[f"accept_length_{d}"] <= d + 1 for d in range(1, 6))
    # More drafts never shorten a pass: the text is the same.
    long = [row for row in rows if row["out"] == 16]
    for row in long:
        assert row["accept_length_1"] <= row["accept_length_5"] + 1e-9 or row["accept_length_5"] >= 1


def test_acceptance_study_knows_kinds_of_text(bench, tmp_path):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "How many eggs are in 4 boxes of 6 eggs?", "kind": "problem"}\n'
                       '{"prompt": "Hello!", "kind": "chat"}\n{"prompt": "A box holds 6 eggs.", "kind": "problem"}\n')
    rows = bench("--acceptance", "--prompts", prompts, "--out", "8", "--in", "8", "--repeat", "1")["rows"]
    assert [row["kind"] for row in rows[::6]] == ["problem", "chat", "random tokens"]


def test_profile_adds_up(bench):
    report = bench("--profile", *QUICK, "--draft", "0", "--threads", "1")
    *verbs, total = report["rows"]
    assert total["verb"] == "all verbs" and total["percent"] == pytest.approx(100)
    assert sum(row["us_per_token"] for row in verbs) == pytest.approx(total["us_per_token"])
    assert sum(row["bytes_per_token"] or 0 for row in verbs) == pytest.approx(total["bytes_per_token"])
    names = {row["verb"] for row in verbs}
    assert {"experts", "route", "logits", "block kda", "block mla"} <= names
    # One repetition's decoding, nothing of its prompt: what the row without a trace counts too.
    plain = bench(*QUICK, "--draft", "0")["rows"][0]
    assert total["bytes_per_token"] == pytest.approx(plain["bytes_per_token"], rel=0.01)


def test_profile_of_a_prompt(bench):
    report = bench("--profile", "--in", "128", "--out", "1", "--repeat", "1", "--draft", "0", "--threads", "1")
    *verbs, total = report["rows"]
    calls = {row["verb"]: row["calls"] * 128 for row in verbs}
    # One chunk, so a call a layer: 12 layers, 11 with experts, 10 with KDA.
    assert calls["experts"] == pytest.approx(11) and calls["kda_mix"] == pytest.approx(10)
    assert not any(verb.startswith("block") for verb in calls), "a prompt is never fused"
    assert sum(row["us_per_token"] for row in verbs) == pytest.approx(total["us_per_token"])


def test_kernels_alone(bench):
    result = bench("--kernel", "kda-out")
    assert result["machine"] == bench(*QUICK)["machine"], "those that decoding uses"
    assert bench("--kernel", "kda-out", "--precision", "exact")["machine"] == bench(*QUICK, "--precision", "exact")["machine"]
    rows = result["rows"]
    assert [row["rows"] for row in rows] == [1, 2, 4, 8] and {row["name"] for row in rows} == {"kda-out"}
    assert len({row["bytes"] for row in rows}) == 1 and rows[0]["bytes"] > 0
    assert rows[0]["copies"] * rows[0]["bytes"] > 3e7 or rows[0]["copies"] == 8192


def test_the_kernels_of_a_layers_experts(bench):
    experts = bench("--kernel", "moe")["rows"]
    assert [row["rows"] for row in experts] == [1, 2, 4, 8] and {row["name"] for row in experts} == {"moe"}
    assert experts[0]["copies"] == 11, "all layers with experts: they fit a cache together"
    assert experts[0]["bytes"] < experts[1]["bytes"] < experts[2]["bytes"] < 4 * experts[0]["bytes"], "rows share what they read"


# ---- figures ----


def test_figures(sparkling, tmp_path):
    ladder, depth = tmp_path / "ladder.svg", tmp_path / "depth.svg"
    sparkling("bench", "--ladder", *QUICK, "--plot", ladder)
    sparkling("bench", *QUICK, "--depth", "0,100", "--plot", depth)
    texts = [t.text for t in tree.parse(ladder).iter("{http://www.w3.org/2000/svg}text")]
    assert "plain experts, fp32 head" in texts and "+ MTP, 3 drafts" in texts and "bytes at the roof" in texts
    texts = [t.text for t in tree.parse(depth).iter("{http://www.w3.org/2000/svg}text")]
    assert "Decoding over depth" in texts and "tokens before" in texts


def test_a_figure_that_cannot_be_written_costs_no_row(sparkling, tmp_path):
    for path in (tmp_path / "none" / "x.svg", tmp_path / "none" / "x.png"):
        done = sparkling("bench", *QUICK, "--plot", path, status=1)
        assert "expected a folder" in done.stderr and not done.stdout
    (tmp_path / "x.svg").mkdir()
    done = sparkling("bench", *QUICK, "--plot", tmp_path / "x.svg", status=1)
    assert "x.svg" in done.stderr and "tok/s" in done.stdout


def test_png_or_a_word_about_what_is_missing(sparkling, tmp_path):
    png = tmp_path / "x.png"
    if shutil.which("rsvg-convert"):
        sparkling("bench", *QUICK, "--plot", png)
        assert png.read_bytes().startswith(b"\x89PNG")
    else:
        done = sparkling("bench", *QUICK, "--plot", png, status=3)
        assert "librsvg2-bin" in done.stderr and not png.exists()


# ---- N01: what `run` tells about itself ----


@pytest.mark.parametrize("draft", ["0", "3"])
def test_usage_and_timings_of_run_agree(sparkling, draft):
    """Tokens are counted as tokens, the prompt is not in the decode time, at any number of drafts."""
    done = sparkling("run", "-p", "A box holds 6 eggs. How many eggs are in 4 boxes?", "--json", "--temperature", "0", "--draft",
                     draft, "--max-tokens", "60")
    answer = json.loads(done.stdout)
    usage, timings = answer["usage"], answer["timings"]
    assert usage["completion_tokens"] == len(answer["tokens"]) and usage["prompt_tokens"] == len(answer["prompt_tokens"])
    ended = 1 if answer["finish_reason"] == "stop" else 0  # the end token is decoded and not part of the answer
    decoded = timings["decode_tok_s"] * timings["decode_ms"] / 1000
    assert decoded == pytest.approx(usage["completion_tokens"] - 1, abs=1e-6) or decoded == pytest.approx(
        usage["completion_tokens"] - 1 + ended, abs=1e-6)


@pytest.mark.parametrize("given, expected", [
    ([], ["--ladder --prompts tests/data/bench_prompts.jsonl", "--ladder --synthetic ling-3.0-flash --layers 6"]),
    (["BENCH=--in 8 --out 4", "ARGS=--threads 1"], ["--in 8 --out 4 --threads 1"]),
])  # fmt: skip
def test_make_bench_prints_the_ladders(given, expected):
    """The front door's commands: ling-nano and six layers of flash, or what was asked for alone."""
    done = subprocess.run(["make", "-n", "bench", *given], cwd=ROOT, capture_output=True, text=True, check=True,
                          env={key: value for key, value in os.environ.items() if key not in ("BENCH", "MAKEFLAGS")})
    measured = re.findall(r"sparkling bench (.*) </dev/null", done.stdout)
    assert len(measured) == len(expected) and all(m.startswith(e) for m, e in zip(measured, expected)), measured
