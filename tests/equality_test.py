"""Drafts change the speed, never the text: greedy and seeded answers are byte-equal at every depth.

All eight combinations of the three optimisations: expert kernel (plain, packed), head (bf16, fp8), drafts (off, or forced to
depth 1 to 4), each against the same kernels without drafts; and in each cell with drafts the accept length at depth 3 is at
least 2 on the answers of ling-nano. `make test` runs 20 prompts of 64 tokens, `make equality` 200 of 256
(EQUALITY_PROMPTS, EQUALITY_TOKENS).
"""

import json
import os

import pytest
from conftest import ROOT
from server_support import Server

PROMPTS = int(os.environ.get("EQUALITY_PROMPTS", "20"))
TOKENS = int(os.environ.get("EQUALITY_TOKENS", "64"))
DEPTHS = (1, 2, 3, 4)


def questions():
    """PROMPTS questions, taking turns among the kinds of tests/data/nano."""
    kinds = [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
             for path in sorted((ROOT / "tests/data/nano").glob("*.jsonl"))]  # fmt: skip
    kinds = [[item for item in kind if "messages" in item] for kind in kinds]
    turns = [kind[i] for i in range(max(map(len, kinds))) for kind in kinds if i < len(kind)]
    assert len(turns) >= PROMPTS
    return turns[:PROMPTS]


def answers(options):
    """(texts, accept length of the seeded answers) of one server."""
    texts, cycles, tokens = [], 0, 0
    with Server("--quiet", *options) as server:
        for number, item in enumerate(questions()):
            chat = {"messages": item["messages"], "max_tokens": TOKENS,
                    "chat_template_kwargs": {"enable_thinking": bool(item.get("thinking", True))}}  # fmt: skip
            for more in ({"temperature": 0, "ignore_eos": True, "repetition_penalty": 1.1 if number % 4 == 3 else 1.0},
                         {"temperature": 0.8, "top_p": 0.95, "seed": number}):  # fmt: skip
                body = server.ask(**chat, **more)
                message = body["choices"][0]["message"]
                texts.append((message.get("reasoning_content"), message["content"], message.get("tool_calls") is None))
            length = body["timings"].get("accept_length", 0)
            made = body["usage"]["completion_tokens"]
            if length:
                tokens += made
                cycles += made / length
    return texts, tokens / cycles if cycles else 0


@pytest.mark.parametrize("head", ["bf16", "fp8"])
@pytest.mark.parametrize("experts", ["plain", "packed"])
def test_the_text_is_the_same_at_any_depth(experts, head):
    kernels = ("--precision", "fast", "--moe", experts, "--lm-head", head)
    plain, none = answers((*kernels, "--draft", 0, "--require", f"moe={experts},lm-head={head},draft=0"))
    assert none == 0 and any(text[1] for text in plain)
    for depth in DEPTHS:
        require = f"moe={experts},lm-head={head},draft={depth}"
        texts, length = answers((*kernels, "--draft", depth, "--require", require))
        different = [i for i, (a, b) in enumerate(zip(plain, texts, strict=True)) if a != b]
        assert not different, f"depth {depth}: {[(plain[i], texts[i]) for i in different[:1]]}"
        if depth == 3:
            assert length >= 2, length
