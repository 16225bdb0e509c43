"""Every fixed depth of drafts with an FP8 head: what a request asks for holds for the tokens of drafts as for any other.

Each server proves by its launch counters that it runs what is tested. Texts of many shapes at more depths: server_drafts_test.py.
"""

import json
import math

import pytest

from conftest import ROOT
from server_support import QUESTION, WEATHER, Server, joined, message_of, user

OFF = {"chat_template_kwargs": {"enable_thinking": False}}
LONG = dict(messages=user(QUESTION), temperature=0, max_tokens=300, ignore_eos=True, **OFF)


@pytest.fixture(scope="module")
def plain():
    with Server("--quiet", "--lm-head", "fp8", "--draft", 0, "--require", "lm-head=fp8,draft=0") as running:
        yield running


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def drafting(request):
    require = f"lm-head=fp8,draft={request.param}"
    with Server("--quiet", "--lm-head", "fp8", "--draft", request.param, "--require", require) as running:
        yield running


@pytest.fixture(scope="module")
def four():
    with Server("--quiet", "--lm-head", "fp8", "--draft", 4, "--require", "lm-head=fp8,draft=4") as running:
        yield running


def scores(answer):
    return answer["choices"][0]["logprobs"]["content"]


def test_a_ban_and_a_force_hold_for_200_tokens(drafting):
    def tokens(**more):
        ask = {"prompt": "one two three four", "temperature": 0, "max_tokens": 200, "ignore_eos": True, "logprobs": 0, **more}
        return drafting.ask("/v1/completions", **ask)["choices"][0]["logprobs"]["tokens"]

    often = tokens()
    shown = max((t for t in set(often) if t.strip().isalpha()), key=often.count)
    banned = drafting.post("/tokenize", {"content": shown})[2]["tokens"]
    assert len(often) == 200 and len(banned) == 1 and often.count(shown) > 2
    for more in ({}, {"temperature": 1.2, "seed": 1}, {"temperature": 1.2, "seed": None}):
        found = tokens(**{"logit_bias": {str(banned[0]): -100}, **more})
        assert len(found) == 200 and shown not in found
        assert tokens(**{"logit_bias": {str(banned[0]): 100}, **more}) == [shown] * 200


@pytest.mark.parametrize("penalty", [{"repetition_penalty": 1.3}, {"presence_penalty": 2}, {"frequency_penalty": 2}])
def test_penalties_over_300_tokens(plain, drafting, penalty):
    expected = plain.ask(**LONG, **penalty)["choices"][0]["message"]["content"]
    assert drafting.ask(**LONG, **penalty)["choices"][0]["message"]["content"] == expected


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "top_k": 20, "seed": 3}, {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "seed": 4}])
def test_log_probabilities_are_those_of_the_target(plain, drafting, sampling):
    ask = {**LONG, "max_tokens": 120, "logprobs": True, "top_logprobs": 5, **sampling}
    one, answer = scores(plain.ask(**ask)), drafting.ask(**ask)
    two = scores(answer)
    assert [s["token"] for s in two] == [s["token"] for s in one]
    for a, b in zip(one, two, strict=True):
        assert b["logprob"] == pytest.approx(a["logprob"], abs=1e-2)
        assert [t["logprob"] for t in b["top_logprobs"]] == pytest.approx([t["logprob"] for t in a["top_logprobs"]], abs=1e-2)
        assert sum(math.exp(t["logprob"]) for t in b["top_logprobs"]) <= 1 + 1e-6
    assert len({round(s["logprob"], 3) for s in two}) > 5
    assert sum(answer["timings"]["acceptance"]) > 0


def test_never_more_tokens_than_asked_for(four):
    """Twelve prompts: what is counted is what was delivered, token by token, and reasoning is part of it."""
    items = [json.loads(line) for line in (ROOT / "tests/data/nano/problems.jsonl").read_text(encoding="utf-8").splitlines()[:12]]
    for number, item in enumerate(items):
        for limit in (1, 2, 3, 5, 64):
            body = {"messages": item["messages"], "temperature": 0, "max_tokens": limit, "logprobs": True, **OFF}
            answer = four.ask(**body)
            made = answer["usage"]["completion_tokens"]
            assert made == limit if answer["choices"][0]["finish_reason"] == "length" else made <= limit
            assert len(scores(answer)) == made
            content = answer["choices"][0]["message"]["content"]
            assert "".join(s["token"] for s in scores(answer)) == content
            assert len(four.post("/tokenize", {"content": content})[2]["tokens"]) <= made
        body = {"messages": item["messages"], "temperature": 0, "max_tokens": (1, 3, 64)[number % 3]}
        usage = four.ask(**body)["usage"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] <= usage["completion_tokens"] <= body["max_tokens"]


def test_tool_choice_in_every_combination(plain, four):
    """none never calls, auto may, and what is not enforced yet is refused: thinking or not, streamed or not, with drafts or not."""
    called = 0
    for server in (plain, four):
        for thinking in (True, False):
            for stream in (True, False):
                body = dict(messages=user("What is the weather in Paris?"), tools=[WEATHER], temperature=0, max_tokens=60,
                            chat_template_kwargs={"enable_thinking": thinking})
                for choice in ("auto", "none"):
                    ask = {**body, "tool_choice": choice}
                    message = joined(server.stream(**ask)[0])[0] if stream else message_of(server.ask(**ask))
                    assert "<tool_call>" not in message["content"] + message["reasoning"]
                    if choice == "none":
                        assert message["calls"] == [] and message["finish"] in ("stop", "length")
                    else:
                        assert [c["name"] for c in message["calls"]] == ["get_weather"] and message["finish"] == "tool_calls"
                        called += 1
                for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
                    status, headers, answer = server.post("/v1/chat/completions", {**body, "tool_choice": choice, "stream": stream})
                    assert status == 400 and answer["error"]["param"] == "tool_choice"
                    assert headers["Content-Type"] == "application/json"
    assert called == 8


def test_unseeded_samples_have_the_plain_distribution(plain, four):
    """2,000 continuations of two tokens, temperature 1.5: the second one comes out of a verify pass with the request's own settings.

    Against probabilities that the server without drafts reports. Without a seed every run draws anew, so the bound is that of one
    false alarm in a million. The second one's probabilities come from a step after a first one that a bias forces: reading both as a
    prompt rounds otherwise, which can change who is in top_k.
    """
    prompt = plain.post("/tokenize", {"content": "one two three"})[2]["tokens"]

    def likeliest(*first):
        """The four likeliest tokens after the prompt, or after it and `first`, with their probabilities at temperature 1.5 and top_k 4."""
        answer = plain.ask("/v1/completions", prompt=prompt, temperature=0, max_tokens=1 + len(first), logprobs=5, ignore_eos=True,
                           logit_bias={str(id_): 1000 for id_ in first})
        top = answer["choices"][0]["logprobs"]["top_logprobs"][len(first)]
        best = sorted(top.items(), key=lambda t: -t[1])[:4]
        weights = [math.exp(score / 1.5) for _, score in best]
        return {token: w / sum(weights) for (token, _), w in zip(best, weights, strict=True)}

    expected = {}
    for first, p in likeliest().items():
        ids = plain.post("/tokenize", {"content": first})[2]["tokens"]
        assert len(ids) == 1, first
        for second, q in likeliest(*ids).items():
            expected[first, second] = p * q
    count, cycles, tokens = dict.fromkeys(expected, 0), 0, 0
    for _ in range(250):
        answer = four.ask("/v1/completions", prompt=prompt, temperature=1.5, top_k=4, max_tokens=3, n=8, logprobs=0, ignore_eos=True)
        for choice in answer["choices"]:
            count[tuple(choice["logprobs"]["tokens"][:2])] += 1
        tokens += 1
        cycles += answer["timings"]["accept_length"]
    chi = sum((count[k] - 2000 * p) ** 2 / (2000 * p) for k, p in expected.items())
    df = len(expected) - 1
    bound = df * (1 - 2 / (9 * df) + 4.75 * math.sqrt(2 / (9 * df))) ** 3  # Wilson-Hilferty at 1e-6
    assert min(expected.values()) * 2000 > 3, expected
    assert chi < bound, (chi, bound, count)
    print(f"chi-square {chi:.1f} of {df}, bound {bound:.1f}, accept length {cycles / tokens:.2f}")
