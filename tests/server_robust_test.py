"""What a server meets in the field: clients that leave, stall, flood or lie, and being told to stop."""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from conftest import SPARKLING
from server_support import QUESTION, WEATHER, Server, joined, message_of, parse_events, user

LONG = {"messages": user(QUESTION), "temperature": 0, "max_tokens": 20000, "ignore_eos": True}


@pytest.fixture(scope="module")
def server():
    with Server("--queue", "4", "--keep-alive", "0.5", "--stall", "8") as running:
        yield running


def read_until(sock, wanted, seconds=60):
    text, end = b"", time.monotonic() + seconds
    while wanted not in text:
        assert time.monotonic() < end, text[-500:]
        got = sock.recv(65536)
        assert got, text[-500:]
        text += got
    return text


# ---- who leaves frees the model, and only the own answer ends ----


def test_client_leaves_in_a_stream(server):
    sock = server.open_stream("/v1/chat/completions", LONG)
    read_until(sock, b"reasoning_content")
    sock.close()
    assert server.wait_idle(2) < 0.5
    assert server.metric("sparkling_clients_gone_total") >= 1


def test_client_leaves_a_whole_answer(server):
    sock = socket.create_connection(("127.0.0.1", server.port))
    body = json.dumps(LONG).encode()
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    server.wait_busy()
    sock.close()
    assert server.wait_idle(2) < 0.5


def test_client_leaves_in_prefill_and_the_cache_stays(server):
    def prompt(tokens):
        return "".join(f"{i} apples and {i + 3} plums. " for i in range(tokens // 9))
    speed = server.ask("/v1/completions", prompt=prompt(600), max_tokens=1)["timings"]["prefill_tok_s"]
    body = {"prompt": "x" + prompt(int(3 * speed)), "temperature": 0, "max_tokens": 4}  # some three seconds
    sock = server.open_stream("/v1/completions", body)
    server.wait_busy()
    time.sleep(0.6)
    assert server.busy()[0] == 1, "the prompt is too short for this test"
    sock.close()
    assert server.wait_idle(2) < 0.5
    answer = server.ask("/v1/completions", **body)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_leaving_the_queue_disturbs_nobody(server):
    solo = joined(server.stream(messages=user(QUESTION), temperature=0, max_tokens=150, ignore_eos=True)[0])
    body = {"messages": user(QUESTION), "temperature": 0, "max_tokens": 150, "ignore_eos": True}
    first = server.open_stream("/v1/chat/completions", body)
    server.wait_busy(1, 0)
    second = server.open_stream("/v1/chat/completions", LONG)
    server.wait_busy(1, 1)
    third = server.open_stream("/v1/chat/completions", body)
    server.wait_busy(1, 2)
    second.close()
    for sock in (first, third):
        text = read_until(sock, b"data: [DONE]\n\n")
        sock.close()
        events = b"\n\n".join(part for part in text.split(b"\r\n") if part.startswith((b"data:", b":")))
        assert joined(parse_events(events.decode())[0]) == solo
    server.wait_idle(5)


def test_client_leaves_in_the_middle_of_a_header(server):
    before = server.descriptors()
    for cut in (1, 5, 20, 60, 100):
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.sendall(head[:cut])
        sock.close()
    time.sleep(0.5)
    assert server.get("/health")[0] == 200
    assert server.descriptors() <= before + 1


# ---- never silent ----


def test_headers_at_once_and_comments_by_the_clock(server):
    blocker = server.open_stream("/v1/chat/completions", LONG)
    server.wait_busy(1, 0)
    start = time.monotonic()
    waiting = server.open_stream("/v1/chat/completions", {"messages": user("x"), "max_tokens": 2, "temperature": 0})
    text = read_until(waiting, b"\r\n\r\n")
    assert time.monotonic() - start < 1
    assert b"200 OK" in text and b"text/event-stream" in text
    arrivals = []
    while len(arrivals) < 4:
        got = waiting.recv(65536)
        if b": waiting, 1 before" in got:
            arrivals.append(time.monotonic())
    gaps = [b - a for a, b in zip(arrivals, arrivals[1:])]
    assert all(0.4 < gap < 0.9 for gap in gaps), gaps
    blocker.close()
    read_until(waiting, b"[DONE]")
    waiting.close()
    server.wait_idle(5)


def test_comments_come_while_a_prompt_is_read():
    """From the header to the first token, however slow the model is: plain loops in double take their time."""
    with Server("--keep-alive", "0.2", "--backend", "reference") as server:
        sock = server.open_stream("/v1/chat/completions", {"messages": user("one two three four five six " * 20), "max_tokens": 1})
        text = read_until(sock, b"[DONE]", 300)
        sock.close()
    head, body = text.split(b"\r\n\r\n", 1)
    assert b"200 OK" in head and body.count(b": working") >= 5
    assert body.rindex(b": working") < body.index(b"reasoning_content")


def test_comments_are_valid_for_the_clients_and_can_be_off():
    import anthropic
    import openai
    for seconds, wanted in ((0.2, True), (0, False)):
        with Server("--keep-alive", seconds) as server:
            blocker = server.open_stream("/v1/chat/completions", LONG)
            server.wait_busy(1, 0)
            threading.Timer(0.7, blocker.close).start()
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)
            chunks = list(client.chat.completions.create(model="m", messages=user("x"), max_tokens=3, stream=True))
            assert chunks[-1].choices[0].finish_reason
            blocker = server.open_stream("/v1/chat/completions", LONG)
            server.wait_busy(1, 0)
            threading.Timer(0.7, blocker.close).start()
            client = anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)
            with client.messages.stream(model="m", max_tokens=3, messages=user("x")) as stream:
                assert stream.get_final_message().usage.output_tokens <= 3
            blocker = server.open_stream("/v1/chat/completions", LONG)
            server.wait_busy(1, 0)
            threading.Timer(1.5, blocker.close).start()
            _, comments = server.stream(messages=user("x"), max_tokens=2)
            assert bool(comments) == wanted


def test_errors_come_with_a_status_even_for_streams(server):
    for body in ({"messages": user("x"), "temperature": -1}, {"messages": user("lamp " * 80000)}):
        status, headers, answer = server.post("/v1/chat/completions", {**body, "stream": True})
        assert status == 400 and headers["Content-Type"] == "application/json" and answer["error"]["message"]


# ---- queue ----


def test_full_queue_is_429_with_retry_after(server):
    socks = [server.open_stream("/v1/chat/completions", LONG)]
    server.wait_busy(1, 0)
    for i in range(4):
        socks.append(server.open_stream("/v1/chat/completions", LONG))
        server.wait_busy(1, i + 1)
    for path, form in (("/v1/chat/completions", "error"), ("/v1/messages", "type")):
        status, headers, answer = server.post(path, {"messages": user("x"), "max_tokens": 2})
        assert status == 429 and 1 <= int(headers["Retry-After"]) <= 60
        assert form in answer and "queue" in answer["error"]["message"]
    for sock in socks:
        sock.close()
    assert server.wait_idle(3) < 1
    assert server.chat(max_tokens=2)


def test_queue_is_fair_between_clients(server):
    blocker = server.open_stream("/v1/chat/completions", LONG)
    server.wait_busy(1, 0)
    done = []

    def ask(name, client):
        server.ask(messages=user("x"), max_tokens=2, user=client)
        done.append(name)

    threads = []
    for count, (name, client) in enumerate((("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"))):
        threads.append(threading.Thread(target=ask, args=(name, client)))
        threads[-1].start()
        server.wait_busy(1, count + 1)
    blocker.close()
    for thread in threads:
        thread.join(60)
    assert sorted(done[:2]) == ["a1", "b1"] and done[2:] == ["a2", "a3"], done


# ---- bodies ----

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


# ---- access ----


def test_every_route_asks_for_the_key(tmp_path):
    (tmp_path / "key").write_text("s3cret-key\n")
    with Server("--api-key-file", tmp_path / "key") as server:
        good = {"Authorization": "Bearer s3cret-key"}
        routes = [r.split() for r in server.get("/props", headers=good)[2]["routes"]]
        assert len(routes) >= 14
        wrong = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"}, {"Authorization": "Bearer "},
                 {"Authorization": "Bearer s3cret-key "[:-1] + "x"}, {"Authorization": "Bearer  s3cret-key"},
                 {"Authorization": "s3cret-key"}, {"Authorization": "Basic " + base64.b64encode(b"user:s3cret-key ").decode()},
                 {"Authorization": "Bearer s3cret-key s3cret-key"}, {"X-Api-Key": "s3cret-keys"}, {"X-Api-Key": ""}, {"Authorization": "Bearer s3cret"}]
        for method, path in routes:
            path = path.replace("{id}", "x")
            for headers in wrong:
                status, got, answer = server.request(method, path, {} if method == "POST" else None, headers=headers)
                assert status == (200 if path == "/health" else 401), (path, headers)
                assert path == "/health" or "WWW-Authenticate" in got
        for headers in (good, {"authorization": "bearer s3cret-key"}, {"X-Api-Key": "s3cret-key"},
                        {"Authorization": "Basic dXNlcjpzM2NyZXQta2V5"}):
            assert server.get("/v1/models", headers=headers)[0] == 200
        assert server.get("/unknown")[0] == 401
        for path in ("/props", "/metrics", "/"):
            assert "s3cret" not in json.dumps(server.get(path, headers=good)[2])
        assert "s3cret" not in server.log_text()


def listens_on(server):
    """Addresses of the listening sockets with the server's port, as the kernel writes them (127.0.0.1 is 0100007F)."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{server.process.pid}/net/{table}").read_text().splitlines()[1:]:
            address, port = line.split()[1].split(":")
            if line.split()[3] == "0A" and int(port, 16) == server.port:
                found.add(address)
    return found


def test_defaults_are_closed(server):
    assert listens_on(server) == {"0100007F"}
    body = {"messages": user("x"), "max_tokens": 1}
    status, headers, answer = server.post("/v1/chat/completions", body, headers={"Origin": "https://evil.example"})
    assert status == 403 and "Access-Control-Allow-Origin" not in headers and "origin" in answer["error"]["code"]
    status, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://evil.example"})
    assert status == 403 and "Access-Control-Allow-Origin" not in headers
    for host in ("evil.example", "127.evil.example", "evil.example:80"):
        assert server.get("/props", headers={"Host": host})[0] == 403
    for host in ("localhost", "127.0.0.1:1", "[::1]:8080"):
        assert server.get("/props", headers={"Host": host})[0] == 200
    own = f"127.0.0.1:{server.port}"
    assert server.get("/props", headers={"Host": own, "Origin": "http://" + own})[0] == 200


def test_named_origins_and_open_addresses(sparkling):
    with Server("--cors", "https://page.example") as server:
        status, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://page.example"})
        assert status == 204 and headers["Access-Control-Allow-Origin"] == "https://page.example"
        status, headers, _ = server.get("/v1/models", headers={"Origin": "https://page.example"})
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://page.example"
        assert server.get("/v1/models", headers={"Origin": "https://other.example"})[0] == 403
    refused = sparkling("serve", "--host", "0.0.0.0", "--port", "0", status=2)
    assert "--api-key" in refused.stderr
    with Server("--host", "0.0.0.0", "--no-api-key") as server:
        assert "no API key" in server.log_text() and listens_on(server) == {"00000000"}


def test_unknown_routes_and_methods(server):
    assert server.get("/nothing")[0] == 404
    assert server.get("/v1/chat/completions")[0] == 405
    assert server.request("DELETE", "/v1/models")[0] == 405
    assert server.request("POST", "/v1/messages/", {})[2]["error"]["type"] == "not_found_error"
    assert server.get("/" + "a" * 5000)[0] == 404
    assert server.get("/../../etc/passwd")[0] == 404


def test_the_log_has_rows_and_no_words(server):
    secret = "xylophone zanzibar"
    server.chat(secret, max_tokens=3, ignore_eos=True)
    server.post("/v1/chat/completions", {"messages": [{"role": secret, "content": secret}]})
    server.post("/v1/chat/completions", {"messages": user("x"), "temperature": secret})
    log = server.log_text()
    assert "xylophone" not in log and "zanzibar" not in log
    row = [line for line in log.splitlines() if line.startswith("chat 200 prompt")][-1]
    for part in ("cached", "first", "ms out 3", "tok/s", "length", "total"):
        assert part in row, row
    assert any(line.startswith("chat 400") and "temperature" in line for line in log.splitlines())
    assert "xylophone" not in server.get("/metrics")[2]
    with Server("--log-prompts") as open_server:
        open_server.chat(secret, max_tokens=1)
        assert secret in open_server.log_text()


def test_the_page_needs_nothing_else():
    with Server("--api-key", "s3cret") as server:
        refused, allowed = server.get("/"), server.get("/", headers={"X-Api-Key": "s3cret"})
        assert (refused[0], allowed[0]) == (401, 200)
        nonces = set()
        for _, headers, text in (refused, allowed):
            policy = headers["Content-Security-Policy"]
            nonce = policy.split("'nonce-")[1].split("'")[0]
            nonces.add(nonce)
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert f'<script nonce="{nonce}">' in text and f'<style nonce="{nonce}">' in text
            assert "@NONCE@" not in text and "@SCRIPT@" not in text and "@STYLE@" not in text and "</html>" in text
            assert "s3cret" not in text and " src=" not in text and "@import" not in text
        assert len(nonces) == 2
        assert server.post("/", {})[0] == 401


def test_roof_is_measured_when_asked_for(server):
    first = server.get("/roof")[2]
    end = time.monotonic() + 30
    while not (roof := server.get("/roof")[2])["measured"]:
        assert roof["bandwidth_bytes_s"] is None and time.monotonic() < end
        time.sleep(0.05)
    assert roof["bandwidth_bytes_s"] > 1e8 and roof["pass"] == first["pass"]
    parts = {part["name"]: part["bytes"] for part in roof["pass"]}
    assert {"kda", "mla", "experts", "head", "state"} <= set(parts) and all(n > 0 for n in parts.values())
    assert roof["draft_bytes"] > 0
    # A plain pass reads what it says, latents aside.
    with Server("--draft", "0") as plain:
        read = plain.chat(max_tokens=20, ignore_eos=True)["timings"]["bytes_per_token"]
        latents = 100 * roof["latent_bytes_per_context_token"]
        assert sum(parts.values()) * 0.9 < read < sum(parts.values()) * 1.1 + latents, (read, parts)


def test_metrics_are_prometheus_text(server):
    server.chat(max_tokens=4)
    status, headers, text = server.get("/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2
    assert server.metric('sparkling_requests_total{endpoint="chat",status="200"}') >= 1
    assert server.metric("sparkling_output_tokens_total") >= 4


# ---- many, slow, silent clients ----


def test_200_clients_at_once():
    with Server("--queue", "300") as server:
        before = server.descriptors()
        statuses, lock = [], threading.Lock()

        def ask(i):
            started = time.monotonic()
            status, _, answer = server.post("/v1/completions", {"prompt": f"{i}", "max_tokens": 1, "temperature": 0})
            with lock:
                statuses.append((status, time.monotonic() - started, answer["usage"]["completion_tokens"]))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(200)]
        for thread in threads:
            thread.start()
        health = time.monotonic()
        assert server.get("/health")[0] == 200
        assert time.monotonic() - health < 2
        for thread in threads:
            thread.join(120)
        assert [s[0] for s in statuses] == [200] * 200
        time.sleep(0.3)
        assert server.descriptors() <= before + 1


def test_too_many_connections_are_told_so():
    with Server("--connections", "5") as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
        time.sleep(0.2)
        extra = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        assert b" 503 " in extra.recv(4096).split(b"\r\n")[0]
        extra.close()
        for sock in held:
            sock.close()
        time.sleep(0.5)
        assert server.get("/health")[0] == 200


def test_a_slow_reader_does_not_hold_the_model(server):
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(60)
    slow.connect(("127.0.0.1", server.port))
    body = json.dumps({"messages": user(QUESTION), "temperature": 0, "max_tokens": 200, "ignore_eos": True, "stream": True}).encode()
    slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    server.wait_busy()
    for _ in range(3):
        assert slow.recv(1)
        time.sleep(1)
    # The model is long free although almost nothing has been read.
    server.wait_idle(60)
    assert server.chat(max_tokens=2)
    text = b""
    while b"[DONE]" not in text:
        got = slow.recv(65536)
        assert got
        text += got
    slow.close()


def test_a_stalled_reader_is_dropped(server):
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    stalled.connect(("127.0.0.1", server.port))
    body = json.dumps({**LONG, "stream": True, "logprobs": True, "top_logprobs": 20, "reasoning_effort": "none"}).encode()
    stalled.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n" % len(body) + body)
    server.wait_busy()
    # Buffers fill within some seconds, then --stall (8 s here) runs.
    server.wait_idle(60)
    stalled.close()


def test_a_slow_header_is_dropped():
    with Server("--stall", "1.5") as server:
        sock = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        start = time.monotonic()
        with pytest.raises(OSError):
            for _ in range(100):  # a byte now and then must not hold a thread for ever
                sock.sendall(b"G")
                time.sleep(0.1)
                if select.select([sock], [], [], 0)[0] and not sock.recv(4096):
                    raise OSError
        assert 1 < time.monotonic() - start < 6
        idle = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        start = time.monotonic()
        assert idle.recv(1) == b""
        assert time.monotonic() - start < 6


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


def test_keep_alive_connections_serve_many_requests(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for i in range(50):
        body = json.dumps({"content": str(i)}) if i % 3 else "{"
        connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == (200 if i % 3 else 400)
    connection.close()


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
    with Server() as server:
        sock = server.open_stream("/v1/chat/completions", {**LONG, "max_tokens": 150})
        read_until(sock, b"reasoning_content")
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


def test_drafts_and_thinking_limits_do_not_change_texts_of_others(server):
    """Requests of every kind between two equal ones leave no trace."""
    first = message_of(server.chat(max_tokens=60))
    server.chat("What is the weather in Paris?", tools=[WEATHER], temperature=1.5, n=2, max_tokens=20, thinking_budget=3,
                repetition_penalty=1.3, logit_bias={"5": -100}, stop=["a"])
    server.ask("/v1/completions", prompt="abc", max_tokens=5, logprobs=5)
    assert message_of(server.chat(max_tokens=60)) == first


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


@pytest.mark.parametrize("key", [" 1", "+1", "1 ", "0x1", "1.0", "", "-1", "99999999999"])
def test_keys_of_a_bias_are_ids(server, key):
    assert "logit_bias" in server.chat(status=400, logit_bias={key: 1})["error"]["message"]
