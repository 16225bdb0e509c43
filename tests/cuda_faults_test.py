"""How the cuda back end fails, without a GPU: the real program on the driver of tests/fake_gpu.

That driver computes what a GPU would, on the host, and fails when told to (FAKE_GPU). So each test has both: the right answer of
the same program on the CPU, and what is left of it when the device fails. One sentence, exit status 3, nothing wrong on stdout, no hang.
"""

import json
import os
import re
import shutil
import threading

import pytest
import random_checkpoint
from conftest import ROOT, SPARKLING
from server_support import Server

FAKE = SPARKLING.parent / "fake_gpu"
KERNELS = SPARKLING.parent / "kernels"  # kept from run to run: their key holds all that decides what they are
EXACT = ("--precision", "exact")
TOKENS = 6
ANSWER = ("-p", "hello", "--max-tokens", TOKENS, "--temperature", 0, "--ignore-eos", *EXACT)


def gpu(orders="", **more):
    """The environment of a program that finds the fake driver, which follows these orders."""
    assert (FAKE / "libcuda.so.1").is_file(), f"{FAKE} has no libcuda.so.1; `make test` builds it"
    return {"LD_LIBRARY_PATH": str(FAKE), "SPARKLING_KERNEL_CACHE": str(KERNELS), "FAKE_GPU": orders, **more}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Random weights of every layer kind, with ling-nano's words."""
    folder = tmp_path_factory.mktemp("words")
    config = {**random_checkpoint.CONFIGS["micro"], "vocab_size": 4096}
    random_checkpoint.build(config, "fp4", 7).save(folder, 2)
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(ROOT / "models/ling-nano" / name, folder)
    return folder


@pytest.fixture(scope="module")
def on_gpu(sparkling):
    def run(orders, *arguments, status=0, **variables):
        return sparkling(*arguments, status=status, env={**os.environ, **gpu(orders), **variables})

    return run


@pytest.fixture(scope="module")
def truth(sparkling, model):
    """What the CPU says."""
    return sparkling("run", model, "--backend", "cpu", *ANSWER).stdout


def test_kernels_alone_run_on_a_gpu(on_gpu, model):
    rows = {}
    for name in ("router", "moe"):
        for row in json.loads(on_gpu("", "bench", model, "--backend", "cuda", "--kernel", name, "--format", "json").stdout)["rows"]:
            rows.setdefault(row["name"], []).append(row)
    for name, of_name in rows.items():
        assert [row["rows"] for row in of_name] == [1, 2, 4, 8], name
        # Waited for together, the same inputs each time: whole periods of 64 calls or more.
        assert all(row["calls"] % row["copies"] == 0 and row["calls"] >= 4 * 64 for row in of_name), name
        assert all(row["microseconds"] > 0 and row["bytes"] > 0 for row in of_name), name


def counted(on_gpu, path, *arguments, orders="", **variables):
    """What a run that nothing disturbs asks of the driver, and its stdout."""
    done = on_gpu(f"count={path},{orders}".rstrip(","), *arguments, **variables)
    return json.loads(path.read_text(encoding="utf-8")), done.stdout


def one_sentence(done):
    lines = [line for line in done.stderr.splitlines() if line.startswith("sparkling: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.parametrize("draft, graphs", [(0, "off"), (0, "on"), (3, "on")])
def test_the_whole_program_on_a_driver_says_what_the_cpu_says(on_gpu, sparkling, model, tmp_path, truth, draft, graphs):
    """The driver's calls in their right order: contexts of threads, pinned memory, places inside of what was allocated; all given back."""
    did, said = counted(on_gpu, tmp_path / "count", "run", model, "--backend", "cuda", "--draft", draft, *ANSWER, SPARKLING_GRAPHS=graphs)
    assert said == truth
    assert did["launches"] > 100 and did["reads"] > 100
    assert (did["graphs"] > 0) == (graphs == "on"), "what comes again is a graph"
    assert did["still"] == 0, "memory of the device was not given back"


REFUSED = [
    ("devices=0", r"expected an NVIDIA GPU, found a driver \(libcuda.so.1\) without one; use --backend cpu"),
    ("compute=75", r"expected a GPU of compute capability 8.0 or newer, found Fake GPU with 7.5"),
    ("init=803", r"the NVIDIA driver does not start: system has unsupported display driver .* \(803\)"),
    ("memory=8", r"memory limit: expected at most \d+ bytes, found a need of \d+ \(weights .* caches .* limit 7.6 MiB\)"),
    ("taken=508", r"memory limit: expected at most 1 bytes, found a need of \d+ \(weights .*"),
    ("pinned=1", r"cuMemAllocHost failed: CUDA_ERROR_OUT_OF_MEMORY \(2\): out of memory"),
    ("pinned=3", r"cuMemAllocHost failed: CUDA_ERROR_OUT_OF_MEMORY \(2\): out of memory"),  # a reader's
    ("read=1:999", r"CUDA_ERROR_UNKNOWN \(999\): unknown error; the GPU cannot be used any further"),
    ("read=70:46", r"CUDA_ERROR_DEVICE_UNAVAILABLE \(46\)"),
    ("launch=1:700", r"CUDA_ERROR_ILLEGAL_ADDRESS \(700\): an illegal memory access was encountered"),
]


@pytest.mark.parametrize("orders, words", REFUSED)
def test_a_start_that_fails_is_one_sentence(on_gpu, model, orders, words):
    done = on_gpu(orders, "run", model, "--backend", "cuda", *ANSWER, status=3)
    assert re.search(words, one_sentence(done)), done.stderr
    assert done.stdout == ""


def test_what_others_hold_of_the_gpu_is_counted_before_anything_is_taken(on_gpu, model, tmp_path, truth):
    refused = on_gpu("memory=8", "run", model, "--backend", "cuda", *ANSWER, status=3)
    need = int(re.search(r"a need of (\d+)", refused.stderr)[1])
    total = 64
    spare = total / 50
    enough = total - int(need / 2**20 + spare) - 1
    count = tmp_path / "count"
    did, said = counted(on_gpu, count, "run", model, "--backend", "cuda", *ANSWER, orders=f"memory={total},taken={enough}")
    assert said == truth and did["allocations"] > 0
    done = on_gpu(f"count={count},memory={total},taken={enough + 1}", "run", model, "--backend", "cuda", *ANSWER, status=3)
    assert "memory limit: expected at most" in one_sentence(done) and "weights 1." in done.stderr
    assert re.search(r"of the GPU's 0.1 GB|of the GPU's 6\d", done.stderr), done.stderr
    assert json.loads(count.read_text(encoding="utf-8"))["allocations"] == 0


def test_no_memory_at_any_allocation(on_gpu, model, tmp_path, truth):
    command = ("run", model, "--backend", "cuda", "--draft", 3, *ANSWER)
    did, _ = counted(on_gpu, tmp_path / "count", *command)
    for n in range(1, did["allocations"] + 1):
        done = on_gpu(f"alloc={n}", *command, status=3)
        assert re.search(r"out of device memory: .+ needs \d+ bytes, \d+ are free on Fake GPU", one_sentence(done))
        assert truth.startswith(done.stdout.rstrip("\n"))


@pytest.mark.parametrize("draft", [0, 3])
def test_a_sticky_error_at_any_launch_ends_the_text_and_never_changes_it(on_gpu, model, tmp_path, truth, draft):
    command = ("run", model, "--backend", "cuda", "--draft", draft, *ANSWER)
    did, _ = counted(on_gpu, tmp_path / "count", *command)
    texts = set()
    launches = did["launches"]
    for n, code in zip(range(launches, 0, -(launches // 7)), [700, 719] * 4):
        done = on_gpu(f"launch={n}:{code}", *command, status=3)
        assert f"({code}): " in one_sentence(done), done.stderr
        text = done.stdout.rstrip("\n")
        assert truth.startswith(text), n
        texts.add(text)
    assert len(texts) > 2, "some failed at start, some in the middle of the answer, some behind it"


def test_every_verb_ends(on_gpu, model, tmp_path):
    """No rows, no table, no report behind an error; no file that looks whole."""
    out = tmp_path / "logits.npy"
    for arguments in (("logits", model, "--tokens", "1,2,3,4", "-o", out), ("bench", model, "--in", 8, "--out", 4, "--repeat", 1),
                      ("doctor", model)):  # fmt: skip
        done = on_gpu("launch=40:719", *arguments, "--backend", "cuda", *EXACT, status=3)
        assert "CUDA_ERROR_LAUNCH_FAILED (719)" in one_sentence(done)
        assert "tok/s" not in done.stdout
    assert not out.exists()


def chat(**more):
    return {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 60, "ignore_eos": True,
            "chat_template_kwargs": {"enable_thinking": False}, **more}  # fmt: skip


SERVE = ("--backend", "cuda", "--draft", 0, *EXACT)


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    """(launches of an answer, that answer) of a server that nothing disturbs.

    How a prompt is cut depends on the clock: that of another server may take a third of these launches, or next to none.
    """
    folder = tmp_path_factory.mktemp("served")
    ready = folder / "ready"
    with Server(*SERVE, model=model, env=gpu(f"count={folder / 'count'},after={ready}")) as server:
        ready.touch()
        answer = server.ask(**chat())["choices"][0]["message"]["content"]
        assert server.stop() == 0
    return json.loads((folder / "count").read_text(encoding="utf-8"))["launches"], answer


@pytest.mark.parametrize("share", [0.01, 0.5])
@pytest.mark.parametrize("stream", [False, True])
def test_a_server_whose_device_is_lost_tells_its_clients_and_ends(model, served, tmp_path, share, stream):
    """In the prompt and in the answer."""
    launches, text = served
    ready = tmp_path / "ready"
    with Server(*SERVE, model=model, env=gpu(f"launch={int(launches * share)}:700,after={ready}")) as server:
        ready.touch()
        status, _, got = server.post("/v1/chat/completions", chat(stream=stream))
        if not stream or status != 200:  # a stream that fails before its first word has a status
            assert status == 500 and "CUDA_ERROR_ILLEGAL_ADDRESS" in got["error"]["message"], got
        else:
            events = [json.loads(line[6:]) for line in got.splitlines() if line.startswith("data: {")]
            assert "CUDA_ERROR_ILLEGAL_ADDRESS" in events[-1]["error"]["message"], got
            said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1] if e["choices"])
            assert text.startswith(said) and said != text
        assert server.process.wait(60) == 3
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in server.log_text().splitlines()[-1]


def test_a_server_whose_device_is_lost_while_loading_ends(model):
    with Server(*SERVE, model=model, wait=False, env=gpu("read=5:999")) as server:
        assert server.process.wait(60) == 3
        assert server.process.stdout.read() == b""
        assert "CUDA_ERROR_UNKNOWN (999)" in server.log_text()


def test_who_waits_in_line_behind_a_lost_device_is_told(model, served, tmp_path):
    ready = tmp_path / "ready"
    with Server(*SERVE, model=model, env=gpu(f"launch={served[0] // 2}:719,after={ready}")) as server:
        ready.touch()
        got = []
        first = threading.Thread(target=lambda: got.append(server.post("/v1/chat/completions", chat())))
        first.start()
        while server.get("/health")[2]["running"] == 0:
            pass
        got.append(server.post("/v1/chat/completions", chat()))
        first.join()
        assert [status for status, _, _ in got] == [500, 500], got
        messages = sorted(answer["error"]["message"] for _, _, answer in got)
        assert "CUDA_ERROR_LAUNCH_FAILED" in messages[0] and messages[1] == "the server failed while this request waited"
        assert server.process.wait(60) == 3


def test_no_kernel_is_loaded_after_the_start(model, tmp_path):
    """Nor is memory taken: by prompts of all lengths, with drafts."""
    did = []
    for lengths in ((), (1, 7, 65)):
        path = tmp_path / f"count{len(lengths)}"
        with Server("--backend", "cuda", "--draft", 3, *EXACT, model=model, env=gpu(f"count={path}")) as server:
            for length in lengths:
                server.ask("/v1/completions", prompt=list(range(100, 100 + length)), max_tokens=4, temperature=0, ignore_eos=True)
            assert server.stop() == 0
        did.append(json.loads(path.read_text(encoding="utf-8")))
    assert did[0]["modules"] == did[1]["modules"] > 20
    assert did[0]["allocations"] == did[1]["allocations"]
    assert did[0]["launches"] < did[1]["launches"]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_phases_of_a_start(on_gpu, model, backend):
    """A line each on stderr with -v, before the plan, on every back end."""
    said = on_gpu("", "run", model, "--backend", backend, "-v", *ANSWER).stderr
    lines = [r"tensors: \d+\.\d\d s", r"weights: 1\.\d MiB in \d+\.\d\d s, \d+\.\d\d GB/s", r"state: \d+\.\d\d s",
             r"first steps: \d+\.\d\d s", r"back end: .*"]  # fmt: skip
    assert re.search("^" + "\n".join(lines) + "$", said, re.M), said
    assert "weights: 1" not in on_gpu("", "run", model, "--backend", backend, *ANSWER).stderr
