"""Thinking: its switches and their order, budgets, its end on demand; and the prompts that messages become."""

import json

import pytest
from conftest import ROOT

from server_support import LONG, QUESTION, WEATHER, Server, end_of_thinking, joined, message_of, read_until, user


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.mark.parametrize("limit", [16, 200])
def test_small_budgets_say_what_happened(server, limit):
    body = dict(messages=user(QUESTION * 3), temperature=0, max_tokens=limit, ignore_eos=True,
                logit_bias={str(end_of_thinking(server)): -1000})
    whole = server.ask(**body)
    message = message_of(whole)
    assert whole["choices"][0]["message"]["content"] == "" and message["reasoning"] and message["finish"] == "length"
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == limit
    assert whole["usage"]["completion_tokens"] == limit
    assert joined(server.stream(**body)[0])[0] == message


@pytest.mark.parametrize("fields, on", [
    ({}, True), ({"reasoning_effort": "none"}, False), ({"reasoning_effort": "low"}, True), ({"reasoning_effort": "high"}, True),
    ({"chat_template_kwargs": {"enable_thinking": False}}, False), ({"chat_template_kwargs": {"enable_thinking": True}}, True),
    ({"chat_template_kwargs": {"thinking_option": "off"}}, False), ({"thinking": {"type": "disabled"}}, False),
    # More than it needs: cut short, ling-nano goes on in the answer and then closes its block by itself.
    ({"thinking": {"type": "enabled", "budget_tokens": 20}}, True), ({"thinking_budget": 0}, False),
    # The order: template argument, thinking, effort.
    ({"enable_thinking": False}, False), ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, False),
    ({"reasoning": {"effort": "none"}}, False), ({"reasoning": {"effort": "none"}, "reasoning_effort": "low"}, True),
    ({"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"}, True),
    ({"chat_template_kwargs": {"enable_thinking": False}, "thinking": {"type": "enabled"}}, False),
    ({"thinking": {"type": "enabled"}, "reasoning_effort": "none"}, True),
])
def test_switches_and_their_order(server, fields, on):
    answer = server.chat(max_tokens=24, **fields)
    message = message_of(answer)
    assert bool(message["reasoning"]) == on
    assert (answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0) == on
    assert "think>" not in message["content"]


@pytest.mark.parametrize("fields, on", [
    ({}, True), ({"chat_template_kwargs": {"enable_thinking": True}}, True), ({"chat_template_kwargs": {"enable_thinking": False}}, False),
    ({"reasoning_effort": "none"}, False), ({"reasoning_effort": "low"}, True), ({"reasoning_effort": "high"}, True)])
def test_no_thinking_in_content_over_twenty_prompts(server, fields, on):
    for kind in ("problems", "no_thinking"):
        for line in (ROOT / "tests/data/nano" / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()[:10]:
            answer = server.chat(json.loads(line)["messages"], max_tokens=24, **fields)
            message, reasoning = message_of(answer), answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
            assert "think>" not in message["content"] + message["reasoning"]
            assert (reasoning > 0, bool(message["reasoning"])) == (on, on), line
            assert reasoning <= answer["usage"]["completion_tokens"]


@pytest.mark.parametrize("fields, param", [
    ({"reasoning_effort": "extreme"}, "reasoning_effort"), ({"reasoning_effort": 3}, "reasoning_effort"),
    ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs.enable_thinking"),
    ({"chat_template_kwargs": {"colour": 1}}, "chat_template_kwargs"),
    ({"thinking": {"type": "sometimes"}}, "thinking.type"), ({"thinking_budget": -1}, "thinking_budget"),
    ({"thinking": {"type": "enabled", "budget_tokens": -5}}, "thinking.budget_tokens"),
])
def test_unknown_values_are_refused(server, fields, param):
    assert server.chat(status=400, **fields)["error"]["param"] == param


def test_prompts_equal_the_models_own_template(server):
    import jinja2
    source = (ROOT / "models" / "ling-nano" / "chat_template.jinja").read_text()
    environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"], trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(source)
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Z\u00fcrich", "n": 2}}}
    sent = {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
    chats = [user("Hi"), [{"role": "system", "content": "Be brief."}, *user("Hi")],
             [*user("a"), {"role": "assistant", "content": "b", "reasoning_content": "r"}, *user("c")],
             [*user("a"), {"role": "assistant", "content": "", "tool_calls": [call]},
              {"role": "tool", "content": "{}", "tool_call_id": "c"}],
             [*user("a"), {"role": "assistant", "content": "x", "tool_calls": [call, call]},
              {"role": "tool", "content": "1", "tool_call_id": "c"}, {"role": "tool", "content": "2", "tool_call_id": "c"}]]
    for chat in chats:
        for tools in ([], [WEATHER]):
            for thinking in (True, False):
                wanted = template.render(messages=chat, tools=tools, enable_thinking=thinking, add_generation_prompt=True)
                body = [{**m, "tool_calls": [sent] * len(m["tool_calls"])} if "tool_calls" in m else m for m in chat]
                got = server.post("/apply-template", {"messages": body, "tools": tools,
                                                      "chat_template_kwargs": {"enable_thinking": thinking}})[2]
                assert got["prompt"] == wanted


@pytest.mark.parametrize("messages, status", [
    ([{"role": "system", "content": "a"}, *user("b"), {"role": "system", "content": "c"}, *user("d")], 200),
    ([{"role": "system", "content": "a"}, {"role": "system", "content": "b"}], 200),
    ([{"role": "system", "content": "a"}], 200), ([], 400), ([{"role": "assistant", "content": "a"}], 200),
    ([*user("a"), {"role": "tool", "tool_call_id": "nobody", "content": "b"}], 200),
])
def test_odd_orders_of_roles(server, messages, status):
    answer = server.chat(messages, max_tokens=2, status=status)
    if status == 400:
        assert answer["error"]["param"] == "messages"


@pytest.mark.parametrize("messages, status", [
    ([{"role": "developer", "content": "a"}, *user("b")], 200),
    ([*user("b"), {"role": "developer", "content": "a"}, *user("c")], 200),
    ([{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, *user("c")], 200),
    ([*user("b"), {"role": "function", "name": "f", "content": "a"}], 200),
    ([{"role": "foo", "content": "a"}], 400), ([{"role": 7, "content": "a"}], 400), ([{"content": "a"}], 400),
])
def test_roles(server, messages, status):
    answer = server.chat(messages, max_tokens=2, status=status)
    if status == 400:
        assert answer["error"]["param"] == "messages[0].role"
    elif messages[0]["role"] == "developer":
        prompt = server.post("/apply-template", {"messages": messages})[2]["prompt"]
        assert prompt.startswith("<role>SYSTEM</role>a\n")


@pytest.mark.parametrize("budget", [0, 1, 7, 50, None])
def test_a_budget_is_kept_to_the_token(server, budget):
    # Neither its reasoning nor its answer is ended by the model itself: only the budget and the length do.
    end_of_answer = server.post("/tokenize", {"content": "<|role_end|>", "special": True})[2]["tokens"][0]
    ban = {str(end): -1000 for end in (end_of_thinking(server), end_of_answer)}
    body = dict(messages=user(QUESTION * 2), temperature=0, max_tokens=300, thinking_budget=budget)
    answer = server.ask(**body, logit_bias=ban)
    usage = answer["usage"]["completion_tokens_details"]
    message = message_of(answer)
    if budget is None:  # no limit: only the answer's own end, or its length
        assert usage["reasoning_tokens"] > 50 and message["content"] == ""
        return
    assert usage["reasoning_tokens"] == budget
    assert message["content"] and "think>" not in message["content"]
    assert bool(message["reasoning"]) == (budget > 0)
    assert joined(server.stream(**body, logit_bias=ban)[0])[0] == message


def test_reasoning_ends_once(server):
    """A model that the budget cut short may close its reasoning again: that is no text of the answer."""
    eager = {str(end_of_thinking(server)): 1000}  # nothing else from the first free token on
    body = dict(messages=user(QUESTION), temperature=0, max_tokens=6, thinking_budget=1, logit_bias=eager)
    message = message_of(server.ask(**body))
    assert "think>" not in (message["content"] or "")
    assert joined(server.stream(**body)[0])[0] == message


def test_as_a_server_flag(sparkling):
    assert "--thinking-budget" in sparkling("serve", "--port", 0, "--thinking-budget", -1, status=2).stderr
    with Server("--thinking-budget", "3") as server:
        ban = {str(end_of_thinking(server)): -1000}
        answer = server.chat(logit_bias=ban)
        assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3
    with Server("--thinking-budget", "0") as server:
        assert server.chat()["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_stop_thinking_puts_the_end_at_once(server):
    ban = {str(end_of_thinking(server)): -1000}
    sock = server.open_stream("/v1/chat/completions", {**LONG, "logit_bias": ban})
    text = b""
    while text.count(b"reasoning_content") < 5:
        text += sock.recv(65536)
    id_ = json.loads(text.split(b"data: ", 1)[1].split(b"\n", 1)[0])["id"]
    status, _, answer = server.request("POST", f"/v1/chat/completions/{id_}/stop_thinking")
    assert (status, answer["stopped"]) == (200, True)
    seen = len(text)
    while b'"content":"' not in text[seen:]:
        text += sock.recv(65536)
    sock.close()
    server.wait_idle(2)
    assert server.request("POST", f"/v1/chat/completions/{id_}/stop_thinking")[0] == 404


def id_of(text):
    return text.split(b'"id":"', 1)[1].split(b'"')[0].decode()


def stop_thinking(server, id_):
    return server.request("POST", f"/v1/chat/completions/{id_}/stop_thinking")[0]


@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", {"messages": user(QUESTION), "max_tokens": 20, "n": 2}), ("/v1/responses", {"input": QUESTION, "max_output_tokens": 20})])
def test_stop_thinking_while_waiting_means_no_thinking(server, path, body):
    ban = {"temperature": 0, "ignore_eos": True, "logit_bias": {str(end_of_thinking(server)): -1000}}
    blocker = server.open_stream("/v1/chat/completions", LONG)
    server.wait_busy(1, 0)
    waiting = server.open_stream(path, {**body, **ban})
    text = read_until(waiting, b'"id":"')
    server.wait_busy(1, 1)
    assert stop_thinking(server, id_of(text)) == 200
    blocker.close()
    text += read_until(waiting, b"0\r\n\r\n")
    waiting.close()
    assert b"reasoning_content" not in text and b"reasoning_text" not in text
    assert text.count(b'"content":"') > 2 or b"output_text.delta" in text


def test_stop_thinking_by_the_id_of_a_message_and_at_odd_times(server):
    ban = {"temperature": 0, "ignore_eos": True, "logit_bias": {str(end_of_thinking(server)): -1000}}
    body = {"model": "m", "messages": user(QUESTION), "max_tokens": 60000, "thinking": {"type": "enabled"}, **ban}
    sock = server.open_stream("/v1/messages", body)
    id_ = id_of(read_until(sock, b"thinking_delta"))
    assert stop_thinking(server, id_) == 200
    read_until(sock, b"text_delta")
    assert [stop_thinking(server, id_) for _ in range(3)] == [200] * 3  # over already: nothing happens
    sock.close()
    server.wait_idle(5)
    assert [stop_thinking(server, odd) for odd in (id_, "x", "x/y", "..", "%00", "a" * 300)] == [404] * 6
