"""Shows that the forms of the model agree on exported weights: training form, decoding form and an outside program.

    python parity.py models/ling-nano --against logits.npz

The npz holds tokens, logits [n, V] and mtp [n-1, V] as another implementation computed them from the same folder.
All in float64 here, so that a disagreement is a mistake and not rounding.
"""
import argparse

import numpy as np
import torch

from checkpoint import training_weights
from decode import Decoder
from model.config import Config
from model.train_form import TrainForm


@torch.no_grad()
def train_logits(folder, tokens):
    w = training_weights(folder, "cpu", torch.float64)
    form, n = TrainForm(w, len(tokens), compiled=False), len(tokens)
    bounds, positions = torch.tensor([0, n]), torch.arange(n)
    hidden, _ = form.main(tokens, positions, bounds)
    draft, _ = form.mtp(torch.roll(tokens, -1), hidden, positions, bounds)
    return hidden @ w["lm_head"].t(), (draft @ w["lm_head"].t())[:-1]


def decode_logits(folder, tokens):
    decoder = Decoder(folder, dtype=torch.float64)
    state, logits, drafts, hidden = decoder.new_state(1, len(tokens)), [], [], None
    for position, token in enumerate(tokens):
        if hidden is not None:
            drafts.append(decoder.draft(token[None], hidden, state, position - 1)[0])
        out, hidden = decoder.step(token[None], state, position)
        logits.append(out)
    return torch.cat(logits), torch.cat(drafts)


def relative(a, b):
    return float(((a - b).norm(dim=-1) / b.norm(dim=-1)).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--against")
    parser.add_argument("--tokens", type=int, default=48)
    options = parser.parse_args()
    if options.against:
        other = np.load(options.against)
        tokens = torch.from_numpy(other["tokens"]).long()
    else:
        tokens = torch.randint(0, Config().vocab_size, (options.tokens,), generator=torch.Generator().manual_seed(5))
    main_logits, drafts = decode_logits(options.folder, tokens)
    train_main, train_drafts = train_logits(options.folder, tokens)
    print(f"training form to decoding form: main {relative(train_main, main_logits):.2e} mtp {relative(train_drafts, drafts):.2e}")
    if options.against:
        print(f"other program to decoding form: main {relative(torch.from_numpy(other['logits']), main_logits):.2e} "
              f"mtp {relative(torch.from_numpy(other['mtp']), drafts):.2e}")


if __name__ == "__main__":
    main()
