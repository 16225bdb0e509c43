"""Trains models/ling-nano/tokenizer.json: byte-level BPE with the family's pre-tokenizer and special tokens.

    python make_tokenizer.py --gsm8k train.jsonl --prose prose.txt

The corpus is the training mixture itself, so that frequent words of every kind become one token. Special tokens take
the first ids, in the family's order; single digits are a rule of the split pattern.
"""
import argparse
import random

from data import chat, copying, json_answers, lookup, problems, scripts, tools
from data.corpora import Gsm8k, Prose
from data.render import MODEL, load_template
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ENTRIES = 4096
SPLIT = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SPECIAL = ["<|startoftext|>", "<|endoftext|>", "[gMASK]", "[CLS]", "<|role_end|>", "<tool_call>", "</tool_call>",
           "<role>", "</role>", "<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
           "<think>", "</think>"]


def corpus(gsm8k, prose, samples, seed):
    rng, template = random.Random(seed), load_template()
    render = lambda s: template.render(messages=s["messages"], tools=s.get("tools"), enable_thinking=s["thinking"])
    # Shares chosen for words worth an entry, not for volume: made-up words would only fill the table with noise.
    makers = ([lambda: problems.sample(rng, problems.ordinary(rng))] * 8 + [lambda: tools.sample(rng)] * 4
              + [lambda: chat.sample(rng)] * 4 + [lambda: gsm8k.sample(rng)] * 4 + [lambda: json_answers.sample(rng)] * 2
              + [lambda: copying.sample(rng, 60, 200), lambda: scripts.sample(rng), lambda: lookup.sample(rng, 400, 2)])
    for _ in range(samples):
        yield render(rng.choice(makers)())
    for _ in range(samples // 12):
        yield prose.passage(rng, 600)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gsm8k", required=True)
    parser.add_argument("--prose", required=True)
    parser.add_argument("--samples", type=int, default=40000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    # Specials are cut out of the corpus by the template's own marks, so they must be known before training.
    specials = [AddedToken(t, special=True, normalized=False) for t in SPECIAL]
    trainer = trainers.BpeTrainer(vocab_size=ENTRIES, special_tokens=specials, min_frequency=3, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    strip = lambda texts: (part for text in texts for part in split_specials(text))
    tokenizer.train_from_iterator(strip(corpus(Gsm8k(options.gsm8k), Prose(options.prose), options.samples, options.seed)), trainer)
    assert tokenizer.get_vocab_size() == ENTRIES, tokenizer.get_vocab_size()
    tokenizer.save(str(MODEL / "tokenizer.json"))
    print("entries", tokenizer.get_vocab_size(), "eos", tokenizer.token_to_id("<|role_end|>"))


def split_specials(text):
    for special in SPECIAL:
        text = text.replace(special, "\0")
    return [part for part in text.split("\0") if part]


if __name__ == "__main__":
    main()
