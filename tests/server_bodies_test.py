"""Bodies of requests: broken, large, of many values, with odd names."""

import base64
import contextlib
import select
import socket
import time

import pytest

from server_support import Server, read_until, user


@pytest.fixture(scope="module")
def server():
    with Server("--queue", "4", "--keep-alive", "0.5", "--stall", "8") as running:
        yield running


BAD_BODIES = [b'{"messages":[{"role":"user","content":"\xf0\x9f\xa6"}]}', b'{"messages":[{"role":"user","content":"\\ud83d"}]}',
              b'{"messages":[{"role":"user","content":"a\x00b"}]}', b"\xef\xbb\xbf{}", b"", b"{", b"[]", b'{"a":1}{"b":2}',
              b'{"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x","content":"x","max_tokens":1}\0{',
              b'{"temperature":NaN}', b'{"n":1,"n":2}', b"null", b'"x"', b"[" * 100000, b'{"a":' * 100000, b'{"x":1e999}',
              b'{"messages":[{"role":"user","content":"x"}],"logit_bias":{' + b",".join(b'"%d":1' % i for i in range(9000)) + b"}}"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/tokenize"])
def test_broken_bodies(server, path):
    for body in BAD_BODIES:
        status, _, answer = server.request("POST", path, body)
        assert status == 400 and answer["error"]["message"], body[:40]
    status, _, answer = server.request("POST", path, b"{}", headers={"Content-Type": "text/plain"})
    assert status == 400 and "Content-Type" in answer["error"]["message"]
    assert server.chat(max_tokens=1)["usage"]["completion_tokens"] == 1


def test_escaped_nul_is_text(server):
    assert server.post("/tokenize", {"content": "a\0b"})[2]["count"] >= 3


@pytest.mark.parametrize("key", [" 1", "+1", "1 ", "0x1", "1.0", "", "-1", "99999999999"])
def test_keys_of_a_bias_are_ids(server, key):
    assert "logit_bias" in server.chat(status=400, logit_bias={key: 1})["error"]["message"]


@pytest.mark.parametrize("kind", ["a", " ", "\n", "random", "base64"])
def test_large_messages(server, kind):
    import random
    rng = random.Random(1)
    seconds = {}
    for size in (50_000, 500_000, 5_000_000):
        if kind == "random":
            text = "".join(chr(rng.choice((rng.randrange(32, 0xd800), rng.randrange(0x10000, 0x110000)))) for _ in range(size // 4))
        elif kind == "base64":
            text = base64.b64encode(rng.randbytes(size * 3 // 4)).decode()
        else:
            text = kind * size
        start = server.processor_seconds()
        status, _, answer = server.post("/v1/messages/count_tokens", {"messages": user(text)})
        seconds[size] = server.processor_seconds() - start
        assert status == 200 and answer["input_tokens"] > 0
        if size == 5_000_000 and answer["input_tokens"] > server.get("/props")[2]["context"]:
            status, _, answer = server.post("/v1/chat/completions", {"messages": user(text)})
            assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    assert seconds[5_000_000] < max(40 * seconds[500_000], 2), seconds
    assert seconds[5_000_000] < 20, seconds


def test_body_limit(server):
    text = "a" * 50_000_000
    status, _, answer = server.post("/v1/chat/completions", {"messages": user(text)})
    assert status == 413 and answer["error"]["message"]
    # Also when the length is not announced.
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    sock.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    answer = b""
    try:
        for _ in range(400):
            sock.sendall(b"10000\r\n" + b"a" * 65536 + b"\r\n")
            if select.select([sock], [], [], 0)[0]:
                break
        answer = sock.recv(65536)
    except OSError:
        pass
    sock.close()
    assert b" 413 " in answer.split(b"\r\n")[0]
    assert server.get("/health")[0] == 200


def test_bodies_have_a_budget_together():
    """Each is within --max-body; eight of the largest may be there at a time, and who comes later is told so at once."""
    with Server("--max-body", "1MiB") as server:
        part = b'{"content": "' + b"a" * 900_000
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
        held, refused = [], []
        for _ in range(14):
            sock = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            with contextlib.suppress(OSError):
                sock.sendall(head)
                sock.sendall(part)
            held.append(sock)
        until = time.monotonic() + 20
        while len(refused) < 4 and time.monotonic() < until:
            refused = [sock for sock in held if select.select([sock], [], [], 0)[0]]
            time.sleep(0.02)
        assert 4 <= len(refused) <= 7
        answer = read_until(refused[0], b"too many large requests")
        assert answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in answer
        assert server.get("/health")[0] == 200
        for sock in held:
            sock.close()
        until = time.monotonic() + 20
        while (status := server.post("/tokenize", {"content": "a" * 900_000})[0]) == 503 and time.monotonic() < until:
            time.sleep(0.05)
        assert status == 200


def test_a_body_of_millions_of_values_is_refused(server):
    """Three bytes of text can be a hundred of the tree that a parser makes of them."""
    body = b'{"messages": [' + b"[]," * 1_500_000 + b"[]]}"
    before = server.rss()
    status, _, answer = server.request("POST", "/v1/chat/completions", body)
    assert status == 400 and "values" in answer["error"]["message"]
    assert server.rss() - before < 200 << 20
    status, _, answer = server.post("/v1/completions", {"prompt": [1] * 1_500_000, "max_tokens": 1})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"


def test_long_names_of_clients_are_not_kept(server):
    """The queue remembers the latest 256 names: of 1 MB each they would stay for good."""
    server.chat(max_tokens=1)
    before = server.rss()
    for i in range(80):
        server.chat(max_tokens=1, user=f"{i}" + "a" * 1_000_000)
    assert server.rss() - before < 40 << 20


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
NESTED = [
    ("chat/completions", {"messages": {"role": "user"}}, "messages"), ("chat/completions", {"messages": [5]}, "messages[0]"),
    ("chat/completions", {"messages": [{"role": "user", "content": [None]}]}, "messages[0].content[0]"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages[0].content[0].type"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ("chat/completions", {"messages": [{"role": "user", "content": "x", "name": 5}]}, "messages[0].name"),
    ("chat/completions", {"messages": [{"role": "assistant", "reasoning_content": 5}]}, "messages[0].reasoning_content"),
    ("chat/completions", {"messages": [{"role": "assistant", "reasoning": {}}]}, "messages[0].reasoning"),
    ("chat/completions", {"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
    ("chat/completions", {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "id": 5}]}]}, "messages[0].tool_calls[0].id"),
    ("chat/completions", {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}]},
     "messages[0].tool_calls[0].function.arguments"),
    ("chat/completions", {"messages": [{"role": "tool", "tool_call_id": 5, "content": "x"}]}, "messages[0].tool_call_id"),
    ("chat/completions", {"tools": [{"function": {"name": "f", "description": 5}}]}, "tools[0].function.description"),
    ("chat/completions", {"tools": [{"function": {"name": "f", "parameters": True}}]}, "tools[0].function.parameters"),
    ("chat/completions", {"stream": True, "stream_options": {"include_usage": "x"}}, "stream_options.include_usage"),
    ("chat/completions", {"enable_thinking": "no"}, "enable_thinking"), ("chat/completions", {"reasoning": 5}, "reasoning"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 5}]}]}, "messages[0].content[0].tool_use_id"),
    ("messages", {"messages": [*user("x"), {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": "x"}]}]},
     "messages[1].content[0].input"),
    ("messages", {"system": [5]}, "system[0]"), ("messages", {"metadata": {"user_id": 5}}, "metadata.user_id"),
    ("messages", {"tool_choice": "auto"}, "tool_choice"), ("responses", {"input": [{"type": "reasoning", "summary": 5}]}, "input[0].summary"),
    ("responses", {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]}, "input[0].arguments"),
    ("responses", {"input": [{"type": "function_call", "namespace": 5}]}, "input[0].namespace"),
    ("responses", {"include": ["message.output_text.logprobs"]}, "include[0]"), ("responses", {"top_logprobs": 3}, "top_logprobs"),
    ("responses", {"metadata": 5}, "metadata")]


@pytest.mark.parametrize("path, change, field", NESTED)
def test_a_wrong_type_in_any_depth_is_named(server, path, change, field):
    body = {"model": "m", "max_tokens": 1, **({"input": "x"} if path == "responses" else {"messages": user("x")}), **change}
    status, _, answer = server.post("/v1/" + path, body)
    assert status == 400 and field + ":" in answer["error"]["message"], answer
    assert answer["error"].get("param", field) == field


def test_assistant_messages_in_a_row_are_one_turn(server):
    """In Anthropic's API: a client that sends the blocks of a turn one by one gets the turn back."""
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "a"},
              {"type": "tool_use", "id": "t", "name": "f", "input": {}}]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "b"}]}
    one = [*user("x"), {"role": "assistant", "content": blocks}, result]
    three = [*user("x"), *({"role": "assistant", "content": [block]} for block in blocks), result]
    counts = [server.ask("/v1/messages/count_tokens", messages=messages)["input_tokens"] for messages in (one, three)]
    assert counts[0] == counts[1]
