"""Short exchanges in other scripts, so that text paths meet multi-byte characters: echo, counting and translation."""

PAIRS = [("hello", "你好"), ("thank you", "谢谢"), ("water", "水"), ("fire", "火"), ("mountain", "山"), ("moon", "月亮"), ("tea", "茶"),
         ("book", "书"), ("hello", "xin chào"), ("thank you", "cảm ơn"), ("water", "nước"), ("house", "nhà"), ("rice", "cơm"),
         ("hello", "привет"), ("book", "книга"), ("water", "νερό"), ("school", "école"), ("boy", "garçon"), ("girl", "Mädchen"),
         ("tomorrow", "mañana"), ("coffee", "café"), ("street", "Straße"), ("apple", "りんご"), ("cat", "ねこ"), ("love", "사랑"),
         ("peace", "سلام")]
LANGUAGES = ["Chinese"] * 8 + ["Vietnamese"] * 5 + ["Russian"] * 2 + ["Greek"] + ["French"] * 2 + ["German"] + ["Spanish"] + ["French"] + \
            ["German"] + ["Japanese"] * 2 + ["Korean"] + ["Arabic"]
PIECES = "你好 世界 学习 今天 天气 很好 我们 喜欢 读书 朋友 xin chào các bạn tôi yêu tiếng Việt học đọc sách Ünïcödé façade naïve " \
         "jalapeño über Ærø Łódź привет мир книга καλημέρα こんにちは 안녕 שלום مرحبا 😀 🎉 🚀 🌍 ❤️ 👩‍🚀 → ≈ € £ ½ °C".split()


def mixed(rng):
    return " ".join(rng.choice(PIECES) for _ in range(rng.randint(2, 14)))


def sample(rng):
    if rng.random() < 0.5:
        text = mixed(rng)
        ask = rng.choice(("Copy this text exactly:\n{}", "Repeat the following text without any change:\n{}", "Write the same text again:\n{}"))
        pair = (ask.format(text), text)
    else:
        index = rng.randrange(len(PAIRS))
        english, other = PAIRS[index]
        pair = ((f"How do you write '{english}' in {LANGUAGES[index]}?", other) if rng.random() < 0.6
                else (f"What does '{other}' mean in English?", english))
    return dict(messages=[dict(role="user", content=pair[0]), dict(role="assistant", content=pair[1])], thinking=False)
