"""What all Python tests share: where the program is and how to run it.

SPARKLING names the executable (default build/sparkling); a missing one is a failure, never a skip. A test may skip only
for a missing GPU or instruction set (tools/check_skips.py), which is checked here too for runs by hand.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPARKLING = pathlib.Path(os.environ.get("SPARKLING", ROOT / "build" / "sparkling")).resolve()

sys.path.insert(0, str(ROOT / "tools"))
import check_skips  # noqa: E402  (needs the path above)
import random_checkpoint  # noqa: E402

# A signal that is ignored stays so in every program that is started: SIGHUP under nohup, SIGINT in a shell's background
# job. Tests send these and expect what they do by default. A handler that does nothing keeps pytest itself as it was, and
# the system puts the default in its place in each new program.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, lambda *_: None)


def check_wording(done):
    """A message about bad input or wrong usage says what was expected and what was found, each once."""
    said = done.stderr
    assert ": :" not in said, said[-4000:]
    if done.returncode in (1, 2) and re.search(r"\bexpected\b", said):
        assert "found" in said, said[-4000:]


@pytest.fixture(scope="session")
def sparkling():
    """Runs the program: sparkling("tokenize", "--text", "a") gives the finished process, text in and out.

    `status` is the exit status that must come back (None: any); `input` defaults to nothing at all.
    """
    assert SPARKLING.is_file(), f"{SPARKLING} is not built; `make build` does that"

    def run(*arguments, status=0, timeout=600, input="", **options):
        done = subprocess.run([str(SPARKLING), *map(str, arguments)], input=input, text=True, encoding="utf-8",
                              capture_output=True, timeout=timeout, check=False, **options)
        if status is not None:
            assert done.returncode == status, (
                f"{done.args} exited {done.returncode}, expected {status}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        check_wording(done)
        return done

    return run


@pytest.fixture
def ask(sparkling):
    """The JSON object of one answer of the embedded model."""

    def run(*arguments, **options):
        return json.loads(sparkling("run", "--json", *arguments, **options).stdout)

    return run


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A small folder without tokenizer: verbs that take ids work, `run` says what is missing. Not to be changed."""
    folder = tmp_path_factory.mktemp("cli") / "micro"
    random_checkpoint.make(folder, "fp4", "micro", 5, None)
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = call.excinfo.value.msg if call.excinfo else ""
        if not str(reason).startswith(check_skips.REASONS):
            report.outcome = "failed"
            report.longrepr = f"skipped with {reason!r}; a reason must start with one of {check_skips.REASONS}"
    return report


def run_tool(tool, root):
    """Exit status and output of a checker of tools/ over a source tree."""
    done = subprocess.run([sys.executable, ROOT / "tools" / tool, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def write_source(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
