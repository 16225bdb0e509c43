"""Signals: what ends a verb, how soon, and what it leaves behind."""

import signal
import subprocess
import time

from cli_support import PROMPT
from conftest import SPARKLING


def start(*arguments, **options):
    return subprocess.Popen([str(SPARKLING), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            **options)  # fmt: skip


def test_ctrl_c_ends_a_one_shot_answer_with_130():
    process = start("run", "-p", PROMPT, "--ignore-eos", "--max-tokens", 20000, stdin=subprocess.DEVNULL)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert b"tok/s" in process.stderr.read()


def test_ctrl_c_ends_bench_with_130_and_leaves_no_half_file(tmp_path):
    process = start("bench", "--in", 64, "--out", 20000, stdin=subprocess.DEVNULL)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
