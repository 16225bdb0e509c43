"""Mixed agent traffic against one server for SECONDS: no failure, flat memory, and no answer that depends on the others.

    tools/soak.py [--seconds 3600] [--clients 4] [--model FOLDER] [--report FILE.json]

First every conversation of the mix runs alone, twice: as it is, and with a stranger's request before each of its later
turns. Those are the two ways a later turn can be computed, from the live session or from a prompt read anew; their last
bits differ, and so may their texts (docs/ARCHITECTURE.md, on equality). Then the clients draw from the mix at random, at
once: chats of several turns, tool rounds through all three APIs, n choices, streams, stop strings, thinking budgets,
log-probabilities, clients that leave and requests that are wrong. Every answer must equal, byte by byte, the lone run whose turns were computed the same way, as the usage of each answer tells (`cached_tokens`). At the end: the same
number of open files as at the beginning, and no growth of memory in the last half.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEATHER = {"name": "get_weather", "description": "Get the weather of a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
CITIES = ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Tokyo"]
NAMES = ["Tom", "Ann", "Sam", "Mia"]


class Failure(Exception):
    pass


class Client:
    """One HTTP connection that is opened anew now and then; `way` says of each turn whether it went on from the live session."""

    def __init__(self, port, apart=False):
        self.port, self.connection = port, None
        self.apart, self.way = apart, []

    def turn(self, body):
        """A chat completion, one of several in a conversation."""
        if self.apart and self.way:
            ok(*self.post("/v1/completions", {"prompt": "a stranger", "max_tokens": 1}))
        whole = ok(*self.post("/v1/chat/completions", body))
        self.way.append(whole["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
        return whole["choices"][0]["message"]

    def post(self, path, body):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        while True:
            self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            text = answer.read().decode()
            if answer.status == 429:
                time.sleep(0.05)
                continue
            return answer.status, text

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


def ok(status, text):
    if status != 200:
        raise Failure(f"status {status}: {text[:300]}")
    return json.loads(text)


def events(status, text):
    if status != 200:
        raise Failure(f"status {status}: {text[:300]}")
    out = []
    for line in text.split("\n"):
        if line.startswith("data: {"):
            out.append(json.loads(line[6:]))
            if "error" in out[-1] and out[-1]["error"]:
                raise Failure(line[:300])
    return out


# ---- the mix: each item is (name, function(client) -> what must be equal) ----


def chat(messages, **more):
    def run(client):
        body = {"messages": messages, "temperature": 0, "max_tokens": 48, **more}
        whole = ok(*client.post("/v1/chat/completions", body))
        return [[c["message"]["content"], c["message"].get("reasoning_content"), c["finish_reason"]] for c in whole["choices"]]
    return run


def chat_stream(messages, **more):
    def run(client):
        body = {"messages": messages, "temperature": 0, "max_tokens": 48, "stream": True, **more}
        sums = {}
        for event in events(*client.post("/v1/chat/completions", body)):
            for choice in event["choices"]:
                sum_ = sums.setdefault(choice["index"], ["", "", None])
                sum_[0] += choice["delta"].get("content") or ""
                sum_[1] += choice["delta"].get("reasoning_content") or ""
                sum_[2] = choice["finish_reason"] or sum_[2]
        return [sums[i] for i in sorted(sums)]
    return run


def turns(first, second):
    """A conversation of two turns; the second repeats the first's answer as the client got it."""
    def run(client):
        history = [{"role": "user", "content": first}]
        out = []
        for question in (second, None):
            text = client.turn({"messages": history, "temperature": 0, "max_tokens": 40, "reasoning_effort": "none"})["content"]
            out.append(text)
            if question:
                history += [{"role": "assistant", "content": text}, {"role": "user", "content": question}]
        return out
    return run


def tool_round(city):
    def run(client):
        tools = [{"type": "function", "function": WEATHER}]
        history = [{"role": "user", "content": f"What is the weather in {city}?"}]
        body = {"tools": tools, "temperature": 0, "max_tokens": 80}
        message = client.turn({**body, "messages": history})
        calls = [c["function"] for c in message.get("tool_calls") or []]
        for call in calls:
            json.loads(call["arguments"])
        history.append({k: message[k] for k in ("role", "content", "tool_calls") if message.get(k) is not None})
        if not message.get("tool_calls") and not message["content"]:
            return [calls, None]
        for call in message.get("tool_calls") or []:
            history.append({"role": "tool", "tool_call_id": call["id"], "content": '{"sky": "clear", "degrees": 21}'})
        return [calls, client.turn({**body, "messages": history})["content"]]
    return run


def anthropic_round(city):
    def run(client):
        tools = [{"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}]
        body = {"model": "m", "max_tokens": 80, "temperature": 0, "tools": tools, "stream": True,
                "messages": [{"role": "user", "content": f"What is the weather in {city}?"}]}
        out = {}
        for event in events(*client.post("/v1/messages", body)):
            if event["type"] == "content_block_start":
                out[event["index"]] = [event["content_block"]["type"], event["content_block"].get("name"), ""]
            if event["type"] == "content_block_delta":
                delta = event["delta"]
                out[event["index"]][2] += delta.get("text") or delta.get("partial_json") or delta.get("thinking") or ""
        for kind, _, text in out.values():
            if kind == "tool_use":
                json.loads(text or "{}")
        return [out[i] for i in sorted(out)]
    return run


def responses(text):
    def run(client):
        answer = ok(*client.post("/v1/responses", {"input": text, "temperature": 0, "max_output_tokens": 40}))
        return [[i["type"], i.get("content"), i["status"]] for i in answer["output"]]
    return run


def completion(prompt, **more):
    def run(client):
        answer = ok(*client.post("/v1/completions", {"prompt": prompt, "max_tokens": 24, **more}))
        return [c["text"] for c in answer["choices"]]
    return run


def wrong(client):
    status, text = client.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "temperature": -1})
    return [status, json.loads(text)["error"]["param"]]


def count(client):
    return ok(*client.post("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "one two"}]}))


def leave(client):
    """A client that goes away in the middle; nothing to compare."""
    body = json.dumps({"messages": [{"role": "user", "content": "go on"}], "max_tokens": 5000, "stream": True,
                       "ignore_eos": True}).encode()
    with socket.create_connection(("127.0.0.1", client.port)) as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sock.settimeout(30)
        time.sleep(random.random() * 0.5)
    return None


def mix():
    def question(i):
        return [{"role": "user", "content": f"{NAMES[i % 4]} has {3 + i} apples and buys {4 + i} more. How many apples does {NAMES[i % 4]} have?"}]
    items = {"wrong": wrong, "count": count, "leave": leave}
    for i in range(6):
        items[f"chat {i}"] = chat(question(i))
        items[f"stream {i}"] = chat_stream(question(i + 3), chat_template_kwargs={"enable_thinking": i % 2 == 0})
        items[f"tools {i}"] = tool_round(CITIES[i])
        items[f"anthropic {i}"] = anthropic_round(CITIES[i])
        items[f"raw {i}"] = completion(f"{NAMES[i % 4]} counts: one two three", temperature=1.0, seed=i, n=1 + i % 3)
    for i in range(3):
        items[f"turns {i}"] = turns(question(i)[0]["content"], "And what is the opposite of late?")
        items[f"responses {i}"] = responses(question(i + 6)[0]["content"])
        items[f"seeded {i}"] = chat(question(i), temperature=0.9, seed=100 + i, n=2)
        items[f"budget {i}"] = chat(question(i), thinking_budget=4 + 3 * i)
        items[f"scores {i}"] = chat(question(i), logprobs=True, top_logprobs=5, max_tokens=16)
        items[f"stop {i}"] = chat_stream(question(i), stop=["apples", "\n"], repetition_penalty=1.1)
    items["long"] = chat([{"role": "user", "content": "apples and plums " * 300}], max_tokens=8)
    return items


# ---- the run ----


def figures(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return rss / 1024, len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def start(model, options):
    program = os.environ.get("SPARKLING", str(ROOT / "build" / "sparkling"))
    process = subprocess.Popen([program, "serve", *([model] if model else []), "--port", "0", "-q", "--queue", "64", *options],
                               stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    line = process.stdout.readline().decode()
    if not line.startswith("listening on "):
        raise SystemExit(f"soak: the server did not start: {line!r}")
    return process, int(line.rsplit(":", 1)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_OF_SOAK", 3600)))
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--model")
    parser.add_argument("--report")
    parser.add_argument("--any-memory", action="store_true", help="do not judge memory (a sanitizer keeps freed blocks)")
    parser.add_argument("options", nargs="*", help="further options of `serve`, after --")
    arguments = parser.parse_args()
    process, port = start(arguments.model, arguments.options)
    failures, counts, lock = [], {}, threading.Lock()
    samples = []
    try:
        items = mix()
        alone = {}  # (name, way) -> answer
        for apart in (False, True):
            for name, run in items.items():
                client = Client(port, apart)
                got = run(client)
                client.close()
                alone[name, tuple(client.way)] = got
        _, files = figures(process.pid)
        print(f"soak: {len(items)} conversations alone in {len(alone)} ways, {files} open files; now {arguments.clients} clients for "
              f"{arguments.seconds:.0f} s", flush=True)
        end = time.monotonic() + arguments.seconds

        def work(number):
            rng = random.Random(number)
            mine = Client(port)
            while time.monotonic() < end and not failures:
                name = rng.choice(sorted(items))
                try:
                    mine.way = []
                    got = items[name](mine)
                    expected = alone[name, tuple(mine.way)]
                    if got != expected:
                        raise Failure(f"way {mine.way}: alone {expected!r}\nnow   {got!r}")
                except (Failure, OSError, http.client.HTTPException, ValueError, KeyError) as error:
                    with lock:
                        failures.append(f"{name}: {type(error).__name__}: {error}")
                    break
                with lock:
                    counts[name] = counts.get(name, 0) + 1
                if rng.random() < 0.3:
                    mine.close()
            mine.close()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(arguments.clients)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            samples.append((time.monotonic(), figures(process.pid)[0]))
            time.sleep(min(1.0, arguments.seconds / 60))
        for thread in threads:
            thread.join()
        if process.poll() is not None:
            failures.append(f"the server ended with {process.returncode}")
        else:
            time.sleep(1)
            rss, files_now = figures(process.pid)
            if files_now > files + 1:
                failures.append(f"open files: {files} before, {files_now} after")
            middle, last = samples[len(samples) // 2][1], max(s[1] for s in samples[-max(1, len(samples) // 10):])
            if not arguments.any_memory and last > middle * 1.02 + 4:
                failures.append(f"memory grew from {middle:.1f} MiB at half time to {last:.1f} MiB")
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    if status != 0:
        failures.append(f"exit status {status}")
    total = sum(counts.values())
    report = {"seconds": arguments.seconds, "clients": arguments.clients, "conversations": total,
              "kinds": len(counts), "rss_mib": [round(samples[0][1], 1), round(max(s[1] for s in samples), 1), round(samples[-1][1], 1)]
              if samples else [], "failures": failures}
    if arguments.report:
        pathlib.Path(arguments.report).write_text(json.dumps(report, indent=1) + "\n")
    print("soak:", json.dumps(report))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
