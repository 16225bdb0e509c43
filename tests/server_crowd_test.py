"""Many, slow, stalled and silent clients."""

import http.client
import json
import select
import socket
import threading
import time

import pytest

from server_support import LONG, QUESTION, Server, user


@pytest.fixture(scope="module")
def server():
    with Server("--queue", "4", "--keep-alive", "0.5", "--stall", "8") as running:
        yield running


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


def test_keep_alive_connections_serve_many_requests(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for i in range(50):
        body = json.dumps({"content": str(i)}) if i % 3 else "{"
        connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == (200 if i % 3 else 400)
    connection.close()
