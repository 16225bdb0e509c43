"""How drafts fare on ling-nano, by the engine's own counters: what breaks here leaves the text right and costs only speed."""

import json
import shutil

import numpy as np
import pytest
from conftest import ROOT
from layouts_test import export
from oracle import Oracle
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


@pytest.mark.parametrize("more", [{}, {"seed": 5}])
def test_acceptance_falls_slowly_with_temperature(drafting, more):
    """Not only greedy answers gain: sampled ones accept by rejection sampling, seeded ones by shared noise, never by an exact match
    with an independent draw (Drafting.IsTakenAsOftenAsTheDistributionsAllow has the exact rates)."""
    first = [rates(drafting, word_problems(6, temperature=t, top_p=0.95, **more))[0][0] for t in (0, 0.3, 0.7, 1.0)]
    assert first[0] > 0.8 and min(first) > 0.55, first


def chain_of_the_oracle(ids, prompt, depth):
    """(drafted, accepted) by position of greedy cycles over ids[prompt:], from the second implementation of the model, in float64.

    The draft layer is fed with hidden rows of the model where there are some, after them with its own row after its final norm.
    """
    oracle = Oracle(ROOT / "models/ling-nano")
    last, head, embedding = oracle.layers, oracle.mat("lm_head"), oracle.mat("model.word_embeddings")
    p = f"model.layers.{last}."
    states, hidden = [oracle.new_state(oracle.is_mla(layer)) for layer in range(last)], []
    for position, token in enumerate(ids):
        x = embedding[token]
        for layer in range(last):
            x = oracle.block(layer, x, states[layer], position, [])
        hidden.append(oracle.norm(x, "model.norm.weight"))
    cache, drafted, accepted = oracle.new_state(True), np.zeros(depth), np.zeros(depth)

    def pair(token, row, position):
        e, y = oracle.norm(embedding[token], p + "enorm.weight"), oracle.norm(row, p + "hnorm.weight")
        x = oracle.block(last, oracle.mat(p + "eh_proj") @ np.concatenate([e, y]), cache, position, [])
        return oracle.norm(x, p + "final_layernorm.weight")

    at, seen = prompt, 0  # ids[at] is committed and has not been run
    while at < len(ids) - 1:
        for i in range(seen, at):
            row = pair(ids[i + 1], hidden[i], i)
        seen = at
        drafts = [int(np.argmax(head @ row))]
        use = min(depth, len(ids) - at - 2)
        for j in range(1, use):
            row = pair(drafts[-1], row, at - 1 + j)
            drafts.append(int(np.argmax(head @ row)))
        for name in "kvr":
            del cache[name][at:]
        right = 0
        while right < use and drafts[right] == ids[at + 1 + right]:
            right += 1
        drafted[:use] += 1
        accepted[:right] += 1
        at += right + 1
    return drafted, accepted


def test_later_drafts_are_as_good_as_those_of_the_oracle(sparkling):
    """The layer's own normed output, the last row of it, goes into the next draft: positions 2 and 3 show that."""
    drafted, accepted, found = np.zeros(DEPTH), np.zeros(DEPTH), np.zeros(DEPTH)
    for item in items("problems", 4):
        question = next(m["content"] for m in item["messages"] if m["role"] == "user")
        done = json.loads(sparkling("run", "--json", "-p", question, "--precision", "exact", "--draft", DEPTH, "--temperature", 0,
                                    "--max-tokens", 40, "--ignore-eos").stdout)
        more, right = chain_of_the_oracle(done["prompt_tokens"] + done["tokens"], len(done["prompt_tokens"]), DEPTH)
        drafted, accepted, found = drafted + more, accepted + right, found + done["timings"]["accepted"][:DEPTH]
    assert found / drafted == pytest.approx(accepted / drafted, abs=0.02)
    conditional = accepted[1:] / accepted[:-1]
    assert accepted[0] > 0.5 * drafted[0] and min(conditional) > 0.6


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
    """Recurrent state that kept rejected tokens would show as lost characters while acceptance looks healthy.

    Twenty times thirty lines to copy. A model of this size does not copy them; its answers are the same with and without drafts, and
    drafts are both taken and rejected in them.
    """
    lines = ["v0.22.0", "v1.0.10", "550e8400-e29b", '{"id": 7, "on": true}', "a_b.c-d", "10.0.0.1:8080"]
    bodies = [{"messages": user("Copy this text exactly:\n" + "\n".join(lines[(i + j) % 6].replace("0", str((i + j) % 10)) for j in range(30))),
               "temperature": 0, "max_tokens": 120, "ignore_eos": True, **OFF} for i in range(20)]  # fmt: skip
    with Server("--quiet", "--draft", 0) as plain:
        expected = [plain.ask(**body)["choices"][0]["message"]["content"] for body in bodies]
    found, texts = rates(drafting, bodies)
    assert texts == expected
    assert 0.05 < found[0] < 0.95, found


@pytest.fixture(scope="module")
def mixes(tmp_path_factory):
    """One trunk in BF16, with the draft layer in three formats."""
    folders = {layout: tmp_path_factory.mktemp(layout) for layout in ("bf16", "fp8", "fp4")}
    for layout, folder in folders.items():
        export(folder, "bf16", mtp=layout)
        for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
            shutil.copy(ROOT / "models/ling-nano" / name, folder)
    return folders


@pytest.mark.parametrize("head", [("stored",), ("fp8",), ("fp8", "--draft-head", 2048)])
def test_the_draft_layer_may_be_stored_in_another_format(mixes, head):
    """Precision is each tensor's own affair, beside a head of any format, shared with the drafts or not: all draft equally well."""
    found = {}
    for layout, folder in mixes.items():
        with Server("--quiet", "--draft", DEPTH, "--precision", "exact", "--lm-head", *head, model=folder) as server:
            found[layout] = rates(server, word_problems(24))[0]
    for layout in ("fp8", "fp4"):
        assert sum(found[layout]) / DEPTH == pytest.approx(sum(found["bf16"]) / DEPTH, abs=0.02), found
        assert found[layout] == pytest.approx(found["bf16"], abs=0.04), found


def copy_without(folder, dropped):
    """ling-nano in `folder`, without the tensors whose names `dropped` says."""
    shutil.copytree(ROOT / "models/ling-nano", folder)
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8:8 + size]), b""
    for name in sorted((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"]):
        first, end = header[name]["data_offsets"]
        if dropped(name):
            del header[name]
            continue
        header[name]["data_offsets"] = [len(data), len(data) + end - first]
        data += raw[8 + size + first:8 + size + end]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_missing_tensors_of_the_draft_layer(tmp_path, sparkling):
    """Never random weights: without the layer drafts are off and that is said everywhere, with a part of it nothing starts."""
    layer = f"model.layers.{json.loads((ROOT / 'models/ling-nano/config.json').read_text())['num_hidden_layers']}."
    copy_without(tmp_path / "none", lambda name: name.startswith(layer))
    with Server(model=tmp_path / "none") as server:
        assert "drafts off: checkpoint has no MTP layer" in server.log_text()
        answer = server.chat(max_tokens=30, ignore_eos=True)
        assert answer["timings"]["acceptance"] == [] and answer["usage"]["completion_tokens"] == 30
        assert server.metric("sparkling_drafted_tokens_total") == 0 and server.metric("sparkling_cycles_total") >= 29
        assert "drafts: off" in server.get("/props")[2]["plan"]
    refused = sparkling("serve", tmp_path / "none", "--port", 0, "--draft", 3, status=1)
    assert "--draft 3" in refused.stderr and "MTP layer" in refused.stderr
    lost = f"{layer}eh_proj.weight"
    copy_without(tmp_path / "part", lambda name: name == lost)
    for draft in (3, 0, "auto"):
        assert lost in sparkling("serve", tmp_path / "part", "--port", 0, "--draft", draft, status=1).stderr


def test_acceptance_has_not_fallen(drafting):
    """Fixed prompts, greedy: the rates that the shipped weights had when they were made (tests/data/nano/acceptance.json)."""
    kept = json.loads((NANO / "acceptance.json").read_text())
    found, _ = rates(drafting, word_problems(20))
    print("acceptance by position", [round(r, 3) for r in found])
    for now, then in zip(found, kept["word_problems"], strict=True):
        assert now > then - 0.03, (found, kept)
