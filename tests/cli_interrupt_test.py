"""Signals: what ends a verb, how soon, and what it leaves behind.

No test asks for a time that a busy machine could miss: each verb is given work for a minute or more, and must end long
before that.
"""

import json
import os
import resource
import signal
import subprocess
import time

import pytest

from cli_support import PROMPT
from conftest import SPARKLING

SOON = 20  # seconds; none of the verbs below would end by itself in less than a minute


def start(*arguments, **options):
    return subprocess.Popen([str(SPARKLING), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)  # fmt: skip


def wait_for(condition, process):
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)


def test_ctrl_c_ends_a_one_shot_answer_with_130():
    process = start("run", "-p", PROMPT, "--ignore-eos", "--max-tokens", 60000)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=SOON) == 130
    line = process.stderr.read().decode().splitlines()[-1]
    assert "tok/s" in line and "% of" not in line  # nothing is measured after Ctrl-C


@pytest.mark.parametrize("arguments", [
    ["bench", "--in", 4000, "--out", 60000],
    ["bench", "--backend", "reference", "--in", 4000, "--out", 4],
    ["run", "--backend", "reference", "--raw", "-f", "LONG"],
    ["run", "--backend", "reference", "--json", "-f", "LONG"],
    ["logits", "--backend", "reference", "--tokens", "@IDS", "-o", "out.npy"],
    ["compare", "--tokens", "@IDS"],
    ["doctor", "--backend", "reference"],
])  # fmt: skip
def test_ctrl_c_inside_a_long_step(tmp_path, arguments):
    """The reference back end needs seconds for a step of a prompt: the step itself must look."""
    (tmp_path / "LONG").write_text("one two three four five. " * 400)
    (tmp_path / "IDS").write_text(",".join(str(i % 4000) for i in range(3000)))
    process = start(*arguments, cwd=tmp_path)
    time.sleep(2)
    if process.poll() is None:  # doctor may have ended
        process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        assert process.wait(timeout=SOON) == 130
        print(arguments[0], f"ended {time.monotonic() - asked:.3f} s after the signal")
    assert sorted(os.listdir(tmp_path)) == ["IDS", "LONG"]
    if "--json" in arguments:
        answer = json.loads(process.stdout.read())
        assert answer["finish_reason"] == "cancelled" and answer["tokens"] == []
        assert answer["timings"]["prefill_tok_s"] < 500  # of what was read, not of the whole prompt
    elif arguments[0] == "run":
        assert b"interrupted after 0 of " in process.stderr.read()


@pytest.mark.parametrize("ending, status", [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGHUP, -1)])
def test_no_half_file_is_left(tmp_path, ending, status):
    (tmp_path / "ids").write_text(",".join(str(i % 4000) for i in range(60000)))
    process = start("logits", "--tokens", f"@{tmp_path}/ids", "-o", tmp_path / "l.npy")
    wait_for(lambda: (tmp_path / "l.npy.part").exists(), process)
    process.send_signal(ending)
    assert process.wait(timeout=SOON) == status
    assert os.listdir(tmp_path) == ["ids"]


def test_a_limit_of_file_size_is_an_error_with_a_message(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

    process = start("logits", "--tokens", ",".join(["1"] * 50), "-o", tmp_path / "l.npy", preexec_fn=limit)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and b"File too large" in said and b"l.npy" in said
    assert os.listdir(tmp_path) == []
    with open(tmp_path / "text", "wb") as out:
        done = subprocess.run([str(SPARKLING), "tokenize", "--text", "a " * 30000], stdout=out, stderr=subprocess.PIPE,
                              preexec_fn=limit, check=False)  # fmt: skip
    assert done.returncode == 1 and b"File too large" in done.stderr


def test_a_signal_at_any_moment_of_the_start_ends_it():
    """Before the program is even loaded the system ends it (-2); later it says 130. It never goes on."""
    for milliseconds in range(0, 60, 3):
        process = start("run", "-p", PROMPT, "--ignore-eos", "--max-tokens", 60000)
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SOON)
        assert process.returncode in (130, -signal.SIGINT)
