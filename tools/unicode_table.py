#!/usr/bin/env python3
"""Measures the character classes of the pinned `tokenizers` release and writes src/text/unicode_table.inc.

The regex engine inside `tokenizers` carries its own Unicode tables, and the system's regex library carries others, older
or newer. A tokenizer.json pattern must mean what it meant when the vocabulary was trained, so the classes are not taken
from any standard file: every class is run, through the package itself, over every code point that a text can hold.

    python3 tools/unicode_table.py > src/text/unicode_table.inc
"""
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# The order is the numbering of the table; src/text/unicode.cc names the categories in the same order.
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
ASCII_LETTERS = "abcdefghijklmnopqrstuvwxyz"
SCRIPTS = ("Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Devanagari").split()


def members(pre_tokenizer):
    """Code points that the pre-tokenizer (behaviour: removed) takes out of a text with single code points."""
    found = bytearray(b"\1" * 0x110000)
    step = 4096
    for i in range(0, len(CODE_POINTS), step):
        text = "".join(map(chr, CODE_POINTS[i : i + step]))
        for piece, _ in pre_tokenizer.pre_tokenize_str(text):
            for ch in piece:
                found[ord(ch)] = 0
    return {c for c in CODE_POINTS if found[c]}


def regex_class(pattern):
    return members(pre_tokenizers.Split(Regex(pattern), "removed"))


def digits_class():
    """Digits isolates each digit, so a digit is a piece of its own between two letters."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in CODE_POINTS if len(digits.pre_tokenize_str("a" + chr(c) + "a")) == 3}


def nfc_active():
    """Code points with a decomposition, the parts of those, and combining marks; the package's tables are those of Unicode 9,
    so marks newer than that are ordinary characters to it."""
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    active = set()
    for c in CODE_POINTS:
        parts = nfd.normalize_str(chr(c))
        if parts != chr(c):
            active |= {c, *map(ord, parts)}
        # A mark of class above 1 goes behind U+0334 (class 1); one of class 1 lets U+0301 reach the letter.
        moved = nfc.normalize_str(chr(c) + "\u0334")
        joined = nfc.normalize_str("a" + chr(c) + "\u0301")
        if moved == "\u0334" + chr(c) != chr(c) + "\u0334" or joined == "\u00e1" + chr(c):
            active.add(c)
    return active | {0x334}


def ranges(points):
    result = []
    for c in sorted(points):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def emit(name, comment, values):
    print(f"// {comment}")
    print(f"constexpr uint32_t {name}[] = {{")
    line = "   "
    for value in values:
        item = f" 0x{value:x},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


def emit_ranges(name, comment, points):
    emit(name, comment + " First and last code point of each range.", [x for r in ranges(points) for x in r])


def main():
    category = {}
    classes = {}
    for index, name in enumerate(CATEGORIES):
        if name == "Cs":  # surrogates cannot stand in a text
            continue
        for c in regex_class(r"\p{%s}" % name):
            assert c not in category, (hex(c), name)
            category[c] = index
    assert len(category) == len(CODE_POINTS)
    for major in "LMNPSZC":
        union = {c for c in CODE_POINTS if CATEGORIES[category[c]][0] == major}
        assert union == regex_class(r"\p{%s}" % major), major
    by_name = {n: {c for c in CODE_POINTS if CATEGORIES[category[c]] == n} for n in CATEGORIES}
    assert regex_class(r"\d") == by_name["Nd"]
    for letters in (r"\s", r"\w", r"\d"):
        classes[letters] = regex_class(letters)
        upper = regex_class(letters.upper())
        assert upper == set(CODE_POINTS) - classes[letters], letters

    print(f"// Character classes of the Python package tokenizers {tokenizers.__version__}, measured over all code points.")
    print("// Written by tools/unicode_table.py; do not edit.")
    print("// clang-format off")
    runs = []
    for c in range(0x110000):
        value = CATEGORIES.index("Cs") if 0xD800 <= c < 0xE000 else category[c]
        if not runs or runs[-1] & 31 != value:
            runs.append(c << 5 | value)
    emit("kCategoryRuns", "General category: (first code point << 5 | number of the category); a run ends at the next.", runs)
    emit_ranges("kSpace", r"\s.", classes[r"\s"])
    emit_ranges("kWord", r"\w.", classes[r"\w"])
    emit_ranges("kDigits", "What the pre-tokenizer Digits takes for a digit.", digits_class())
    for script in SCRIPTS:
        emit_ranges("k" + script, rf"\p{{{script}}}.", regex_class(r"\p{%s}" % script))
    emit_ranges("kNfcActive", "What NFC may change or join; all else stands for itself and parts what is around it.", nfc_active())
    # Case folding inside (?i:...): everything outside ASCII that equals a letter of ASCII, and the pairs of letters
    # that one character can stand for.
    folds = []
    for letter in ASCII_LETTERS:
        same = regex_class("(?i:%s)" % letter)
        assert {ord(letter), ord(letter.upper())} <= same
        assert same == regex_class("(?i:[%s])" % letter) == regex_class("(?i:%s)" % letter.upper())
        for c in sorted(same - {ord(letter), ord(letter.upper())}):
            folds += [ord(letter), c]
    emit("kFolds", "Letter of ASCII and a character outside ASCII that (?i:...) takes for the same.", folds)
    # A first pass over all pairs finds the few characters in question; neighbours of those in code point order do not
    # matter because a dash stands between.
    letters = [a + b for a in ASCII_LETTERS for b in ASCII_LETTERS]
    any_pair = pre_tokenizers.Split(Regex("(?i:%s)" % "|".join(letters)), "removed")
    candidates = [c for c in CODE_POINTS if c > 0x7F and not any_pair.pre_tokenize_str(chr(c))]
    text = "-".join(map(chr, candidates))
    pairs = []
    for pair in letters:
        cut = pre_tokenizers.Split(Regex("(?i:%s)" % pair), "removed").pre_tokenize_str(text)
        if sum(len(piece) for piece, _ in cut) != len(text):
            pairs.append(ord(pair[0]) << 8 | ord(pair[1]))
    emit("kFoldPairs", "Two letters (first << 8 | second) for which (?i:...) also takes one ligature.", pairs)
    print("// clang-format on")
    print(f"wrote the tables of tokenizers {tokenizers.__version__}", file=sys.stderr)


main()
