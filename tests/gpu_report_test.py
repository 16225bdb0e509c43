"""tools/gpu_report.sh where there is no GPU: every step runs, fails by itself, and is named at the end."""

import pathlib
import re
import subprocess

import pytest

from cli_support import environment

ROOT = pathlib.Path(__file__).resolve().parent.parent


def report(folder, steps, **extra):
    if pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("no GPU is what this is about, and here is one")
    done = subprocess.run([ROOT / "tools/gpu_report.sh", folder], cwd=folder.parent, capture_output=True, text=True,
                          env={**environment(), "STEPS": steps, **extra}, timeout=300)  # fmt: skip
    return done, (folder / "report.txt").read_text()


def test_every_step_runs_and_the_failed_ones_are_named(tmp_path):
    done, text = report(tmp_path / "out", "warm-cold compare-nano same-text bench-nano")
    names = ["warm-cold", "compare-nano", "same-text", "bench-nano"]
    assert done.returncode == 1, text
    assert re.findall(r"^=== ([\w-]+): exit \d+", text, re.M) == names, text
    assert text.count("exit 3") + text.count("exit 1") == 4, text
    assert text.count("back end cuda: expected") >= 4, text
    assert f"failed: {' '.join(names)}\nnot run: none\n" in text
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["bench.txt", "compare.txt", "kernels.txt", "report.txt", "text.txt"]


def test_what_does_not_fit_in_the_time_is_named(tmp_path):
    done, text = report(tmp_path / "out", "machine bench-nano verbs", SECONDS_IN_ALL="5")
    assert done.returncode == 1
    assert "failed: none\nnot run: machine bench-nano verbs\n" in text
