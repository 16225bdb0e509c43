"""`logits` and `tokenize`: files and token ids in and out."""

import json

import numpy as np
import pytest


# ---- logits and its files ----


def logits(sparkling, checkpoint, tmp_path, *more, tokens="1,2,3,4,5", status=0):
    return sparkling("logits", checkpoint, "--tokens", tokens, "-o", tmp_path / "l.npy", *more, status=status)


def test_logits_writes_float32_rows(sparkling, checkpoint, tmp_path):
    logits(sparkling, checkpoint, tmp_path, "--routes-out", tmp_path / "r.npy")
    values, routes = np.load(tmp_path / "l.npy"), np.load(tmp_path / "r.npy")
    assert values.dtype == np.float32 and values.shape == (5, 96) and np.isfinite(values).all()
    assert routes.dtype == np.int32 and routes.shape == (5, 4, 2)
    assert (routes[:, :3] >= 0).all() and (routes < 8).all()
    logits(sparkling, checkpoint, tmp_path, "--mtp")
    assert np.load(tmp_path / "l.npy").shape == (4, 96)
    logits(sparkling, checkpoint, tmp_path, "--routes-in", tmp_path / "r.npy")
    assert np.abs(np.load(tmp_path / "l.npy") - values).max() < 1e-5
    assert not list(tmp_path.glob("*.part"))


def test_ids_from_a_file(sparkling, checkpoint, tmp_path):
    (tmp_path / "ids").write_text("1, 2\n3 4,5\n")
    logits(sparkling, checkpoint, tmp_path, tokens=f"@{tmp_path}/ids")
    assert np.load(tmp_path / "l.npy").shape == (5, 96)


def test_ids_outside_the_vocabulary_name_their_position(sparkling, checkpoint, tmp_path):
    done = logits(sparkling, checkpoint, tmp_path, tokens="1,96,3", status=1)
    assert "96 at position 1" in done.stderr and "0 to 95" in done.stderr
    assert "-1 at position 2" in logits(sparkling, checkpoint, tmp_path, tokens="1,2,-1", status=1).stderr
    assert not (tmp_path / "l.npy").exists()


def npy(path, array):
    np.save(path, array)
    return path


@pytest.mark.parametrize("make, expected", [
    (lambda p: npy(p, np.zeros((5, 4, 2), np.float32)), "int32"),
    (lambda p: npy(p, np.zeros((5, 4, 2), np.int64)), "int32"),
    (lambda p: npy(p, np.zeros((5, 4, 3), np.int32)), "expected shape (5, 4, 2)"),
    (lambda p: npy(p, np.zeros((4, 4, 2), np.int32)), "found (4, 4, 2)"),
    (lambda p: npy(p, np.asfortranarray(np.zeros((5, 4, 2), np.int32))), "C order"),
    (lambda p: npy(p, np.full((5, 4, 2), 8, np.int32)), "found 8"),
    (lambda p: npy(p, np.full((5, 4, 2), -2, np.int32)), "found -2"),
    (lambda p: npy(p, np.full((5, 4, 2), 3, np.int32)), "row 0, layer column 0: expected different experts, found 3 twice"),
    (lambda p: p.write_bytes(b""), "not a .npy file"),
    (lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{'descr'"), "header of 65535 bytes"),
    (lambda p: p.write_bytes(npy(p, np.zeros((5, 4, 2), np.int32)).read_bytes()[:-4]), "does not fit"),
    (lambda p: p.write_bytes(npy(p, np.zeros((5, 4, 2), np.int32)).read_bytes().replace(
        b"(5, 4, 2), }        ", b"(99999999999, 4, 2),")), "does not fit"),
    (lambda p: None, "cannot open"),
])  # fmt: skip
def test_bad_route_files_are_refused(sparkling, checkpoint, tmp_path, make, expected):
    path = tmp_path / "routes.npy"
    make(path)
    done = logits(sparkling, checkpoint, tmp_path, "--routes-in", path, status=1)
    assert expected in done.stderr and "routes.npy" in done.stderr


def test_two_outputs_need_two_files(sparkling, checkpoint, tmp_path):
    given = ["logits", checkpoint, "--tokens", "1,2", "-o"]
    (tmp_path / "link").symlink_to(tmp_path)
    for first, second in [("x.npy", "x.npy"), ("x.npy", "./x.npy"), ("x.npy", "link/x.npy"), ("x.npy", "x.npy.part"),
                          ("x.npy.part", "x.npy")]:  # fmt: skip
        done = sparkling(*given, first, "--routes-out", second, status=2, cwd=tmp_path)
        assert "expected two files for -o and --routes-out" in done.stderr and first in done.stderr
    sparkling(*given, "/dev/null", "--routes-out", "/dev/null", cwd=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link"]


def test_an_output_that_cannot_be_written(sparkling, checkpoint):
    done = sparkling("logits", checkpoint, "--tokens", "1", "-o", "/no/such/folder/x.npy", status=1)
    assert "/no/such/folder/x.npy" in done.stderr


# ---- tokenize ----


def test_tokenize_and_back(sparkling, tmp_path):
    text = "Zwei \u00c4pfel, \u4e2d\u6587 and \U0001f600\n  done\n"
    ids = sparkling("tokenize", "--text", text).stdout.split()
    assert sparkling("tokenize", "--decode", ",".join(ids)).stdout == text
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    assert sparkling("tokenize", "-f", tmp_path / "t.txt").stdout.split() == ids
    assert sparkling("tokenize", input=text).stdout.split() == ids


def test_tokenize_jsonl_and_its_errors(sparkling, tmp_path):
    lines = ["one", "", "tw\u00f6 \u2028 lines\n"]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [json.loads(row) for row in sparkling("tokenize", "--jsonl", file).stdout.splitlines()]
    assert rows[1] == []
    for line, row in zip(lines, rows, strict=True):
        assert row == [int(i) for i in sparkling("tokenize", "--text", line).stdout.split()]
    file.write_text('"good"\n{"not": "a string"}\n')
    done = sparkling("tokenize", "--jsonl", file, status=1)
    assert "a.jsonl" in done.stderr and "line 2" in done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_tokenize_special(sparkling):
    assert len(sparkling("tokenize", "--special", "--text", "<|role_end|>").stdout.split()) == 1
    assert len(sparkling("tokenize", "--text", "<|role_end|>").stdout.split()) > 1


def test_tokenize_count(sparkling, tmp_path):
    (tmp_path / "a").write_text("the cat the dog")
    (tmp_path / "b").write_text("the end")
    rows = [tuple(map(int, row.split()))
            for row in sparkling("tokenize", "--count", tmp_path / "a", tmp_path / "b").stdout.splitlines()]  # fmt: skip
    total = [int(i) for name in "ab" for i in sparkling("tokenize", "-f", tmp_path / name).stdout.split()]
    assert dict(rows) == {i: total.count(i) for i in total}
    assert rows == sorted(rows, key=lambda row: (-row[1], row[0]))


def test_tokenize_decode_refuses_unknown_ids(sparkling):
    assert "position 1" in sparkling("tokenize", "--decode", "1,99999999", status=1).stderr
