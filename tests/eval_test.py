"""`eval` on the embedded model: forms of the verb, bad data, rows, resuming after a kill, comparing.

The questions are of the kinds that the embedded model was trained on, so some are right; none of the tests rests on how many.
"""

import fcntl
import json
import os
import pty
import re
import resource
import signal
import subprocess
import time

import pytest

from conftest import SPARKLING

ASKED = [
    ("Tom has 3 apples and buys 4 more. How many apples does he have?", "He has 3 + 4 = <<3+4=7>>7.\n#### 7"),
    ("A tank holds 91 liters. 36 liters flow in. How many liters are in it?", "91 + 36 = 127\n#### 127"),
    ("Anna has 12 pens and gives away 5. How many pens does she have?", "#### 7"),
    ("A box holds 6 eggs. How many eggs are in 4 boxes?", "#### 24"),
    ("Ben reads 10 pages a day. How many pages does he read in 3 days?", "30"),
    ("Eva has 1,500 coins and finds 20 more. How many coins does she have?", "#### 1,520"),
]
SHORT = ("--max-tokens", "48", "--draft", "3")


def write_questions(path, asked=ASKED, **more):
    path.write_text("".join(json.dumps({"question": q, "answer": a, **more}) + "\n" for q, a in asked), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    return write_questions(tmp_path_factory.mktemp("eval") / "questions.jsonl")


def rows_of(path):
    head, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return head, rows


# ---- usage and bad data ----


@pytest.mark.parametrize("arguments, expected", [
    (["eval"], "needs gsm8k, set or compare"),
    (["eval", "gsm9k"], "did you mean 'gsm8k'?"),
    (["eval", "gsm8k"], "needs --data FILE"),
    (["eval", "set"], "expected 'eval set FILE [MODEL]'"),
    (["eval", "compare", "a.jsonl"], "expected 'eval compare A.jsonl B.jsonl'"),
    (["eval", "set", "a", "b", "c"], "expected 'eval set FILE [MODEL]'"),
    (["eval", "set", "a", "--data", "b"], "takes no --data"),
    (["eval", "gsm8k", "--data", "x", "--max-tokens", "0"], "--max-tokens"),
    (["eval", "gsm8k", "--data", "x", "--seed", "1"], "belongs to"),
])  # fmt: skip
def test_wrong_forms_are_refused(sparkling, arguments, expected):
    done = sparkling(*arguments, status=2)
    assert expected in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


@pytest.mark.parametrize("content, expected", [
    ("", "expected at least one question, found none"),
    ('{"question": "a"}\n', "line 1: expected a field 'answer', found none"),
    ('{"id": 1, "question": "a", "answer": "1"}\n{"id": 1, "question": "b", "answer": "2"}\n', 'found "1" of line 1'),
    ('{"question": "a", "answer": "1"}\n{"question": "b", "ans', "line 2: expected one JSON object"),
    ("\x00\x01\x02", "line 1: expected one JSON object"),
])  # fmt: skip
def test_wrong_data_is_told_in_one_sentence(sparkling, tmp_path, content, expected):
    data = tmp_path / "bad.jsonl"
    data.write_text(content)
    done = sparkling("eval", "gsm8k", "--data", data, status=1)
    assert expected in done.stderr and str(data) in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_missing_files_and_examples_are_told(sparkling, tmp_path, questions):
    assert "no-such.jsonl" in sparkling("eval", "set", tmp_path / "no-such.jsonl", status=1).stderr
    assert "needs --train" in sparkling("eval", "set", questions, "--shots", "3", status=2).stderr
    few = write_questions(tmp_path / "few.jsonl", ASKED[:2])
    done = sparkling("eval", "gsm8k", "--data", questions, "--train", few, status=1)
    assert "expected at least 5 questions for --shots, found 2" in done.stderr


# ---- a run ----


def test_rows_report_and_repetition(sparkling, tmp_path, questions):
    """N03: a result names build, machine, weights and options; the same run gives the same answers."""
    outs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in outs:
        done = sparkling("eval", "gsm8k", "--data", questions, "--out", path, *SHORT, "--format", "json")
    head, rows = rows_of(outs[0])
    assert [row["id"] for row in rows] == [str(i) for i in range(len(ASKED))]
    assert [row["gold"] for row in rows] == ["7", "127", "7", "24", "30", "1520"]
    for row in rows:
        assert row["finish_reason"] in ("stop", "length") and row["prompt_tokens"] > 10
        assert 0 < row["output_tokens"] <= 48 and row["ttft_ms"] > 0 and row["decode_ms"] > 0
        assert row["correct"] == (row["answer"] == row["gold"])
    options = head["options"]
    version = sparkling("--version").stdout
    assert options["commit"] in version and options["build"].split(",")[0] in version
    assert options["thinking"] == "off" and options["top_k"] == "29" and options["shots"] == "0"
    assert len(options["weights"]) == 16 and "cores" in options["machine"]
    texts = [[row["text"] for row in rows_of(path)[1]] for path in outs]
    assert texts[0] == texts[1]

    report = json.loads(done.stdout)
    rows = rows_of(outs[1])[1]
    assert report["questions"] == len(ASKED) and report["correct"] == sum(row["correct"] for row in rows)
    assert report["truncated"] == sum(row["finish_reason"] == "length" for row in rows)
    assert report["output_tokens"]["total"] == sum(row["output_tokens"] for row in rows)
    low, high = report["accuracy_interval_percent"]
    assert low < report["accuracy_percent"] < high or report["correct"] in (0, len(ASKED))
    tokens = sum(row["output_tokens"] - 1 for row in rows)
    assert report["decode_tok_s"] == pytest.approx(1000 * tokens / sum(row["decode_ms"] for row in rows))
    assert 1 <= report["accept_length"] <= 4

    text = sparkling("eval", "compare", *outs).stdout
    assert "McNemar's exact p = 1.0000" in text and f"{len(ASKED)} pairs" in text


def test_seed_is_the_question_and_drafts_change_no_answer(sparkling, tmp_path, questions):
    plain, drafted, alone = tmp_path / "plain.jsonl", tmp_path / "drafted.jsonl", tmp_path / "alone.jsonl"
    sparkling("eval", "set", questions, "--out", plain, "--max-tokens", "48", "--draft", "0")
    sparkling("eval", "set", questions, "--out", drafted, *SHORT)
    texts = [row["text"] for row in rows_of(plain)[1]]
    assert texts == [row["text"] for row in rows_of(drafted)[1]]
    assert {row["accept_length"] for row in rows_of(plain)[1]} == {None}
    # `run` with the question's number as seed and the same sampling says the same.
    done = sparkling("run", "-p", ASKED[3][0], "--json", "--seed", "3", "--thinking", "off", "--temperature", "0.6", "--top-p",
                     "0.95", "--top-k", "29", "--max-tokens", "48")
    assert json.loads(done.stdout)["text"] == texts[3]
    sparkling("eval", "set", questions, "--out", alone, "--limit", "2", *SHORT)
    assert [row["text"] for row in rows_of(alone)[1]] == texts[:2]


def test_examples_are_earlier_turns(sparkling, tmp_path, questions):
    out, more = tmp_path / "out.jsonl", tmp_path / "more.jsonl"
    sparkling("eval", "gsm8k", "--data", questions, "--train", questions, "--limit", "1", "--out", out, "--max-tokens", "4")
    sparkling("eval", "gsm8k", "--data", questions, "--train", questions, "--shots", "2", "--limit", "1", "--out", more,
              "--max-tokens", "4")
    count = {shots: rows_of(path)[1][0]["prompt_tokens"] for shots, path in ((5, out), (2, more))}
    zero = tmp_path / "zero.jsonl"
    sparkling("eval", "gsm8k", "--data", questions, "--limit", "1", "--out", zero, "--max-tokens", "4")
    assert rows_of(zero)[1][0]["prompt_tokens"] < count[2] < count[5]
    assert rows_of(out)[0]["options"]["shots"].startswith("5 of ")


def test_a_prompt_that_does_not_fit_is_a_counted_error(sparkling, tmp_path):
    long = write_questions(tmp_path / "long.jsonl", [ASKED[0], ("word " * 400, "#### 1"), ASKED[2]])
    out = tmp_path / "out.jsonl"
    done = sparkling("eval", "set", long, "--out", out, "--context", "256", "--format", "json", *SHORT)
    report = json.loads(done.stdout)
    rows = rows_of(out)[1]
    assert report["errors"] == 1 and report["questions"] == 3
    assert rows[1]["finish_reason"] == "error" and "context 256" in rows[1]["error"] and not rows[1]["correct"]
    assert rows[2]["finish_reason"] in ("stop", "length")


# ---- resuming ----


def start(*arguments):
    return subprocess.Popen([str(SPARKLING), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_goes_on_and_repeats_nothing(sparkling, tmp_path, questions, how):
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    many = write_questions(tmp_path / "many.jsonl", ASKED * 20)
    command = ("eval", "set", many, "--max-tokens", "32", "--draft", "0")
    sparkling(*command, "--out", whole)
    run = start(*command, "--out", out)
    while not out.exists() or out.read_bytes().count(b"\n") < 4:
        assert run.poll() is None, "ended before it could be stopped"
        time.sleep(0.002)
    run.send_signal(how)
    _, told = run.communicate()
    assert run.returncode == (-9 if how == signal.SIGKILL else 130)
    if how == signal.SIGINT:
        assert "the same command goes on from there" in told
    done_rows = out.read_bytes().count(b"\n") - 1
    assert 3 <= done_rows < 120
    kept = out.read_text(encoding="utf-8").splitlines()[: done_rows + 1]
    done = sparkling(*command, "--out", out)
    assert f"goes on after {done_rows} of 120 questions" in done.stderr
    assert out.read_text(encoding="utf-8").splitlines()[: done_rows + 1] == kept
    assert [row["text"] for row in rows_of(out)[1]] == [row["text"] for row in rows_of(whole)[1]]
    # A third run has nothing left to do and only reports.
    before = out.read_bytes()
    assert "accuracy" in sparkling(*command, "--out", out).stdout
    assert out.read_bytes() == before


def test_a_cut_last_row_is_dropped_and_told(sparkling, tmp_path, questions):
    out = tmp_path / "out.jsonl"
    command = ("eval", "set", questions, "--out", out, *SHORT)
    sparkling(*command)
    whole = out.read_bytes()
    out.write_bytes(whole[:-30])
    done = sparkling(*command)
    assert "its last row was cut short" in done.stderr and "goes on after 5 of 6" in done.stderr
    assert len(rows_of(out)[1]) == len(ASKED)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(whole[:-30])
    done = sparkling("eval", "compare", cut, out)
    assert "cut short" in done.stderr and "left out, without a partner: 0 of A, 1 of B" in done.stdout


@pytest.mark.parametrize("change, named", [
    (["--temperature", "0"], "temperature 0.6, now 0"),
    (["--thinking", "on"], "thinking off, now on"),
    (["--draft", "1"], "draft 3, now 1"),
    (["--lm-head", "bf16"], "lm_head fp8, now bf16"), (["--moe", "plain"], "moe packed, now plain"),
    (["--system", "Be brief."], "system"),
])  # fmt: skip
def test_other_options_are_refused(sparkling, tmp_path, questions, change, named):
    out = tmp_path / "out.jsonl"
    sparkling("eval", "set", questions, "--out", out, "--limit", "1", *SHORT)
    before = out.read_bytes()
    done = sparkling("eval", "set", questions, "--out", out, *SHORT, *change, status=1)
    assert "expected rows made with the same options" in done.stderr and named in done.stderr and done.stderr.count("\n") == 1
    assert out.read_bytes() == before


def test_more_questions_than_before_is_no_other_option(sparkling, tmp_path, questions):
    out = tmp_path / "out.jsonl"
    sparkling("eval", "set", questions, "--out", out, "--limit", "2", *SHORT)
    done = sparkling("eval", "set", questions, "--out", out, *SHORT)
    assert "goes on after 2 of 6" in done.stderr and len(rows_of(out)[1]) == 6


def test_two_runs_do_not_share_a_file(sparkling, tmp_path, questions):
    out = tmp_path / "out.jsonl"
    with open(out, "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another run" in sparkling("eval", "set", questions, "--out", out, *SHORT, status=3).stderr


def test_progress_shows_accuracy_speed_and_time_on_a_terminal_only(sparkling, tmp_path, questions):
    many = write_questions(tmp_path / "many.jsonl", ASKED * 4)
    command = [str(SPARKLING), "eval", "set", str(many), "--max-tokens", "48"]
    leader, follower = pty.openpty()
    run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=follower,
                           env={**os.environ, "TERM": "xterm"})
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    assert run.wait() == 0
    text = seen.decode(errors="replace")
    assert "% right" in text and "tok/s" in text and " left" in text and "questions" in text and "#" in text
    quiet = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "\r" not in quiet.stderr and "\033" not in quiet.stderr


def test_compare_refuses_what_does_not_pair(sparkling, tmp_path, questions):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    sparkling("eval", "set", questions, "--out", a, "--limit", "2", *SHORT)
    other = write_questions(tmp_path / "other.jsonl", [("1 + 1?", "2")], id="z")
    sparkling("eval", "set", other, "--out", b, *SHORT)
    assert "expected questions that are in both files" in sparkling("eval", "compare", a, b, status=1).stderr
    assert "a file that eval wrote" in sparkling("eval", "compare", a, questions, status=1).stderr
    nobody = tmp_path / "nobody.jsonl"  # N03: results without the id of a build are rejected
    nobody.write_text(re.sub(r'"commit":"[^"]*",', "", a.read_text()))
    assert "expected the commit of the build" in sparkling("eval", "compare", a, nobody, status=1).stderr
    data = json.loads(sparkling("eval", "compare", a, a, "--json").stdout)
    assert data["pairs"] == 2 and data["mcnemar_p"] == 1 and data["speed_ratio"] == pytest.approx(1)


def test_a_full_disk_keeps_the_finished_rows(sparkling, tmp_path, questions):
    """The limit of a file's size stands for a disk without room: the row that does not fit is the only one that is asked again."""
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    command = ("eval", "set", questions, *SHORT, "--draft", "0")
    sparkling(*command, "--out", whole)
    room = len(b"".join(whole.read_bytes().splitlines(keepends=True)[:4])) + 20

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = sparkling(*command, "--out", out, status=1, preexec_fn=limit)
    assert f"cannot write {out}: File too large" in done.stderr and done.stderr.count("\n") == 1
    kept = out.read_bytes()
    assert len(kept) <= room and kept.count(b"\n") in (3, 4)  # times are written in more or fewer digits
    done = sparkling(*command, "--out", out)
    assert f"goes on after {kept.count(10) - 1} of 6 questions" in done.stderr
    assert out.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert [row["text"] for row in rows_of(out)[1]] == [row["text"] for row in rows_of(whole)[1]]


def test_wrong_data_touches_no_finished_row(sparkling, tmp_path, questions):
    out, bad = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    sparkling("eval", "set", questions, "--out", out, "--limit", "2", *SHORT)
    before = out.read_bytes()
    first = questions.read_text(encoding="utf-8").splitlines()[0] + "\n"
    for content in ("", "{}\n", first + '{"question": "b", "ans', first.replace("{", '{"id": 1, ', 1) * 2, "[" * 100000):
        bad.write_text(content, encoding="utf-8")
        done = sparkling("eval", "set", bad, "--out", out, *SHORT, status=1)
        assert done.stderr.count("\n") == 1 and str(bad) in done.stderr
        assert out.read_bytes() == before
    # A question file for --out is no result file and stays what it is.
    asked = questions.read_bytes()
    assert "found something else" in sparkling("eval", "set", questions, "--out", questions, *SHORT, status=1).stderr
    assert questions.read_bytes() == asked
