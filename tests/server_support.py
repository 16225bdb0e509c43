"""What the server's tests share: a real `sparkling serve` on a free port, and clients from raw sockets to the real SDKs."""

import contextlib
import http.client
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time

from conftest import SPARKLING

QUESTION = "Tom has 3 apples and buys 4 more. How many apples does he have?"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "city"}},
                   "required": ["city"]}}}


def user(text):
    return [{"role": "user", "content": text}]


LONG = {"messages": user(QUESTION), "temperature": 0, "max_tokens": 60000, "ignore_eos": True}  # minutes, unless the client leaves
# Some 25 tokens a second on any machine of today: for who must be met in the middle of something that ends by itself.
SLOW = ("--backend", "reference")


def forcing(ids):
    """Fields that make a greedy answer these few ids, all different, in this order.

    The first is biased most; one that has come is penalised below all that have not.
    """
    assert len(set(ids)) == len(ids)
    spread = 170 / max(len(ids) - 1, 1)
    return {"temperature": 0, "max_tokens": len(ids), "ignore_eos": True, "presence_penalty": 100, "frequency_penalty": 100,
            "logit_bias": {str(id_): 1000 - spread * place for place, id_ in enumerate(ids)}}


def end_of_thinking(server):
    """The id of `</think>`."""
    return server.post("/tokenize", {"content": "</think>", "special": True})[2]["tokens"][0]


class Server:
    """A server process. Leaving the `with` block stops it; its log is in .log_text()."""

    def __init__(self, *options, wait=True, env=None, model=None, prefix=()):
        assert SPARKLING.is_file(), f"{SPARKLING} is not built; `make build` does that"
        self.log = tempfile.TemporaryFile()
        arguments = [*prefix, str(SPARKLING), "serve", *([str(model)] if model else []), "--port", "0",
                     *map(str, options)]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SPARKLING_") or k == "SPARKLING_MODEL"}
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log,
                                        env={**kept, **(env or {})})
        self.port = None
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds=120):
        lines = queue.Queue()
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()
        line = lines.get(timeout=seconds).decode()
        assert line.startswith("listening on http://"), line + self.log_text()
        self.port = int(line.rsplit(":", 1)[1])

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def log_text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self, how=signal.SIGTERM, seconds=30):
        """Sends a signal; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.stop()
        self.log.close()
        self.process.stdout.close()

    # ---- plain HTTP ----

    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers, parsed JSON or text) of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            send = dict(headers or {})
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            if body is not None:
                send.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, send)
            answer = connection.getresponse()
            text = answer.read().decode()
            try:
                return answer.status, answer.headers, json.loads(text)
            except ValueError:
                return answer.status, answer.headers, text
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def ask(self, path="/v1/chat/completions", status=200, **body):
        got, _, answer = self.post(path, body)
        assert got == status, answer
        return answer

    def chat(self, text=QUESTION, status=200, **more):
        """A greedy chat answer, 40 tokens at most unless said otherwise."""
        body = {"messages": user(text) if isinstance(text, str) else text, "temperature": 0, "max_tokens": 40, **more}
        return self.ask(status=status, **body)

    # ---- streams ----

    def open_stream(self, path, body, timeout=120, headers=None):
        """A raw socket on which a streamed request has been sent."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        payload = json.dumps({**body, "stream": True}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items())
        sock.sendall(head.encode() + b"\r\n" + payload)
        return sock

    def stream(self, path="/v1/chat/completions", timeout=120, **body):
        """All events of a stream as (event name or None, parsed data) and the list of comments."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == 200, text
        assert answer.headers["Content-Type"] == "text/event-stream"
        return parse_events(text)

    def busy(self):
        """(running, waiting)"""
        live = self.get("/health")[2]
        return live["running"], live["waiting"]

    def wait_idle(self, seconds):
        """Seconds until nothing runs and nothing waits."""
        start = time.monotonic()
        while self.busy() != (0, 0):
            assert time.monotonic() - start < seconds, f"still busy after {seconds} s"
            time.sleep(0.01)
        return time.monotonic() - start

    def wait_busy(self, running=1, waiting=0, seconds=20):
        start = time.monotonic()
        while self.busy() != (running, waiting):
            assert time.monotonic() - start < seconds, f"busy {self.busy()}, expected {(running, waiting)}"
            time.sleep(0.01)

    def metric(self, name):
        text = self.get("/metrics")[2]
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def processor_seconds(self):
        """What the process has computed so far: other than a clock, the same on a busy machine."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


def read_until(sock, wanted, seconds=60):
    """What comes from a socket up to and with these bytes."""
    text, end = b"", time.monotonic() + seconds
    while wanted not in text:
        assert time.monotonic() < end, text[-500:]
        got = sock.recv(65536)
        assert got, text[-500:]
        text += got
    return text


def parse_events(text):
    events, comments = [], []
    for block in text.split("\n\n"):
        name, data = None, None
        for line in block.split("\n"):
            if line.startswith(":"):
                comments.append(line[1:].strip())
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            else:
                assert not line, f"not an event: {line!r}"
        if data is not None:
            events.append((name, data if data == "[DONE]" else json.loads(data)))
    return events, comments


def joined(events):
    """Per choice what the chunks of a chat stream add up to."""
    out = {}
    for _, data in events:
        if data == "[DONE]":
            continue
        assert "error" not in data, data
        for choice in data["choices"]:
            sum_ = out.setdefault(choice["index"], {"content": "", "reasoning": "", "calls": [], "finish": None})
            delta = choice["delta"]
            sum_["content"] += delta.get("content") or ""
            sum_["reasoning"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                if call["index"] == len(sum_["calls"]):
                    sum_["calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                sum_["calls"][call["index"]]["arguments"] += call["function"].get("arguments") or ""
            if choice["finish_reason"]:
                assert sum_["finish"] is None
                sum_["finish"] = choice["finish_reason"]
    return out


def message_of(answer, index=0):
    """The same form from a whole chat answer."""
    choice = answer["choices"][index]
    message = choice["message"]
    return {"content": message["content"] or "", "reasoning": message.get("reasoning_content", ""),
            "calls": [{"id": c["id"], **c["function"]} for c in message.get("tool_calls", [])],
            "finish": choice["finish_reason"]}


def without_ids(message):
    return {**message, "calls": [{k: v for k, v in c.items() if k != "id"} for c in message["calls"]]}
