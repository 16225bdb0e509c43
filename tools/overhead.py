"""What HTTP costs: decode speed of a streamed chat against `run`, and the time from the engine's token to the client's byte.

    tools/overhead.py [--threads N] [--tokens 400] [--rounds 5] [--draft 3] [--model FOLDER] [--json]

Rounds of `run` and of streams are taken in turns, so that both see the same machine; the figures are medians, the cost that
of the rounds, with its 95 % interval by resampling. The draft depth is fixed: the automatic one learns over answers, so that
a server would not run what a first answer runs. The way of a token is measured on one clock: a stream with "token_times":
true carries the time at which the engine had the tokens of a chunk.
"""

import argparse
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUESTION = "Tom has 3 apples and buys 4 more. How many apples does he have?"


def run_speed(program, options, tokens):
    done = subprocess.run([program, "run", *options, "-p", QUESTION, "--temperature", "0", "--ignore-eos",
                           "--max-tokens", str(tokens), "--json"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return json.loads(done.stdout)["timings"]["decode_tok_s"]


def stream(port, tokens):
    """(tok/s as the engine measured it, tok/s as the client saw it, delays in ms of every token)"""
    body = json.dumps({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": tokens,
                       "ignore_eos": True, "stream": True, "token_times": True}).encode()
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        received, text = [], b""
        while b"data: [DONE]" not in text[-200:]:
            got = sock.recv(1 << 16)
            now = time.monotonic()
            assert got, text[-300:]
            text += got
            received.append((len(text), now))
    at, delays, arrivals, engine = 0, [], [], None
    position = 0
    for line in text.split(b"\n"):
        position += len(line) + 1
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        while received[at][0] < position:
            at += 1
        if event.get("timings"):
            engine = event["timings"]["decode_tok_s"]
        if event["choices"] and (event["choices"][0]["delta"].get("content") or event["choices"][0]["delta"].get("reasoning_content")):
            delays.append(1e3 * received[at][1] - event["engine_us"] / 1e3)
            arrivals.append(received[at][1])
    return engine, tokens / (arrivals[-1] - arrivals[0]), delays


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--threads", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draft", type=int, default=3)
    parser.add_argument("--model")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    program = os.environ.get("SPARKLING", str(ROOT / "build" / "sparkling"))
    options = [*([a.model] if a.model else []), "--threads", str(a.threads), "--draft", str(a.draft)]
    server = subprocess.Popen([program, "serve", *options, "--port", "0", "-q"],
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        port = int(server.stdout.readline().decode().rsplit(":", 1)[1])
        stream(port, 20)
        runs, engines, clients, delays = [], [], [], []
        for _ in range(a.rounds):
            runs.append(run_speed(program, options, a.tokens))
            engine, client, late = stream(port, a.tokens)
            engines.append(engine)
            clients.append(client)
            delays += late
    finally:
        server.terminate()
        server.wait(30)
    delays.sort()
    run, engine = statistics.median(runs), statistics.median(engines)
    costs = [100 * (1 - b / a) for a, b in zip(runs, engines, strict=True)]
    resampled = sorted(statistics.median(random.choices(costs, k=len(costs))) for _ in range(1000))
    out = {"threads": a.threads, "draft": a.draft, "tokens": a.tokens, "rounds": a.rounds, "run_tok_s": round(run, 1),
           "serve_tok_s": round(engine, 1),
           "client_tok_s": round(statistics.median(clients), 1), "cost_percent": round(statistics.median(costs), 2),
           "cost_95_percent": [round(resampled[25], 2), round(resampled[974], 2)],
           "token_to_byte_ms": {"median": round(delays[len(delays) // 2], 3), "p99": round(delays[int(0.99 * len(delays))], 3),
                                "max": round(delays[-1], 3)}, "load": round(os.getloadavg()[0], 1)}
    if a.json:
        print(json.dumps(out))
    else:
        for key, value in out.items():
            print(f"{key:18} {value}")


if __name__ == "__main__":
    main()
