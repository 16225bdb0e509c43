"""docs/API.md is what tools/api_doc.py writes, and every row of its tables is true of a real server."""

import shlex
import subprocess
import sys

import pytest

from conftest import ROOT, SPARKLING
from server_support import Server, user

sys.path.insert(0, str(ROOT / "tools"))
import api_doc  # noqa: E402  (needs the path above)

GOOD = {api_doc.CHAT: {"messages": user("x"), "max_tokens": 1}, api_doc.TEXT: {"prompt": "x", "max_tokens": 1},
        api_doc.RESPONSES: {"input": "x", "max_output_tokens": 1},
        api_doc.MESSAGES: {"model": "m", "messages": user("x"), "max_tokens": 1}}


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def test_tables_are_current():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "api_doc.py"), "--check"], text=True, capture_output=True,
                          env={"SPARKLING": str(SPARKLING), "PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_requests_of_the_page_work(server):
    """The curl line as curl would send it, the Python as it stands; only the port is this server's."""
    section = (ROOT / "docs" / "API.md").read_text().split("## A first request\n")[1].split("\n## ")[0]
    section = section.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    lines = [line[4:] for line in section.split("\n") if line.startswith("    ")]
    curl, url, flag, header, data, body = shlex.split(lines[0])
    assert (curl, flag, header, data) == ("curl", "-H", "Content-Type: application/json", "-d")
    status, _, answer = server.post(url.split(str(server.port))[1], body.encode())
    assert status == 200 and answer["choices"][0]["message"]["role"] == "assistant"
    done = subprocess.run([sys.executable, "-c", "\n".join(lines[1:])], text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.parametrize("path", list(GOOD))
def test_the_bare_request_is_fine(server, path):
    assert server.post(path, GOOD[path])[0] == 200


@pytest.mark.parametrize("field, path, value", [(f, p, bad) for f, places, _, _, bad in api_doc.FIELDS for p in places])
def test_every_field_is_read(server, field, path, value):
    body = {**GOOD[path], field: value}
    if field == "top_logprobs":
        body["logprobs"] = True
    status, _, answer = server.post(path, body)
    assert status == 400 and field in answer["error"]["message"], answer


@pytest.mark.parametrize("field, path, value", api_doc.REFUSED)
def test_what_would_change_the_answer_is_refused(server, field, path, value):
    status, _, answer = server.post(path, {**GOOD[path], field: value})
    assert status == 400 and field in answer["error"]["message"], answer
    assert server.post(path, {**GOOD[path], field: None})[0] == 200


@pytest.mark.parametrize("path", api_doc.ALL)
def test_constraints_are_refused_on_every_endpoint(server, path):
    for field, value in api_doc.CONSTRAINTS.items():
        status, _, answer = server.post(path, {**GOOD[path], field: value})
        assert status == 400 and field in answer["error"]["message"], (field, answer)
    harmless = {field: None for field in api_doc.CONSTRAINTS} | {"response_format": {"type": "text"}, "min_tokens": 0, "stop_token_ids": []}
    assert server.post(path, {**GOOD[path], **harmless})[0] == 200


def test_routes_of_the_page_are_those_of_the_server(server):
    page = (ROOT / "docs" / "API.md").read_text()
    for route in server.get("/props")[2]["routes"]:
        assert f"`{route}`" in page, route
