"""Exact-answer share on long contexts in one packed pass per batch, for sets that would take minutes token by token.

    python force.py models/ling-nano --kinds lookup_8k lookup_2k

Greedy decoding gives the expected answer exactly when every token of it, and the end of the turn, is the argmax after
the true text before it; so one teacher-forced pass decides. Needs a GPU; arithmetic is the training form's bfloat16.
"""
import argparse

import torch

import make_tests
from checkpoint import training_weights
from data.mix import LONGEST
from data.render import Renderer
from model.train_form import TrainForm

DOCUMENTS = 9               # of at most LONGEST tokens: one batch is about as large as a training step


@torch.no_grad()
def right(form, documents):
    """For each (ids, prompt length): are all ids after the prompt the argmax?"""
    lengths = torch.tensor([len(ids) for ids, _ in documents])
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).cuda()
    tokens = torch.tensor([t for ids, _ in documents for t in ids]).cuda()
    positions = torch.cat([torch.arange(n) for n in lengths.tolist()]).int().cuda()
    hidden, _ = form.main(tokens, positions, bounds)
    best = torch.cat([(h.bfloat16() @ form.w["lm_head"].t()).argmax(-1) for h in hidden.split(8192)])
    out = []
    for (ids, prompt), start in zip(documents, bounds.tolist()):
        out.append(bool((best[start + prompt - 1:start + len(ids) - 1] == tokens[start + prompt:start + len(ids)]).all()))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--kinds", nargs="*", default=["lookup_8k"])
    options = parser.parse_args()
    renderer = Renderer(options.folder)
    form = TrainForm(training_weights(options.folder, "cuda", torch.bfloat16), LONGEST, compiled=False)
    for kind in options.kinds:
        documents = []
        for item in make_tests.make(kind, renderer=renderer):
            prompt = renderer.prompt(dict(item, messages=item["messages"] + [None]))
            answer = renderer.tokenizer.encode(item["answer"], add_special_tokens=False).ids
            documents.append((prompt + answer + [renderer.end], len(prompt)))
        hits = [hit for at in range(0, len(documents), DOCUMENTS) for hit in right(form, documents[at:at + DOCUMENTS])]
        print(f"{kind:14} {100 * sum(hits) / len(hits):6.2f} %  of {len(hits)}", flush=True)


if __name__ == "__main__":
    main()
