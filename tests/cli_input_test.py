"""Every option that names a file, given what never ends, never begins or is no file: one clear message, soon."""

import os
import shutil
import subprocess
import time

import pytest

from conftest import ROOT, SPARKLING

NANO = ROOT / "models" / "ling-nano"
OPTIONS = {
    "config": lambda p: ["run", "-p", "x", "--config", p],
    "prompt": lambda p: ["run", "-f", p],
    "tools": lambda p: ["run", "-p", "x", "--tools", p],
    "api key": lambda p: ["serve", "--port", "0", "--api-key-file", p],
    "text": lambda p: ["tokenize", "-f", p],
    "jsonl": lambda p: ["tokenize", "--jsonl", p],
    "count": lambda p: ["tokenize", "--count", p],
    "decode": lambda p: ["tokenize", "--decode", f"@{p}"],
    "ids": lambda p: ["logits", "--tokens", f"@{p}", "-o", "/dev/null"],
    "routes": lambda p: ["logits", "--tokens", "1,2", "--routes-in", p, "-o", "/dev/null"],
    "synthetic": lambda p: ["bench", "--synthetic", p, "--in", 2, "--out", 1],
}


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_no_option_reads_without_a_limit(sparkling, tmp_path, option):
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in ["/dev/zero", pipe, folder]:
        start = time.monotonic()
        done = sparkling(*OPTIONS[option](path), status=None, timeout=60)
        assert done.returncode == 1 and str(path) in done.stderr and "expected" in done.stderr, done.stderr
        assert len(done.stderr) < 1000 and time.monotonic() - start < 30
        if path == folder:
            assert "expected a file, found a folder" in done.stderr
        if path == pipe:
            assert "found nobody" in done.stderr


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json",
                                  "model.safetensors"])  # fmt: skip
def test_files_of_a_checkpoint_are_regular_files(sparkling, tmp_path, name):
    folder = tmp_path / "model"
    shutil.copytree(NANO, folder)
    for make, found in [(lambda p: p.symlink_to("/dev/zero"), "a device"), (os.mkfifo, "a pipe"), (os.mkdir, "a folder")]:
        path = folder / name
        path.unlink(missing_ok=True)
        make(path)
        for verb in (["run", folder, "-p", "x"], ["tokenize", folder, "--text", "x"]):
            if verb[0] == "tokenize" and name != "tokenizer.json":
                continue
            done = sparkling(*verb, status=1, timeout=60)
            assert f"{name}: expected a regular file, found {found}" in done.stderr
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_pipe_is_a_prompt_like_any_other(sparkling, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = f'(sleep 0.3; echo Hello) > {pipe} & {SPARKLING} tokenize -f {pipe}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == sparkling("tokenize", "--text", "Hello\n").stdout


def test_a_deep_tools_file_is_refused(sparkling, tmp_path):
    file = tmp_path / "tools.json"
    file.write_text('[{"type":"function","function":{"name":"f","parameters":' + '{"a":' * 100000 + "1" + "}" * 100000 + "}}]")
    assert "levels" in sparkling("run", "-p", "x", "--tools", file, status=1).stderr


JSON_FILES = {
    "tools": lambda p: ["run", "-p", "x", "--max-tokens", 1, "--tools", p],
    "jsonl": lambda p: ["tokenize", "--jsonl", p],
    "questions": lambda p: ["eval", "set", p, "--max-tokens", 1],
    "prompts": lambda p: ["bench", "--prompts", p, "--out", 1],
    "device": lambda p: ["plan", "--device", p],
}
GOOD = {"tools": '[{"type": "function", "function": {"name": "f"}}]', "jsonl": '"x"', "questions": '{"question": "1+1?", "answer": "2"}',
        "prompts": '{"prompt": "one two three"}', "device": '{"name": "box", "bandwidth_gb_s": 100}'}


@pytest.mark.parametrize("option", sorted(JSON_FILES))
def test_nothing_hides_behind_a_nul(sparkling, tmp_path, option):
    """The JSON library takes a NUL for the end: what stands behind it would be nobody's."""
    path = tmp_path / "file"
    path.write_text(GOOD[option])
    sparkling(*JSON_FILES[option](path), status=0)
    path.write_text(GOOD[option] + "\0{")
    assert str(path) in sparkling(*JSON_FILES[option](path), status=1).stderr


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_nothing_hides_behind_a_nul_in_a_checkpoint(sparkling, tmp_path, name):
    shutil.copytree(NANO, tmp_path / "model")
    with open(tmp_path / "model" / name, "a") as file:
        file.write("\0{")
    assert name in sparkling("run", tmp_path / "model", "-p", "x", status=1).stderr


def test_what_git_leaves_without_its_large_files_is_named(sparkling, tmp_path):
    for name in ("tokenizer.json", "model.safetensors"):
        shutil.copytree(NANO, tmp_path / name)
        (tmp_path / name / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
        done = sparkling("run", tmp_path / name, "-p", "x", status=1)
        assert name in done.stderr and "`git lfs pull`" in done.stderr


def test_a_file_of_zeros_is_doubted(sparkling, tmp_path):
    shutil.copytree(NANO, tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin:] = bytes(len(data) - begin)
    path.write_bytes(data)
    done = sparkling("run", tmp_path / "model", "-p", "x", "--max-tokens", 1)
    assert "only zeros" in done.stderr and "nan" not in done.stderr
