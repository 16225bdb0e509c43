"""Who leaves frees the model and disturbs nobody; who waits is never left in silence."""

import json
import socket
import threading
import time

import pytest

from server_support import LONG, QUESTION, SLOW, Server, joined, parse_events, read_until, user


@pytest.fixture(scope="module")
def server():
    with Server("--queue", "4", "--keep-alive", "0.5", "--stall", "8") as running:
        yield running


@pytest.fixture(scope="module")
def slow():
    with Server(*SLOW) as running:
        yield running


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


def test_client_leaves_in_prefill_and_the_cache_stays(slow):
    body = {"prompt": "".join(f"{i} apples and {i + 3} plums. " for i in range(24)), "temperature": 0, "max_tokens": 1}
    sock = slow.open_stream("/v1/completions", body)
    slow.wait_busy()
    time.sleep(1)
    assert slow.busy()[0] == 1, "the prompt is too short for this test"
    sock.close()
    assert slow.wait_idle(2) < 0.5
    usage = slow.ask("/v1/completions", **body)["usage"]
    assert 0 < usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"] - 1


def test_leaving_the_queue_disturbs_nobody(slow):
    body = {"messages": user(QUESTION), "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    solo = joined(slow.stream(**body)[0])
    first = slow.open_stream("/v1/chat/completions", body)
    slow.wait_busy(1, 0)
    second = slow.open_stream("/v1/chat/completions", LONG)
    slow.wait_busy(1, 1)
    third = slow.open_stream("/v1/chat/completions", body)
    slow.wait_busy(1, 2)
    second.close()
    for sock in (first, third):
        text = read_until(sock, b"data: [DONE]\n\n")
        sock.close()
        events = b"\n\n".join(part for part in text.split(b"\r\n") if part.startswith((b"data:", b":")))
        assert joined(parse_events(events.decode())[0]) == solo
    slow.wait_idle(5)


def test_who_leaves_the_queue_is_not_counted_any_more(server):
    running = server.open_stream("/v1/chat/completions", LONG)
    server.wait_busy(1, 0)
    waiting = []
    for count in (1, 2, 3):
        waiting.append(server.open_stream("/v1/chat/completions", LONG))
        server.wait_busy(1, count)
    waiting.pop(0).close()
    server.wait_busy(1, 2, seconds=2)
    read_until(waiting[-1], b": waiting, 2 before")
    for sock in (*waiting, running):
        sock.close()
    server.wait_idle(5)


def test_what_was_made_for_a_client_that_left_is_counted(server):
    before = server.metric("sparkling_output_tokens_total")
    sock = server.open_stream("/v1/chat/completions", LONG)
    text = read_until(sock, b"reasoning_content")
    sock.close()
    server.wait_idle(2)
    end = time.monotonic() + 5
    while server.metric("sparkling_output_tokens_total") == before:
        assert time.monotonic() < end
        time.sleep(0.02)
    row = [line for line in server.log_text().splitlines() if line.startswith("chat 499 stream")][-1]
    assert text and int(row.split(" out ")[1].split()[0]) == server.metric("sparkling_output_tokens_total") - before > 0


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
        # However slow the model is, a prompt is read in slices of 200 ms: who leaves in the middle of one frees it.
        sock = server.open_stream("/v1/chat/completions", {"messages": user("two three four five six one " * 100), "max_tokens": 1})
        read_until(sock, b": working")
        sock.close()
        assert server.wait_idle(5) < 0.5
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
