"""Random requests: valid ones with odd values, broken ones, raw bytes, half requests. The server answers or closes, and lives.

REQUESTS (default 1500) sets how many; tools/server_sanitized.sh runs 10,000 against sanitizer builds.
"""

import json
import os
import random
import socket
import threading
import time

import pytest

from server_support import Server

REQUESTS = int(os.environ.get("REQUESTS", "1500"))
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/tokenize",
         "/detokenize", "/apply-template", "/v1/models", "/props", "/health", "/metrics", "/", "/nothing", "/v1/chat/completions/x/stop_thinking"]
TEXTS = ["", "a", "\u00e9\U0001F98A", "</think>", "<tool_call>f<arg_key>x</arg_key>", "x" * 300, "\0", "<|role_end|>", "1" * 40, "\u202e\ufffd"]


@pytest.fixture(scope="module")
def server():
    with Server("--stall", "1", "--queue", "32") as running:
        yield running


def value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, 1, -1, 2, 17, 4096, 2 ** 31, 2 ** 63, -2 ** 63, 10 ** 30])
    if kind == 2:
        return rng.choice([0.0, 0.5, 1.5, -0.1, 1e308, 5e-324])
    if kind < 6:
        return rng.choice(TEXTS)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(FIELDS): value(rng, depth + 1) for _ in range(rng.randrange(5))}


FIELDS = ["messages", "role", "content", "tools", "type", "function", "name", "parameters", "tool_choice", "temperature", "top_p", "top_k",
          "min_p", "seed", "n", "stop", "max_tokens", "logit_bias", "logprobs", "top_logprobs", "stream", "stream_options", "include_usage",
          "chat_template_kwargs", "enable_thinking", "thinking", "budget_tokens", "thinking_budget", "reasoning_effort", "prompt", "echo",
          "special", "input", "instructions", "system", "input_schema", "stop_sequences", "tokens", "tool_calls", "arguments", "call_id",
          "output", "text", "properties", "id", "repetition_penalty", "presence_penalty", "ignore_eos", "model", "user"]


def message(rng):
    role = rng.choice(["user", "assistant", "system", "tool", "developer", "user", "bot"])
    out = {"role": role, "content": rng.choice([*TEXTS, [{"type": "text", "text": rng.choice(TEXTS)}], None])}
    if rng.random() < 0.2:
        out["tool_calls"] = [{"id": "c", "type": "function", "function": {"name": rng.choice(["f", ""]), "arguments": rng.choice(["{}", '{"x": 1}', "", "[", "{\"x\": \"</arg_value>\"}"])}}]
    return out


def good_body(rng, path):
    body = {"max_tokens": rng.choice([1, 2, 5, 9]), "max_output_tokens": 3}
    if "completions" in path and "chat" not in path:
        body["prompt"] = rng.choice([*TEXTS, [1, 2, 3], [999999], []])
    elif "responses" in path:
        body["input"] = rng.choice([rng.choice(TEXTS), [message(rng) for _ in range(rng.randrange(4))]])
    elif path == "/detokenize":
        body["tokens"] = [rng.randrange(-1, 4000) for _ in range(rng.randrange(6))]
    elif path == "/tokenize" and rng.random() < 0.5:
        body["content"] = rng.choice(TEXTS)
    else:
        body["messages"] = [message(rng) for _ in range(rng.randrange(5))]
    for field, values in (("temperature", [0, 0.7, 100]), ("top_k", [0, 1, 40]), ("top_p", [0.1, 1]), ("seed", [0, 2 ** 63 - 1]), ("n", [1, 2]),
                          ("stop", ["a", ["b", "\n"]]), ("stream", [True, False]), ("logprobs", [True, 2]), ("logit_bias", [{"5": 3}]),
                          ("tools", [[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]]),
                          ("chat_template_kwargs", [{"enable_thinking": False}]), ("thinking_budget", [0, 1]), ("ignore_eos", [True])):
        if rng.random() < 0.25:
            body[field] = rng.choice(values)
    if rng.random() < 0.4:
        body[rng.choice(FIELDS)] = value(rng)
    return body


def raw_request(rng):
    path = rng.choice(PATHS)
    kind = rng.random()
    if kind < 0.05:
        return rng.randbytes(rng.randrange(1, 300))
    body = json.dumps(good_body(rng, path) if kind < 0.8 else value(rng)).encode()
    if kind > 0.9:  # damage
        body = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        body = bytes(body)
    head = [f"{rng.choice(['POST', 'POST', 'POST', 'POST', 'GET', 'PUT', 'HEAD', 'OPTIONS', 'BREW'])} {path} HTTP/1.{rng.choice('0111')}",
            f"Host: {rng.choice(['localhost', '127.0.0.1', 'evil.example', ''])}" if rng.random() < 0.05 else "Host: localhost",
            "Content-Type: application/json" if rng.random() < 0.95 else "Content-Type: \xff",
            f"Content-Length: {len(body) if rng.random() < 0.95 else rng.choice([0, 5, -1, 10 ** 18, 'x'])}", "Connection: close"]
    if rng.random() < 0.05:
        head.append("X-Long: " + "y" * rng.choice([100, 9000, 70000]))
    text = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
    return text if rng.random() < 0.95 else text[:rng.randrange(len(text))]


def exchange(port, data, patience):
    """The status line, or None when the server closed or had nothing to say in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as sock:
        try:
            sock.sendall(data)
            got = b""
            while True:
                part = sock.recv(65536)
                if not part:
                    break
                got += part
        except OSError:
            pass
    if not got:
        return None
    line = got.split(b"\r\n", 1)[0]
    assert line.startswith(b"HTTP/1.1 "), (data[:200], got[:200])
    status = int(line[9:12])
    body = got.split(b"\r\n\r\n", 1)[1] if b"\r\n\r\n" in got else b""
    if status >= 400 and body and not data.startswith(b"HEAD"):
        assert b'"error"' in body, (data[:300], body[:300])
    return status


def test_random_requests_never_end_the_server(server):
    statuses, errors, lock = {}, [], threading.Lock()
    before = server.descriptors()

    def work(number):
        rng = random.Random(number)
        for _ in range(REQUESTS // 6):
            data = raw_request(rng)
            try:
                status = exchange(server.port, data, 20)
            except AssertionError as error:
                with lock:
                    errors.append(str(error))
                return
            except OSError as error:
                with lock:
                    errors.append(f"{error}: {data[:300]!r}")
                return
            with lock:
                statuses[status] = statuses.get(status, 0) + 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[:3]
    assert server.process.poll() is None, server.log_text()[-2000:]
    assert 500 not in statuses, [line for line in server.log_text().splitlines() if " 500 " in line][:5]
    assert statuses.get(200, 0) > REQUESTS // 20 and statuses.get(400, 0) > REQUESTS // 20, statuses
    server.wait_idle(30)
    end = time.monotonic() + 10
    while server.descriptors() > before + 1:
        assert time.monotonic() < end, "open files are left"
        time.sleep(0.1)
