"""Drafts change speed and nothing else: servers of several draft depths give the same answers.

What a request asks of each single token, at every depth: server_depths_test.py.
"""

import pytest

from server_support import QUESTION, WEATHER, Server, joined, message_of, user, without_ids

DEPTHS = [1, 4, 7, "auto"]
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def plain():
    with Server("--draft", "0") as running:
        yield running


@pytest.fixture(scope="module", params=DEPTHS)
def drafting(request):
    with Server("--draft", request.param) as running:
        running.depth = request.param
        yield running


def cases(server):
    end = server.post("/tokenize", {"content": "</think>", "special": True})[2]["tokens"][0]
    ban = {str(end): -1000}
    ask = dict(messages=user(QUESTION), temperature=0, max_tokens=60)
    yield "greedy", ask
    yield "seeded", {**ask, "temperature": 1.1, "seed": 11, "n": 3, "max_tokens": 30}
    yield "tight", {**ask, "temperature": 1.5, "top_p": 0.8, "top_k": 20, "min_p": 0.01, "seed": 5}
    for budget in (1, 2, 3, 5, 8, 13):
        yield f"budget {budget}", {**ask, "thinking_budget": budget, "logit_bias": ban}
    for limit in (1, 2, 3, 5, 17):
        yield f"limit {limit}", {**ask, "max_tokens": limit, "ignore_eos": True}
    for name, value in (("repetition_penalty", 1.3), ("presence_penalty", 2), ("frequency_penalty", 2), ("presence_penalty", 30)):
        yield f"{name} {value}", {**ask, name: value, **OFF, "ignore_eos": True}
    for stop in ("7", "apples", " = ", "\n#", "4 "):
        yield f"stop {stop!r}", {**ask, **OFF, "stop": [stop, "never"]}
    yield "bias", {**ask, **OFF, "logit_bias": {"300": -100, "301": -100, "17": 3}}
    yield "tools", {**ask, "messages": user("What is the weather in Paris?"), "tools": [WEATHER], "max_tokens": 100}
    yield "one call", {**ask, "messages": user("What is the weather in Rome?"), "tools": [WEATHER], "parallel_tool_calls": False}


def test_same_text_at_every_depth(plain, drafting):
    drafted = 0
    for name, body in cases(plain):
        one, two = plain.ask(**body), drafting.ask(**body)
        for i in range(body.get("n", 1)):
            assert without_ids(message_of(two, i)) == without_ids(message_of(one, i)), name
        for field in ("completion_tokens", "prompt_tokens"):
            assert two["usage"][field] == one["usage"][field], name
        assert two["usage"]["completion_tokens_details"] == one["usage"]["completion_tokens_details"], name
        streamed = joined(drafting.stream(**body)[0])
        assert without_ids(streamed[0]) == without_ids(message_of(one)), name
        drafted += len(two["timings"]["acceptance"])
        assert one["timings"]["acceptance"] == []
    assert drafted > 0 or drafting.depth == "auto"


def test_budgets_and_limits_to_the_token(drafting):
    end = drafting.post("/tokenize", {"content": "</think>", "special": True})[2]["tokens"][0]
    for budget in range(1, 12):
        usage = drafting.chat(thinking_budget=budget, logit_bias={str(end): -1000}, max_tokens=30)["usage"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] == budget
    for limit in range(1, 12):
        assert drafting.chat(max_tokens=limit, ignore_eos=True)["usage"]["completion_tokens"] == limit


def test_the_plan_and_the_counters_say_so(drafting):
    drafting.chat(max_tokens=60, ignore_eos=True)
    if drafting.depth == "auto":
        return  # whether it drafts is measured, not promised
    assert drafting.metric("sparkling_drafted_tokens_total") > 0
    timings = drafting.chat(max_tokens=60, ignore_eos=True)["timings"]
    assert 1 <= timings["accept_length"] <= drafting.depth + 1
    assert len(timings["acceptance"]) == drafting.depth and all(0 <= a <= 1 for a in timings["acceptance"])
    assert "accept" in drafting.log_text()
