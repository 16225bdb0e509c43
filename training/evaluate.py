"""Measures a checkpoint folder on the test sets: greedy answers, and accept lengths of three MTP drafts.

    python evaluate.py models/ling-nano --kinds problems hard --out results.json

Runs on a GPU when there is one. Weights are used as stored, all other arithmetic is float32.
"""
import argparse
import json
import time

import torch

import make_tests
import scoring
from data.render import Renderer
from decode import Decoder

ROOM = dict(hard=600, copy=520, gsm8k=400, problems=420, held_out=420, chat=160)      # most new tokens by kind
TEMPERATURE, TOP_P, SEED, DRAFTS = 0.6, 0.95, 29, 3


def rows_of(state, index):
    return [[t[index] for t in part] if isinstance(part, list) else part[index] for part in state]


def choose(logits, sampling, generator):
    if not sampling:
        return logits.argmax(-1)
    p, order = torch.softmax(logits / TEMPERATURE, -1).sort(-1, descending=True)
    p = p.masked_fill(p.cumsum(-1) - p >= TOP_P, 0)
    return order.gather(-1, torch.multinomial(p, 1, generator=generator))[:, 0]


def generate(decoder, prompts, room, stop, sampling=False, drafting=False):
    """New ids of every prompt, and, when drafting, the three drafts made at every position of each sequence.

    All sequences run in step from position 0, prompts included; finished ones are dropped now and then.
    """
    device, B = decoder.device, len(prompts)
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    total = int(lengths.max()) + room
    ids = torch.full((B, total), stop, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, :len(prompt)] = torch.tensor(prompt, device=device)
    drafts = torch.full((B, total, DRAFTS), -1, device=device) if drafting else None
    generator = torch.Generator(device=device).manual_seed(SEED)
    alive, state = torch.arange(B, device=device), decoder.new_state(B, total + DRAFTS)
    for position in range(total - 1):
        logits, hidden = decoder.step(ids[alive, position], state, position)
        following = choose(logits, sampling, generator)
        following = torch.where(position + 1 < lengths[alive], ids[alive, position + 1], following)
        ids[alive, position + 1] = following
        if drafting:        # entries of drafts 2 and 3 are overwritten by the true ones of the next positions
            token = following
            for depth in range(DRAFTS):
                logits, hidden = decoder.draft(token, hidden, state, position + depth)
                token = logits.argmax(-1)
                drafts[alive, position, depth] = token
        if position % 16 == 15:
            done = (position + 1 >= lengths[alive]) & ((ids[alive, :position + 2] == stop) &
                    (torch.arange(position + 2, device=device) >= lengths[alive, None])).any(1)
            if done.all():
                break
            if done.float().mean() > 0.25:
                keep = (~done).nonzero()[:, 0]
                alive, state = alive[keep], rows_of(state, keep)
    out = []
    for row, prompt in enumerate(prompts):
        new = ids[row, len(prompt):].tolist()
        out.append(new[:new.index(stop) + 1] if stop in new else new)
    return out, drafts


def accept_length(prompts, generated, drafts):
    """Tokens per verification when each cycle drafts three tokens and keeps those equal to what the target sampled; and
    the share of cycles that reach each depth."""
    cycles = tokens = 0
    reached = [0] * DRAFTS
    for row, (prompt, new) in enumerate(zip(prompts, generated)):
        text = prompt + new
        base = len(prompt) - 1
        while base + 1 < len(text) - DRAFTS:
            guess, true = drafts[row, base].tolist(), text[base + 2:base + 2 + DRAFTS]
            accepted = 0
            while accepted < DRAFTS and guess[accepted] == true[accepted]:
                reached[accepted] += 1
                accepted += 1
            cycles, tokens, base = cycles + 1, tokens + accepted + 1, base + accepted + 1
    return tokens / max(cycles, 1), [r / max(cycles, 1) for r in reached]


def batches(items, prompts, budget):
    """Items in order of prompt length, cut where the caches of a batch would pass `budget` positions."""
    order, at = sorted(range(len(items)), key=lambda i: len(prompts[i])), 0
    while at < len(order):
        size = 1
        while at + size < len(order) and (size + 1) * (len(prompts[order[at + size]]) + 600) <= budget:
            size += 1
        yield order[at:at + size]
        at += size


def measure(decoder, renderer, items, kind, budget):
    prompts = [renderer.prompt(dict(i, messages=i["messages"] + [None])) for i in items]
    texts, stop = [None] * len(items), renderer.end
    for batch in batches(items, prompts, budget):
        new, _ = generate(decoder, [prompts[i] for i in batch], ROOM.get(kind, 256), stop)
        for i, ids in zip(batch, new):
            ids = ids[:-1] if ids and ids[-1] == stop else ids
            texts[i] = renderer.tokenizer.decode(ids, skip_special_tokens=False)
    return [dict(id=i["id"], right=scoring.right(i, t), text=t) for i, t in zip(items, texts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--kinds", nargs="*", default=list(make_tests.KINDS))
    parser.add_argument("--count", type=int, help="items of each kind instead of the full sets")
    parser.add_argument("--drafts", nargs="*", default=[], help="kinds whose accept length is measured")
    parser.add_argument("--gsm8k", help="GSM8K's test file")
    parser.add_argument("--budget", type=int, default=4_000_000, help="sequence positions held at once")
    parser.add_argument("--out", help="all answers as JSON")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    decoder, renderer, results = Decoder(options.folder, device), Renderer(options.folder), {}
    sets = {kind: make_tests.make(kind, options.count, renderer) for kind in options.kinds}
    if options.gsm8k:
        sets["gsm8k"] = make_tests.gsm8k(options.gsm8k)[:options.count]
    for kind, items in sets.items():
        start = time.time()
        answers = measure(decoder, renderer, items, kind, options.budget)
        score = sum(a["right"] for a in answers) / len(answers)
        results[kind] = dict(score=score, items=len(items), answers=answers)
        print(f"{kind:14} {100 * score:6.2f} %  of {len(items)}   ({time.time() - start:.0f} s)", flush=True)
    for kind in options.drafts:
        items = make_tests.make(kind, options.count or 200, renderer)
        prompts = [renderer.prompt(dict(i, messages=i["messages"] + [None])) for i in items]
        new, drafts = generate(decoder, prompts, ROOM.get(kind, 256), renderer.end, sampling=True, drafting=True)
        length, depths = accept_length(prompts, new, drafts.cpu())
        results[f"accept_{kind}"] = dict(length=length, depths=depths)
        print(f"{kind:14} accept length {length:.2f}   depths {' '.join(f'{d:.2f}' for d in depths)}", flush=True)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(results, file, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
