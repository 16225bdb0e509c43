"""Where a request begins and ends: odd headers, lengths and versions on a raw socket."""

import json
import socket

import pytest

from server_support import Server, parse_events


@pytest.fixture(scope="module")
def server():
    with Server("--stall", "8") as running:
        yield running


def raw(server, data, seconds=10):
    """What comes back for these bytes until the server closes or has been silent for a second after its answer."""
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=seconds)
    answer = b""
    try:
        sock.sendall(data)
        while piece := sock.recv(65536):
            answer += piece
            sock.settimeout(1)
    except OSError:
        pass
    finally:
        sock.close()
    return answer


HEAD = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("header, status, word", [
    ("Content-Length: -1\r\n", 400, "Content-Length"), ("Content-Length: ten\r\n", 400, "Content-Length"),
    ("Content-Length: 99999999999999999999\r\n", 400, "Content-Length"), ("Content-Length: 2\r\nContent-Length: 3\r\n", 400, "Content-Length"),
    ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", 400, "Transfer-Encoding"), ("Transfer-Encoding: gzip\r\n", 400, "Transfer-Encoding"),
    ("Transfer-Encoding: chunked, gzip\r\n", 400, "Transfer-Encoding"), ("Host: evil.example\r\nContent-Length: 2\r\n", 400, "Host"),
    ("", 400, "JSON"), ("X: " + "a" * 20000 + "\r\nContent-Length: 2\r\n", 400, "8192"),
    ("X: " + "a" * 100000 + "\r\nContent-Length: 2\r\n", 431, "65536")])
def test_a_request_whose_length_is_doubtful_is_refused_at_once(server, header, status, word):
    """Two readers of one connection must not differ in where a request ends; and nobody waits for a body that nobody announced."""
    answer = raw(server, (HEAD + header + "\r\n{}").encode(), seconds=5)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:300]
    assert word in json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"]


def test_a_first_line_without_end_is_answered(server):
    assert raw(server, b"GET /" + b"a" * 100000).startswith(b"HTTP/1.1 431 ")
    assert raw(server, b"GET /" + b"a" * 10000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 414 ")


def test_a_post_without_a_body_needs_no_length(server):
    """As `curl -X POST` sends it."""
    answer = raw(server, b"POST /v1/chat/completions/x/stop_thinking HTTP/1.1\r\nHost: localhost\r\n\r\n", seconds=5)
    assert answer.startswith(b"HTTP/1.1 404 ") and b"'x'" in answer


def test_the_body_of_a_get_is_no_request(server):
    inner = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = raw(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(inner) + inner)
    assert answer.count(b"HTTP/1.1 ") == 1 and b"ling-nano" not in answer


def test_streams_for_http_1_0_have_no_chunks(server):
    body = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True, "temperature": 0}).encode()
    head = "POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    header, _, events = raw(server, head.encode() + body).partition(b"\r\n\r\n")
    assert header.startswith(b"HTTP/1.1 200 ") and b"chunked" not in header and b"Connection: close" in header
    parsed, _ = parse_events(events.decode())
    assert parsed[-1] == (None, "[DONE]") and len(parsed) > 1


@pytest.mark.parametrize("header", ["Content-Length : 2", "Transfer-Encoding : chunked", " Content-Length: 2", "X\x01: 2", "X(y): 2", "Host : x"])
def test_a_name_that_some_readers_would_not_see_is_refused(server, header):
    answer = raw(server, (HEAD + header + "\r\n\r\n{}").encode(), seconds=5)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"name" in answer and answer.count(b"HTTP/1.1 ") == 1


def test_a_body_announced_too_large_is_refused_before_it_comes(server):
    for path in ("/tokenize", "/v1/messages"):
        head = HEAD.replace("/tokenize", path) + "Content-Length: 999999999\r\n\r\n"
        header, _, body = raw(server, head.encode(), seconds=5).partition(b"\r\n\r\n")
        assert header.startswith(b"HTTP/1.1 413 ") and b"Connection: close" in header
        error = json.loads(body)
        assert error["error"]["type"] == ("request_too_large" if "messages" in path else "invalid_request_error")
        assert error.get("type") == ("error" if "messages" in path else None)


def test_what_the_transport_refuses_has_the_form_of_the_api(server):
    for path, form in (("/v1/messages", "error"), ("/v1/responses", None)):
        answer = raw(server, (HEAD.replace("/tokenize", path) + "Content-Length: x\r\n\r\n").encode(), seconds=5)
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1]).get("type") == form


@pytest.mark.parametrize("kind, status", [("Application/JSON", 200), ("application/json; charset=utf-8", 200), ("application/json ;x=y", 200),
                                          ("application/jsonx", 400), ("application/json, text/plain", 400), ("text/json", 400), ("", 400)])
def test_the_type_of_a_body(server, kind, status):
    assert server.post("/tokenize", {"content": "a"}, headers={"Content-Type": kind})[0] == status
