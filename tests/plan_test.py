"""`plan`: bytes by component, limits, projections; held against figures counted by hand and against `bench`."""

import json

import pytest


def plan(sparkling, *arguments):
    return json.loads(sparkling("plan", "--json", *arguments).stdout)


def part(result, name):
    return next(c["bytes"] for c in result["components"] if c["name"] == name)


def test_ling_flash_on_the_spark_is_what_the_hand_calculation_says(sparkling):
    """N11: bytes within 10 % of a hand calculation; here they are within 1 %."""
    p = plan(sparkling, "--synthetic", "ling-3.0-flash", "--device", "gb10")
    by_hand = {
        "KDA projections": 35 * 6 * 2560 * 4096,
        "routed experts": 40 * 8 * 3 * 2560 * 768 * (0.5 + 1 / 32),
        "LM head": 157184 * 2560,
        "shared expert": 40 * 3 * 2560 * 768,
        "router": 40 * 512 * 2560 * 2,
        "dense FFN": 2 * 3 * 2560 * 6144,
        "KDA state": 2 * 35 * 32 * 128 * 128 * 4,
        "MLA latents": 7 * 576 * 4 * 1024,
    }
    for name, expected in by_hand.items():
        assert part(p, name) == pytest.approx(expected, rel=0.08 if name == "KDA state" else 0.01), name
    assert p["bytes_per_token"] == pytest.approx(4.43e9, rel=0.01)
    assert p["bytes_per_token"] == pytest.approx(sum(c["bytes"] for c in p["components"]))
    assert p["rows"][2]["limit_tok_s"] == pytest.approx(61.7, rel=0.01)
    assert p["rows"][2]["practical_limit_tok_s"] == pytest.approx(52, rel=0.01)
    assert p["memory"]["fits"] is True and 10 < p["load_seconds"] < 30
    half = plan(sparkling, "--synthetic", "ling-3.0-flash", "--device", "gb10", "--latents", "bf16")
    assert part(half, "MLA latents") == pytest.approx(part(p, "MLA latents") / 2)
    assert half["memory"]["caches"] == p["memory"]["caches"] / 2 and half["published"] == p["published"]


def test_published_shares_of_the_spark_come_out_of_the_published_times(sparkling):
    rows = plan(sparkling, "--synthetic", "ling-3.0-flash", "--device", "gb10")["published"]
    shares = [(round(r["percent_of_limit"]), round(r["percent_if_independent"])) for r in rows]
    assert shares[:3] == [(64, 64), (70, 70), (71, 71)]
    assert shares[4] == (72, 83)  # 102.88 tok/s at accept length 4.0
    assert shares[6] == (52, 60)  # 53.89 tok/s at 2.9


def test_drafts_cost_what_the_roofline_says(sparkling):
    """Draft steps of 883, 481 and 123 MB by head, and a verify pass of four rows, from the published analysis."""
    for options, expected in ((["--lm-head", "bf16"], 883.5e6), ([], 481.2e6), (["--draft-head", "32768"], 123.2e6)):
        row = plan(sparkling, "--synthetic", "ling-3.0-flash", "--device", "gb10", *options)["rows"][3]
        assert row["draft_bytes"] / 3 == pytest.approx(expected, rel=0.1), options
    four = plan(sparkling, "--synthetic", "ling-3.0-flash", "--device", "gb10", "--distinct", "31.26")["rows"][3]
    assert four["verify_bytes"] == pytest.approx(7.340e9, rel=0.01)
    assert four["distinct_experts"] == 31.26


def counted(sparkling, *arguments):
    return json.loads(sparkling("bench", "--repeat", "1", "--format", "json", *arguments).stdout)["rows"][0]


@pytest.mark.parametrize("model", [[], ["--synthetic", "ling-3.0-tiny", "--layers", "2"]])
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_bytes_equal_those_that_bench_counts(sparkling, model, precision):
    """64 prompt tokens and 10 decoded ones: 9 steps at positions 64 to 72, 68 in the middle."""
    for head in ("fp8",) if model else ("stored", "fp32", "bf16", "fp8", "mxfp4"):
        shown = counted(sparkling, *model, "--in", "64", "--out", "10", "--draft", "0", "--precision", precision, "--lm-head", head)
        planned = plan(sparkling, *model, "--device", "gb10", "--depth", "68", "--lm-head", head)
        assert shown["bytes_per_token"] == planned["bytes_per_token"], head
        assert planned["rows"][2]["name"] == f"+ {head} head"


@pytest.mark.parametrize("rows", ["0", "1024"])
def test_bytes_of_draft_cycles_are_those_that_bench_counts(sparkling, rows):
    """Up to the last cycle, which drafts less, and the experts of what the draft layer catches up on, which are estimated."""
    shown = counted(sparkling, "--in", "64", "--out", "200", "--draft", "3", "--draft-head", rows, "--simulate-acceptance", "2.5")
    planned = plan(sparkling, "--device", "gb10", "--depth", "164", "--draft-head", rows, "--accept-length",
                   str(shown["accept_length"]), "--distinct", str(shown["distinct_experts"]))
    row = planned["rows"][3]
    assert row["name"] == "+ MTP, 3 drafts" and shown["bytes_per_token"] == pytest.approx(row["bytes_per_token"], rel=0.02)


def test_one_draft_needs_no_other_option(sparkling):
    row = plan(sparkling, "--device", "gb10", "--draft", "1")["rows"][3]
    assert row["accept_length"] == 1.68
    assert [r["name"] for r in plan(sparkling, "--device", "gb10", "--draft", "0")["rows"]][-1] == "+ fp8 head"


def test_a_name_from_a_file_cannot_steer_the_terminal(sparkling, tmp_path):
    spec = tmp_path / "box.json"
    spec.write_text('{"name": "a\\u001b[31m\\nb", "bandwidth_gb_s": 1}')
    assert "device    a\\x1b[31m\\x0ab, 1.0 GB/s" in sparkling("plan", "--device", spec).stdout


def test_devices(sparkling, tmp_path):
    spec = tmp_path / "box.json"
    spec.write_text('{"name": "my box", "bandwidth_gb_s": 100, "tflops": 10, "memory_gb": 1, "disk_gb_s": 2, "reached": 0.5}')
    p = plan(sparkling, "--device", spec)
    assert p["device"]["name"] == "my box" and p["published"] == [] and p["memory"]["fits"] is True
    for row in p["rows"]:
        assert row["limit_tok_s"] == pytest.approx(100e9 / row["bytes_per_token"])
    assert p["rows"][1]["projected_tok_s"] == pytest.approx(0.5 * p["rows"][1]["limit_tok_s"])
    assert p["load_seconds"] == pytest.approx(p["memory"]["weights"] / 2e9)
    flash = plan(sparkling, "--synthetic", "ling-3.0-flash", "--device", spec)
    assert flash["memory"]["fits"] is False
    here = plan(sparkling, "--context", "1000")
    assert here["device"]["bandwidth_gb_s"] > 0 and here["memory"]["context"] == 1000
    assert here["prefill"]["limit_tok_s"] is None and here["load_seconds"] is None
    assert "H200" in sparkling("plan", "--device", "h200").stdout


@pytest.mark.parametrize("arguments, status, expected", [
    (["--device", "gb11"], 2, "expected gb10, h200 or a JSON file"),
    (["--device", "./none.json"], 1, "none.json"),
    (["--device", "gb10", "--accept-length", "4.5"], 2, "expected at most 4"),
    (["--device", "gb10", "--distinct", "900"], 2, "expected 4 to 16 experts with --draft 3"),
    (["--device", "gb10", "--distinct", "3"], 2, "expected 4 to 16 experts"),
    (["--device", "gb10", "--draft", "1", "--accept-length", "2.5"], 2, "expected at most 2 with --draft 1, found 2.5"),
    (["--device", "gb10", "--depth", "65536"], 2, "expected a position below the context of 65536"),
    (["--device", "gb10", "--draft-head", "5000"], 2, "expected at most 4096 rows"),
])  # fmt: skip
def test_what_cannot_be_is_refused(sparkling, arguments, status, expected):
    done = sparkling("plan", *arguments, status=status)
    assert expected in done.stderr and done.stdout == ""


@pytest.mark.parametrize("content, expected", [
    ("[]", "expected one JSON object"),
    ("{}", "expected bandwidth_gb_s"),
    ('{"bandwidth_gb_s": -1}', "bandwidth_gb_s: expected a number from 0.001"),
    ('{"bandwidth_gb_s": 1, "reached": 1.5}', "reached: expected a number from 0.001 to 1, found 1.5"),
    ('{"bandwidth_gb_s": 1, "disk_gb_s": 1e-300}', "disk_gb_s: expected a number from 0.001"),
    ('{"bandwidth_gb_s": "273"}', 'bandwidth_gb_s: expected a number from 0.001 to 1e+06, found "273"'),
    ('{"bandwidth_gb_s": 1e999}', "expected one JSON object"),
    ('{"bandwidth_gb_s": 1, "practical_gb_s": 5}', "practical_gb_s: expected at most bandwidth_gb_s, 1, found 5"),
    ('{"bandwidth_gb_s": 1, "name": 5}', "name: expected a text, found number"),
    ('{"bandwidth_gb_s": ' + "[" * 100000 + "]" * 100000 + "}", "expected JSON of at most 32 levels, found 100001"),
    ("", "expected one JSON object"),
    ('{"bandwidth_gb_s": 1, "flops": 2}', "reached_prefill, found 'flops'"),
])  # fmt: skip
def test_wrong_device_files_are_named(sparkling, tmp_path, content, expected):
    spec = tmp_path / "box.json"
    spec.write_text(content)
    done = sparkling("plan", "--device", spec, status=1)
    assert expected in done.stderr and str(spec) in done.stderr
