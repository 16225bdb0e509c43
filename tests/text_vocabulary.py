"""A vocabulary of more than 150,000 entries in the family's format, trained here and kept in the build folder."""
import hashlib
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from text_corpus import WORDS

SIZE = 157_000
PATTERN = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SPECIAL = ("<|startoftext|> <|endoftext|> <|role_end|> <tool_call> </tool_call> <think> </think> <role> </role> <arg_key> </arg_key> "
           "<arg_value> </arg_value> <tool_response> </tool_response>").split()


def texts(rng):
    """Made-up words of several scripts: enough different ones that the trainer finds this many pairs to join."""
    syllables = [a + b + c for a in "bcdfghklmnprstvwz" for b in "aeiouyäöüéè" for c in ("", "n", "r", "s", "l", "m", "t", "x")]
    cyrillic = [a + b for a in "бвгдзклмнпрстфхцчш" for b in "аеиоуыэюя"]
    words = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 4))) for _ in range(60_000)]
    words += ["".join(rng.choice(cyrillic) for _ in range(rng.randint(1, 4))) for _ in range(25_000)]
    words += ["".join(chr(rng.randint(0x4E00, 0x9FA5)) for _ in range(rng.randint(1, 3))) for _ in range(50_000)]
    words += ["".join(chr(rng.randint(0xAC00, 0xD7A3)) for _ in range(rng.randint(1, 3))) for _ in range(10_000)]
    marks = [" " * n for n in range(1, 20)] + ["\n", "\r\n", "\t", "!!", "...", "://", "();", " {", "}\n", " ==", "—", "…", "😀", "✅", "🦊"]
    for word in words:
        yield " ".join((word, word.capitalize(), word)) + rng.choice(marks) + rng.choice(WORDS)


def large(build):
    key = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:16]
    folder = pathlib.Path(build) / "test-vocabulary" / key
    path = folder / "tokenizer.json"
    if path.is_file():
        return folder
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, min_frequency=1, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts(random.Random(1)), trainer)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIAL])
    assert len(json.loads(tokenizer.to_str())["model"]["vocab"]) >= 150_000
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(tokenizer.to_str(), encoding="utf-8")
    part.rename(path)
    return folder
