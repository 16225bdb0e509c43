"""How drafts fare on ling-nano, by the engine's own counters: what breaks here leaves the text right and costs only speed."""

import json
import shutil

import pytest
from conftest import ROOT
from layouts_test import export
from server_support import Server, user

NANO = ROOT / "tests/data/nano"
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
DEPTH = 3


def items(kind, count):
    return [json.loads(line) for line in (NANO / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()[:count]]


def rates(server, bodies):
    """Share of accepted drafts by position, given that it was drafted, over all answers; and the texts."""
    accepted, cycles, texts = [0.0] * DEPTH, 0.0, []
    for body in bodies:
        answer = server.ask(**body)
        timings, tokens = answer["timings"], answer["usage"]["completion_tokens"]
        if timings["acceptance"]:
            weight = tokens / timings["accept_length"]
            cycles += weight
            accepted = [a + weight * r for a, r in zip(accepted, timings["acceptance"], strict=False)]
        texts.append(answer["choices"][0]["message"]["content"])
    return [a / cycles for a in accepted], texts


def word_problems(count=8, **more):
    return [{"messages": item["messages"], "temperature": 0, "max_tokens": 200, **more} for item in items("problems", count)]


@pytest.fixture(scope="module")
def drafting():
    with Server("--quiet", "--draft", DEPTH, "--require", f"draft={DEPTH}") as server:
        yield server


def test_acceptance_falls_slowly_with_temperature(drafting):
    """Not only greedy answers gain: sampled ones accept by rejection sampling, not by an exact match with the draft."""
    first = [rates(drafting, word_problems(6, temperature=t, top_p=0.95))[0][0] for t in (0, 0.3, 0.7, 1.0)]
    assert first[0] > 0.8 and min(first) > 0.55, first


def test_later_drafts_are_as_good_as_the_reference_says(drafting):
    """The chain feeds the layer's own normed output, the last row of it, into the next draft: positions 2 and 3 show that.

    Against plain loops in double over the same prompts, without thinking to keep those short.
    """
    bodies = word_problems(4, max_tokens=24, **OFF)
    with Server("--quiet", "--draft", DEPTH, "--backend", "reference") as reference:
        truth, _ = rates(reference, bodies)
    with Server("--quiet", "--draft", DEPTH, "--precision", "exact") as exact:
        found, _ = rates(exact, bodies)
    assert found == pytest.approx(truth, abs=0.02), (found, truth)
    assert truth[0] > 0.5
    conditional = [b / a for a, b in zip(truth, truth[1:], strict=False)]
    assert min(conditional) > 0.6 * truth[0], truth


def test_the_draft_cache_covers_the_prompt(drafting):
    """Drafts are as good after a text that was read as after the same text that was generated: 60 tokens after 60 others."""
    def passes(prompt, count):
        answer = drafting.ask("/v1/completions", prompt=prompt, temperature=0, max_tokens=count, ignore_eos=True)
        return answer["choices"][0]["text"], (count - 1) / answer["timings"]["accept_length"]

    generated = read = 0
    for item in items("problems", 12):
        text = drafting.post("/apply-template", {"messages": item["messages"]})[2]["prompt"]
        prompt = drafting.post("/tokenize", {"content": text, "special": True})[2]["tokens"]
        half, first = passes(prompt, 60)
        generated += passes(prompt, 120)[1] - first
        read += passes(prompt + drafting.post("/tokenize", {"content": half, "special": True})[2]["tokens"], 60)[1]
    assert read == pytest.approx(generated, rel=0.1), (60 * 12 / generated, 60 * 12 / read)


def test_exact_strings_survive_drafts(drafting):
    """Recurrent state that kept rejected tokens would show as lost characters while acceptance looks healthy."""
    lines = ["v0.22.0", "v1.0.10", "550e8400-e29b", '{"id": 7, "on": true}', "a_b.c-d", "10.0.0.1:8080"]
    bodies = [{"messages": user("Copy this text exactly:\n" + "\n".join(lines[(i + j) % 6].replace("0", str(i % 10)) for j in range(6))),
               "temperature": 0, "max_tokens": 300, **OFF} for i in range(20)]  # fmt: skip
    with Server("--quiet", "--draft", 0) as plain:
        expected = [plain.ask(**body)["choices"][0]["message"]["content"] for body in bodies]
    assert rates(drafting, bodies)[1] == expected


def test_the_draft_layer_may_be_stored_in_another_format(tmp_path):
    """Precision is each tensor's own affair: the draft layer in BF16, FP8 or MXFP4 beside the same trunk drafts equally well."""
    found = {}
    for layout in ("bf16", "fp8", "fp4"):
        export(tmp_path / layout, "bf16", mtp=layout)
        for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
            shutil.copy(ROOT / "models/ling-nano" / name, tmp_path / layout)
        with Server("--quiet", "--draft", DEPTH, "--precision", "exact", model=tmp_path / layout) as server:
            found[layout] = rates(server, word_problems(5))[0]
    for layout in ("fp8", "fp4"):
        assert found[layout] == pytest.approx(found["bf16"], abs=0.04), found


def test_acceptance_has_not_fallen(drafting):
    """Fixed prompts, greedy: the rates that the shipped weights had when they were made (tests/data/nano/acceptance.json)."""
    kept = json.loads((NANO / "acceptance.json").read_text())
    found, _ = rates(drafting, word_problems(20))
    print("acceptance by position", [round(r, 3) for r in found])
    for now, then in zip(found, kept["word_problems"], strict=True):
        assert now > then - 0.03, (found, kept)
