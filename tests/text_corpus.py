"""Varied strings for comparing tokenizers: every kind of text that ever made two of them differ."""
import random
import unicodedata

WORDS = (
    "the quick brown fox it's don't WE'LL they've I'm you'd he'S hello World naïve façade Grüße Łódź straße İstanbul "
    "Привет мир здравствуй Ελλάδα שלום مرحبا नमस्ते สวัสดี 你好 世界 日本語 テスト ひらがな カタカナ 한국어 한글 텍스트 "
    "def return int main() std::vector<int> x=y+z; #include <cstdio> for(i=0;i<n;i++){} 0xdeadbeef 3.14159 1e-10 "
    "https://example.com/a?b=c&d=e user@host.org C:\\path\\file $HOME ~/.bashrc --flag=value 'quoted' \"double\" "
    "can't've ʼn ﬁne ﬂow ſtraſſe K Å 'ſ 'ST 'lL 'Re"
).split()
EMOJI = ["😀", "🦊", "👨‍👩‍👧‍👦", "🇩🇪", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👍🏽", "❤️", "✅", "☑", "🧑🏿‍🚀", "①", "½", "Ⅷ", "٣", "५"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u2009", "\x0b", "\x0c",
          "\x85", "\u200b", "\ufeff", "\u1680", "\u180e"]
LOOKALIKES = ["<|role_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<role>HUMAN</role>", "<|endoftext|>",
              "<|startoftext|>", "<arg_key>", "</arg_value>", "<tool_response>", "<｜begin▁of▁sentence｜>",
              "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<|im_start|>", "<|", "|>", "<thin", "<|role_end|", "<<think>>"]
PLANES = [(0x20, 0x7F), (0x80, 0x2FF), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0x33FF), (0x4E00, 0x9FFF),
          (0xA000, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x2FFFF), (0x30000, 0x3FFFF), (0xE0000, 0xE0FFF),
          (0xF0000, 0x10FFFF)]


def piece(rng):
    kind = rng.randrange(12)
    if kind <= 2:
        return rng.choice(WORDS)
    if kind == 3:
        return rng.choice(EMOJI)
    if kind == 4:
        return rng.choice(SPACES) * rng.choice((1, 1, 1, 2, 3, rng.randint(1, 40)))
    if kind == 5:
        return "".join(rng.choice("0123456789") for _ in range(rng.choice((1, 2, 3, 4, rng.randint(1, 40)))))
    if kind == 6:
        return rng.choice(LOOKALIKES)
    if kind == 7:
        low, high = rng.choice(PLANES)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6)))
    if kind == 8:
        return unicodedata.normalize(rng.choice(("NFC", "NFD")), rng.choice(WORDS))
    if kind == 9:
        return "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(rng.randint(1, 5)))
    if kind == 10:
        return "".join(chr(rng.randint(0x4E00, 0x9FFF)) for _ in range(rng.randint(1, 8)))
    return "".join(chr(rng.randint(97, 122)) for _ in range(rng.randint(1, 12)))


FIXED = ["a\u1df6\u0301", "a\u0898\u0323\u0301", "\U00011935\U00011930", "q\u0323\u0307\u0334", "", " ", "Grüße, naïve façade — 42 € 🦊 Łódź", unicodedata.normalize("NFD", "Grüße, naïve façade — 42 € 🦊 Łódź"),
         "a" * 300, " " * 300, "\n" * 300, "ab" * 200, "1" * 200, "\x00\x01\x7f", "'s'S'ſ'T", "\u0378 unassigned",
         "\u0301" * 50, "\u0344a\u0344", "한글"]


def strings(count, seed):
    rng = random.Random(seed)
    out = list(FIXED[:count])
    while len(out) < count:
        glue = rng.choice(("", "", " ", rng.choice(SPACES)))
        text = glue.join(piece(rng) for _ in range(rng.randint(1, 12)))
        out.append(text)
    return out
