"""Sampling, log-probabilities and ranges of fields, through HTTP."""

import math

import pytest

from server_support import QUESTION, Server, joined, message_of, user

OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def ids_of(server, text):
    return server.post("/tokenize", {"content": text})[2]["tokens"]


def test_bias_holds_for_every_token(server):
    full = server.chat(max_tokens=40, ignore_eos=True, **OFF)["choices"][0]["message"]["content"]
    banned = ids_of(server, full)[2]
    answer = server.chat(max_tokens=40, ignore_eos=True, logprobs=True, logit_bias={str(banned): -100}, **OFF)
    tokens = answer["choices"][0]["logprobs"]["content"]
    text = server.post("/detokenize", {"tokens": [banned]})[2]["content"]
    assert all(t["token"] != text for t in tokens)
    forced = ids_of(server, "a")[0]
    answer = server.chat(max_tokens=20, ignore_eos=True, logit_bias={str(forced): 1000}, **OFF)
    assert answer["choices"][0]["message"]["content"] == "a" * 20


def test_log_probabilities(server):
    body = dict(messages=user(QUESTION), temperature=0, max_tokens=24, logprobs=True, top_logprobs=5, **OFF)
    whole = server.ask(**body)["choices"][0]
    scores = whole["logprobs"]["content"]
    assert "".join(s["token"] for s in scores) == whole["message"]["content"]
    for score in scores:
        assert score["logprob"] <= 0 and len(score["top_logprobs"]) == 5
        assert sum(math.exp(t["logprob"]) for t in score["top_logprobs"]) <= 1 + 1e-6
        assert score["top_logprobs"][0]["logprob"] == pytest.approx(score["logprob"], abs=1e-6)  # greedy
        assert bytes(score["bytes"]).decode(errors="replace") == score["token"]
    events, _ = server.stream(**body)
    streamed = [s for _, d in events if d != "[DONE]" for c in d["choices"] for s in (c.get("logprobs") or {}).get("content", [])]
    assert streamed == scores
    old = server.ask("/v1/completions", prompt="one two three", temperature=0, max_tokens=6, logprobs=3)["choices"][0]
    assert "".join(old["logprobs"]["tokens"]) == old["text"]
    assert [len(t) for t in old["logprobs"]["top_logprobs"]] == [3] * len(old["logprobs"]["tokens"])
    assert old["logprobs"]["text_offset"][0] == 0


def test_with_thinking_only_the_answer_is_scored(server):
    answer = server.chat(max_tokens=80, logprobs=True)["choices"][0]
    assert "".join(s["token"] for s in answer["logprobs"]["content"]) == answer["message"]["content"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("more", [{}, {"echo": True}, {"logprobs": 1}, {"stream": True}])
def test_max_tokens_zero_and_one(server, path, more):
    ask = {"prompt": "abc"} if path == "/v1/completions" else {"messages": user("abc")}
    if "chat" in path and "logprobs" in more:
        more = {"logprobs": True}
    status, _, answer = server.post(path, {**ask, **more, "max_tokens": 0})
    assert status == 400 and answer["error"]["param"] in ("max_tokens", "echo")
    status, _, _ = server.post(path, {**ask, **more, "max_tokens": 1})
    assert status in (200, 400)
    assert server.get("/health")[0] == 200


def test_first_token_is_the_stop_string(server):
    body = dict(messages=user(QUESTION), temperature=0, max_tokens=30, **OFF)
    full = server.ask(**body)["choices"][0]["message"]["content"]
    for stop in (full[:1], full):
        answer = server.ask(**body, stop=[stop], logprobs=True, top_logprobs=10)["choices"][0]
        assert answer["message"]["content"] == "" and answer["finish_reason"] == "stop"
        assert answer["logprobs"]["content"] == []
    raw = dict(prompt="one two three", temperature=0, max_tokens=10)
    full = server.ask("/v1/completions", **raw)["choices"][0]["text"]
    answer = server.ask("/v1/completions", **raw, stop=full[:1], logprobs=5)["choices"][0]
    assert answer["text"] == "" and answer["logprobs"]["tokens"] == []


def test_temperature_zero_is_greedy(server):
    texts = {message_of(server.chat(temperature=t, seed=s, max_tokens=20))["reasoning"]
             for t in (0, 0.0, 1e-8, -0.0) for s in (0, 1, 2, 3, 2 ** 63 - 1)}
    texts.add(message_of(server.chat(temperature=1, top_k=1, max_tokens=20))["reasoning"])
    assert len(texts) == 1


def test_seed_repeats_and_none_does_not(server):
    def ask(**more):
        return server.ask("/v1/completions", prompt="The", temperature=1.5, max_tokens=12, **more)["choices"][0]["text"]
    assert ask(seed=5) == ask(seed=5)
    assert len({ask() for _ in range(6)}) > 1


def test_penalties_act(server):
    base = server.chat(max_tokens=40, ignore_eos=True, **OFF)["choices"][0]["message"]["content"]
    # Far above what people use: the small model is sure of its answers.
    for name, value in (("repetition_penalty", 8), ("presence_penalty", 50), ("frequency_penalty", 50)):
        body = dict(max_tokens=40, ignore_eos=True, **{name: value}, **OFF)
        changed = server.chat(**body)["choices"][0]["message"]["content"]
        assert changed == server.chat(**body)["choices"][0]["message"]["content"]
        assert changed != base


BAD = [("top_k", -2), ("top_k", 1.5), ("top_p", 0), ("top_p", 1.5), ("min_p", -1), ("min_p", 2), ("temperature", -1),
       ("temperature", 1e38), ("temperature", "hot"), ("seed", -1), ("seed", 2 ** 63), ("seed", 1.5), ("n", 0), ("n", 9),
       ("n", 129), ("top_logprobs", -1), ("top_logprobs", 21), ("top_logprobs", 1000), ("stop", ["a"] * 17), ("stop", ""),
       ("stop", ["a", ""]), ("stop", 5), ("max_tokens", -1), ("max_tokens", 1e12), ("max_tokens", "many"),
       ("max_completion_tokens", 0), ("logit_bias", {"99999999": 1}), ("logit_bias", {"a": 1}), ("logit_bias", {"5": "x"}),
       ("logit_bias", [1]), ("presence_penalty", 1e9), ("frequency_penalty", "x"), ("repetition_penalty", 0),
       ("stream", "yes"), ("ignore_eos", 1), ("tools", {}), ("tools", [{"type": "function"}]), ("messages", "hi"),
       ("messages", [7]), ("model", 5), ("logprobs", "x"), ("parallel_tool_calls", 1), ("stream_options", 1)]


@pytest.mark.parametrize("field, value", BAD)
def test_out_of_range_names_the_field(server, field, value):
    body = {"messages": user("x"), "max_tokens": 2, field: value}
    if field == "top_logprobs":
        body["logprobs"] = True
    status, _, answer = server.post("/v1/chat/completions", body)
    assert status == 400, answer
    assert answer["error"]["param"].startswith(field) and answer["error"]["type"] == "invalid_request_error"
    assert field in answer["error"]["message"]


@pytest.mark.parametrize("field, value", [("top_k", 0), ("top_k", -1), ("top_k", 10 ** 9), ("temperature", None), ("seed", 2 ** 63 - 1),
                                          ("stop", None), ("n", 1), ("max_tokens", 10 ** 9), ("response_format", {"type": "text"}),
                                          ("user", "me"), ("metadata", {"a": "b"}), ("store", True), ("service_tier", "auto"),
                                          ("unheard_of", {"x": 1}), ("functions", []), ("modalities", ["text"])])
def test_harmless_values_are_taken(server, field, value):
    body = {"messages": user("x"), "max_tokens": 2, field: value}
    if field == "max_tokens":
        body["stop"] = ["a", "e", "o", " "]
    assert server.post("/v1/chat/completions", body)[0] == 200


@pytest.mark.parametrize("field, value", [
    ("response_format", {"type": "json_object"}),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
    ("tools", [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {}}}]),
    ("tools", [{"type": "web_search"}]), ("modalities", ["text", "audio"]), ("guided_json", {"type": "object"}),
    ("functions", [{"name": "f"}]), ("best_of", 3), ("web_search_options", {"x": 1}),
    ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]),
    ("messages", [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}])])
def test_what_cannot_be_kept_is_refused_by_name(server, field, value):
    status, _, answer = server.post("/v1/chat/completions", {"messages": user("x"), field: value})
    assert status == 400 and answer["error"]["param"].startswith(field), answer
    assert answer["error"]["code"] == "unsupported_value"


def test_strict_false_is_taken(server):
    tool = {"type": "function", "function": {"name": "f", "strict": False, "parameters": {"type": "object"}}}
    prompt = server.post("/apply-template", {"messages": user("x"), "tools": [tool]})[2]["prompt"]
    assert "strict" not in prompt
    assert server.post("/v1/chat/completions", {"messages": user("x"), "tools": [tool], "max_tokens": 2})[0] == 200


def test_without_a_guard_a_loop_ends_with_length(server):
    lamp = ids_of(server, "a")[0]
    answer = server.chat("write the word without end", max_tokens=1000, logit_bias={str(lamp): 1000}, ignore_eos=True, **OFF)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 1000


def test_sixteen_stop_strings(server):
    body = dict(messages=user(QUESTION), temperature=0, max_tokens=30, **OFF)
    full = server.ask(**body)["choices"][0]["message"]["content"]
    stops = [f"never{i}" for i in range(15)] + [full[3:6]]
    answer = server.ask(**body, stop=stops)["choices"][0]
    assert answer["message"]["content"] == full[:full.index(full[3:6])]
    assert joined(server.stream(**body, stop=stops)[0])[0]["content"] == answer["message"]["content"]
