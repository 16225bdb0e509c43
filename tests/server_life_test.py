"""A server from start to end, and that nothing of an answer stays behind for the next."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from server_support import LONG, SLOW, WEATHER, Server, message_of, read_until, user


@pytest.fixture(scope="module")
def server():
    with Server("--queue", "4", "--keep-alive", "0.5", "--stall", "8") as running:
        yield running


# ---- begin and end ----


def test_loading_is_said(tmp_path):
    """The server listens before the model is there: /health is 503 until then."""
    from conftest import ROOT
    import shutil
    folder = tmp_path / "model"
    shutil.copytree(os.environ.get("SPARKLING_MODEL", ROOT / "models" / "ling-nano"), folder)
    port = free_port()
    server = Server("--port", port, wait=False, model=folder)
    server.port = port
    states, shares = [], []
    with server:
        while not states or states[-1] != 200:
            try:
                status, headers, answer = server.get("/health")
            except OSError:
                assert server.process.poll() is None, server.log_text()
                continue
            states.append(status)
            if status == 503:
                assert answer["status"] == "loading" and answer["loading_seconds"] >= 0
                shares.append(answer["progress"])
                status, headers, answer = server.post("/v1/chat/completions", {"messages": user("x")})
                if status == 503:
                    assert headers["Retry-After"] and answer["error"]["code"] == "loading"
                    assert re.search(r"\d+ percent", answer["error"]["message"])
                else:
                    states.append(200)
        server.wait_ready()
    assert states[0] == 503 and set(states) == {200, 503}
    assert shares == sorted(shares) and all(0 <= share <= 1 for share in shares)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_bad_starts(sparkling, tmp_path, server):
    busy = sparkling("serve", "--port", server.port, status=3)
    assert "Address already in use" in busy.stderr and "--port" in busy.stderr
    assert "nothing at" in sparkling("serve", tmp_path / "none", "--port", "0", status=1).stderr
    assert "not in this version" in sparkling("serve", "--parallel", "2", status=2).stderr
    assert "not in this version" in sparkling("serve", "--cache-ram", "1GiB", status=2).stderr
    assert "found both" in sparkling("serve", "--api-key", "a", "--api-key-file", "b", status=2).stderr
    assert "expected an origin" in sparkling("serve", "--cors", "*", status=2).stderr
    (tmp_path / "empty").write_text("\n")
    assert "API key" in sparkling("serve", "--api-key-file", tmp_path / "empty", status=1).stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stopping_drains(how):
    with Server(*SLOW) as server:
        sock = server.open_stream("/v1/chat/completions", {**LONG, "max_tokens": 24})
        assert b"[DONE]" not in read_until(sock, b"reasoning_content")
        idle = socket.create_connection(("127.0.0.1", server.port))
        server.process.send_signal(how)
        time.sleep(0.3)
        text = read_until(sock, b"[DONE]")
        assert b'"finish_reason":"length"' in text
        assert server.process.wait(10) == 0
        idle.close()


def test_stopping_has_a_limit_and_a_second_signal_ends_at_once():
    with Server("--drain", "0.5") as server:
        sock = server.open_stream("/v1/chat/completions", LONG)
        read_until(sock, b"reasoning_content")
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        text = b""
        while got := sock.recv(65536):
            text += got
        assert b"shutting down" in text
        assert server.process.wait(10) == 0 and time.monotonic() - start < 4
    with Server() as server:
        sock = server.open_stream("/v1/chat/completions", LONG)
        read_until(sock, b"reasoning_content")
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 130 and time.monotonic() - start < 1


def test_a_killed_server_leaves_nothing_behind(tmp_path):
    """SIGKILL in the middle of an answer: no file anywhere that it may write to, the client sees the end, the port is free at once."""
    for name in ("home", "tmp", "cache"):
        (tmp_path / name).mkdir()
    env = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with Server(env=env) as server:
        port = server.port
        sock = server.open_stream("/v1/chat/completions", {"messages": user("x"), "ignore_eos": True, "max_tokens": 60000})
        assert sock.recv(1)
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1 << 16):
                pass
        sock.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with Server("--port", port, env=env) as again:
        assert again.port == port and again.chat(max_tokens=1)


# ---- no answer leaves a trace ----


def test_after_every_kind_of_edit_the_answer_is_that_of_a_fresh_server():
    """A message changed, the answer made again, two messages taken away, the context filled: never a half-done state."""
    options = ("--context", "600", "--precision", "exact", "--quiet")
    ask = dict(temperature=0, max_tokens=12, logprobs=True, top_logprobs=5, chat_template_kwargs={"enable_thinking": False})
    talk = [message for i in range(4) for message in (*user(f"What is {i} + {i + 2}?"), {"role": "assistant", "content": f"{2 * i + 2}"})]
    edited = [*talk[:2], *user("What is 9 + 9?"), *talk[3:]]
    last = user("And 5 + 6?")
    with Server(*options) as server:
        seen = []
        for messages in (talk + last, edited + last, edited + last, edited[:-2] + last, talk + last):
            seen.append((messages, server.ask(messages=messages, **ask)))
        full = {**ask, "max_tokens": 10000, "ignore_eos": True}
        answer = server.ask(messages=talk + last, **full)
        assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["total_tokens"] == 600
        seen.append((edited[:-4] + last, server.ask(messages=edited[:-4] + last, **ask)))
    for messages, answer in seen:
        with Server(*options) as fresh:
            alone = fresh.ask(messages=messages, **ask)
        assert alone["choices"][0]["message"] == answer["choices"][0]["message"]
        for a, b in zip(alone["choices"][0]["logprobs"]["content"], answer["choices"][0]["logprobs"]["content"], strict=True):
            assert [t["token"] for t in a["top_logprobs"]] == [t["token"] for t in b["top_logprobs"]]
            assert [t["logprob"] for t in a["top_logprobs"]] == pytest.approx([t["logprob"] for t in b["top_logprobs"]], abs=1e-3)


def test_a_busy_machine_answers_as_an_idle_one():
    """How a prompt is cut into steps is chosen at start by what a step costs, and few rows round otherwise than many: what others
    do on the machine at that moment must not decide. One server starts beside twenty processes on the same core."""
    ask = dict(prompt="one two three four five six seven eight nine ten. " * 3, temperature=0, max_tokens=1, logprobs=5)
    core = str(min(os.sched_getaffinity(0)))
    found = []
    for others in (0, 20):
        loops = [subprocess.Popen(["taskset", "-c", core, sys.executable, "-c", "while True: pass"]) for _ in range(others)]
        try:
            with Server("--quiet", "--threads", "1", prefix=("taskset", "-c", core)) as server:
                for loop in loops:
                    loop.kill()
                found.append(server.ask("/v1/completions", **ask)["choices"][0]["logprobs"])
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
    assert found[0] == found[1]


def test_drafts_and_thinking_limits_do_not_change_texts_of_others(server):
    """Requests of every kind between two equal ones leave no trace."""
    first = message_of(server.chat(max_tokens=60))
    server.chat("What is the weather in Paris?", tools=[WEATHER], temperature=1.5, n=2, max_tokens=20, thinking_budget=3,
                repetition_penalty=1.3, logit_bias={"5": -100}, stop=["a"])
    server.ask("/v1/completions", prompt="abc", max_tokens=5, logprobs=5)
    assert message_of(server.chat(max_tokens=60)) == first
