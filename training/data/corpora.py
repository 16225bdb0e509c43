"""Text that is read from disk at run time: GSM8K training questions and public-domain English; never part of the tree."""
import json
import re


class Gsm8k:
    """Training questions with their calculator marks removed; the worked answer is the thinking."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.rows = [json.loads(row) for row in file]

    def sample(self, rng):
        row = rng.choice(self.rows)
        worked, answer = re.sub(r"<<.*?>>", "", row["answer"]).split("\n#### ")
        reply = dict(role="assistant", content=f"The answer is {answer}.\n#### {answer}", reasoning_content=worked)
        return dict(messages=[dict(role="user", content=row["question"]), reply], thinking=True)


class Prose:
    """Plain passages of a text file, as raw documents or as filler between facts."""

    def __init__(self, path):
        with open(path, encoding="utf-8", errors="replace") as file:
            self.text = re.sub(r"[ \t]+", " ", file.read())

    def passage(self, rng, characters):
        start = rng.randint(0, max(0, len(self.text) - characters))
        return self.text[start:start + characters].strip()

    def sentence(self, rng):
        words = self.passage(rng, rng.randint(60, 220)).replace("\n", " ").split(" ")[1:-1]
        return " ".join(words) + "."
