"""Who may ask, from where, and what the server tells of itself: keys, origins, routes, log, metrics."""

import base64
import json
import pathlib
import time

import pytest

from server_support import Server, user


@pytest.fixture(scope="module")
def server():
    with Server("--queue", "4", "--keep-alive", "0.5", "--stall", "8") as running:
        yield running


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
        # The clients' own headers, without which a browser would not let them ask.
        asked = {"Origin": "https://page.example", "Access-Control-Request-Headers": "authorization,x-stainless-lang"}
        _, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers=asked)
        assert headers["Access-Control-Allow-Headers"] == "authorization,x-stainless-lang"
        assert "Retry-After" in headers["Access-Control-Expose-Headers"]
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
    # Names of fields are the client's text too, and a line feed in one would be a row of the log.
    for name in (secret, f"{secret}\nchat 200 prompt 1"):
        server.post("/v1/chat/completions", {"messages": user("x"), "chat_template_kwargs": {name: 1}})
        server.post("/v1/chat/completions", {"messages": user("x"), "logit_bias": {name: 1}})
        server.post("/v1/chat/completions", {"messages": user("x"), name: 1, "max_tokens": 1})
        call = {"id": name, "type": "function", "function": {"name": name, "arguments": "{"}}
        server.post("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [call]}]})
    log = server.log_text()
    assert "xylophone" not in log and "zanzibar" not in log
    row = next(line for line in log.splitlines() if line.startswith("chat 200 prompt") and " out 3 " in line)
    for part in ("cached", "first", "tok/s", "length", "total"):
        assert part in row, row
    assert not [line for line in log.splitlines() if line == "chat 200 prompt 1" or "\x1b" in line]
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
