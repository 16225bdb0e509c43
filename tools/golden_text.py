#!/usr/bin/env python3
"""Writes the stored vectors of tests/golden/text: what the Hugging Face package and jinja2 say.

    python3 tools/golden_text.py        (with tests/requirements.txt installed)
"""
import json
import os
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, pre_tokenizers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tests"))
from text_conversations import conversations, driver_form, render, template  # noqa: E402
from text_corpus import strings  # noqa: E402

OUT = os.path.join(ROOT, "tests", "golden", "text")
NANO = os.path.join(ROOT, "models", "ling-nano")

LING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Corners where regex engines differ, each with a text that shows it.
CORNERS = [
    (r"a{1,2}+", "baaaaab"), (r"a{2}?", "baaaaab"), (r"a{,2}", "baaaab"), (r"a{2,}?", "baaaaab"), (r"a{x}", "a{x}aa"),
    (r"^.", "ab\ncd\n"), (r"$", "a\nb\n"), (r".$", "ab\ncd"), (r"x*", "axxb"), (r"\v", "a\u000b\nb"), (r".+", "a\r\nb\u2028c"),
    (r"(?i:[a-z])", "a\u017fbK\u212a1"), (r"(?i:[^a-z])+", "a\u017fbK\u212a12-"), (r"(?i:k)", "aK\u212ak"),
    (r"(?i)'S|x", "'\u017f'sX"), (r"\w+", "a_1\u0300\u200d\u2460\u00b2 b"), (r"\W", "a b-c"), (r"\d+", "1\u0663\u00bd2"),
    (r"\D+", "1\u0663\u00bd2ab"), (r"\P{L}+", "ab12\u00e9"), (r"\p{^L}", "ab12"), (r"[\p{Han}\p{Hiragana}]+", "a\u65e5\u3042\u30a2"),
    (r"[^\S\n]+", "a \t\n b"), (r"(?<=a)b|(?<!a)c", "abcbcac"), (r"(?>a+)b|a", "aaab aa"), (r"\Aa|b\z", "aab b"),
    (r"[\]\-\\^]", "a]b-c\\d^"), (r"[a-]", "a-b"), (r"\u0041|\x42|\x{43}", "ABCD"), (r"a|", "bab"), (r"(a)(b)?", "abaa"),
    (r"[\r\n]+|\s", " \r\n\n\u0085\u00a0\u1680\u180e\u2000\u200b\u3000"), (r"\p{Lu}\p{Ll}+", "ABcdEf\u01c5\u00c9\u00e9"),
]


def split_cases():
    cases = []
    texts = strings(60, 7)
    for pattern in (LING, LLAMA3, O200K):
        for text in texts:
            cases.append((pattern, "Isolated", False, text))
    for pattern, text in CORNERS:
        cases.append((pattern, "Isolated", False, text))
    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous", "Isolated"):
        for invert in (False, True):
            for text in ("-a--b-", "a-b", "---", "ab", "a--", "--a"):
                cases.append(("-", behavior, invert, text))
    names = {"MergedWithPrevious": "merged_with_previous", "MergedWithNext": "merged_with_next"}
    out = []
    for pattern, behavior, invert, text in cases:
        split = pre_tokenizers.Split(Regex(pattern), names.get(behavior, behavior.lower()), invert)
        out.append({"pattern": pattern, "behavior": behavior, "invert": invert, "text": text,
                    "pieces": [p for p, _ in split.pre_tokenize_str(text)]})
    return out


def nano_cases():
    path = os.path.join(NANO, "tokenizer.json")
    form = Tokenizer.from_file(path)
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    data["added_tokens"] = []
    plain = Tokenizer.from_str(json.dumps(data))
    return [{"text": t, "form": form.encode(t, add_special_tokens=False).ids, "plain": plain.encode(t, add_special_tokens=False).ids}
            for t in strings(200, 11)]


def byte_alphabet():
    keep = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def variants():
    """Small tokenizers that each switch one feature of the file format on."""
    letters = byte_alphabet()
    vocab = {letters[b]: b for b in range(256)}
    merges = []
    for pair in ("h e", "l l", "he ll", "hell o", "\u0120 hello", "a a", "aa aa", "1 2", "\u00c3 \u00a9", "\u0120 a", "- -", "< b", "<b >",
                 "t h", "th e"):
        merges.append(pair)
        vocab[pair.replace(" ", "")] = len(vocab)
    vocab["hexhello"] = len(vocab)  # no merge makes it
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    gpt2 = {**byte_level, "use_regex": True}
    base = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": gpt2, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": merges}}
    n = len(vocab)

    def token(i, text, **flags):
        return {"id": n + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True, **flags}

    def sequence(*parts):
        return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(parts)}}

    def split(pattern, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}

    changes = {
        "gpt2 words": {},
        "prefix space": {"pre_tokenizer": {**gpt2, "add_prefix_space": True}},
        "prefix space, no regex": {"pre_tokenizer": {**byte_level, "add_prefix_space": True}},
        "prefix space after a split": sequence(split({"Regex": r"\d"}), {**gpt2, "add_prefix_space": True}),
        "single digits": sequence({"type": "Digits", "individual_digits": True}, byte_level),
        "joined digits": sequence({"type": "Digits", "individual_digits": False}, byte_level),
        "split by string": sequence(split({"String": "a.b"}), byte_level),
        "removed": sequence(split({"Regex": r"\s+"}, "Removed"), byte_level),
        "removed, inverted": sequence(split({"Regex": r"\w+"}, "Removed", True), byte_level),
        "merged with previous": sequence(split({"Regex": "-"}, "MergedWithPrevious"), byte_level),
        "merged with next": sequence(split({"Regex": "-"}, "MergedWithNext"), byte_level),
        "contiguous": sequence(split({"Regex": "-"}, "Contiguous"), byte_level),
        "nested sequences": sequence({"type": "Sequence", "pretokenizers": [split({"Regex": r"\p{N}{1,3}"})]}, gpt2),
        "nfc": {"normalizer": {"type": "NFC"}},
        "nfc in a sequence": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}},
        "added tokens": {"added_tokens": [token(0, "<t>"), token(1, "<t><t>"), token(2, "<tx", special=False)]},
        "added, stripping": {"added_tokens": [token(0, "<l>", lstrip=True), token(1, "<r>", rstrip=True),
                                              token(2, "<lr>", lstrip=True, rstrip=True)]},
        "added, normalised": {"normalizer": {"type": "NFC"}, "added_tokens": [
            token(0, "<e\u0301>", normalized=True, special=False), token(1, "<\u00e9>x"), token(2, "the\u00e9", normalized=True)]},
        "added, in the vocabulary": {"added_tokens": [{**token(0, "hello"), "id": vocab["hello"]}]},
    }
    model = dict(base["model"])
    changes["whole words"] = {"model": {**model, "ignore_merges": True}}
    changes["merges as pairs"] = {"model": {**model, "merges": [m.split(" ") for m in merges]}}
    changes["shadowed merges"] = {"model": {**model, "merges": merges + ["l l", "h e"]}}
    texts = ["", "hello hello", " hello", "hexhello", "aaaaaaa aa", "1212 12a12\u0663", "caf\u00e9 cafe\u0301", "a.b a-b--c-", "-a--b",
             "the<t>hello <t><t> <tx <t <b>", "a  <l>  b <r>  c  <lr>  d<l><r> <l>", "<\u00e9>x <e\u0301> <\u00e9> thee\u0301 the\u00e9", "it's\r\n\tthe  the\u00a0\u3000",
             "\u1112\u1161\u11ab \u0344 q\u0307\u0323 q\u0323\u0307", "\u2126\u212b\uf900"]
    out = []
    for name, change in changes.items():
        data = {**base, **change}
        form = Tokenizer.from_str(json.dumps(data))
        plain = Tokenizer.from_str(json.dumps({**data, "added_tokens": []}))
        out.append({"name": name, "change": change, "cases": [
            {"text": t, "form": form.encode(t, add_special_tokens=False).ids, "plain": plain.encode(t, add_special_tokens=False).ids}
            for t in texts]})
    return {"base": base, "variants": out}


def chat_cases():
    jinja = template(os.path.join(NANO, "chat_template.jinja"))
    return [{"chat": driver_form(c), "text": render(jinja, c)} for c in conversations(24, 5)]


def utf8_cases():
    blobs = [b"", b"a", b"\x80", b"\xe2\x82A", b"\xf5\x80", b"\xe2\x9c\x85\x85", b"\xf0", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80",
             b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xff\xfe", b"a\xe2b\x82c",
             b"\xc3\xa9\xc3", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf", b"\xf8\x88\x80\x80\x80", b"\xef\xbf\xbd", b"\xc2\xe2\x82\xac"]
    return [{"bytes": list(b), "text": b.decode("utf-8", "replace")} for b in blobs]


def main():
    for name, data in (("split", split_cases()), ("nano", nano_cases()), ("variants", variants()), ("chat", chat_cases()),
                       ("utf8", utf8_cases())):
        with open(os.path.join(OUT, name + ".json"), "w", encoding="utf-8") as f:
            json.dump({"made_by": f"tools/golden_text.py, tokenizers {tokenizers.__version__}", "cases": data}, f, ensure_ascii=True,
                      separators=(",", ":"))
            f.write("\n")


main()
