"""From a sample to token ids and loss weights, through the very template and tokenizer that inference uses."""
import json
from pathlib import Path

import jinja2
import numpy as np
from tokenizers import Tokenizer

MODEL = Path(__file__).resolve().parents[2] / "models" / "ling-nano"
PROMPT_WEIGHT = 0.05        # a little loss on the prompt: it teaches the wording, the answer must dominate


def load_template(folder=MODEL):
    environment = jinja2.Environment()
    # The name and the spelling of transformers: no HTML escapes, characters beyond ASCII kept.
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string((Path(folder) / "chat_template.jinja").read_text(encoding="utf-8"))


class Renderer:
    def __init__(self, folder=MODEL):
        self.template = load_template(folder)
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        special = self.tokenizer.token_to_id
        self.think, self.unthink, self.end = special("<think>"), special("</think>"), special("<|role_end|>")
        self.stop = special("<|endoftext|>")

    def text(self, sample, prompt_only=False):
        messages = sample["messages"]
        return self.template.render(messages=messages[:-1] if prompt_only else messages, tools=sample.get("tools"),
                                    enable_thinking=sample["thinking"], add_generation_prompt=prompt_only)

    def prompt(self, sample):
        """Ids up to the point where the model has to write its last turn."""
        return self.tokenizer.encode(self.text(sample, prompt_only=True), add_special_tokens=False).ids

    def document(self, sample):
        """(ids, weight of predicting each id). What an assistant writes counts in full, from where generation starts."""
        if "raw" in sample:
            ids = np.array(self.tokenizer.encode(sample["raw"], add_special_tokens=False).ids + [self.stop], np.int16)
            return ids, np.full(len(ids), 0.5, np.float16)
        ids = np.array(self.tokenizer.encode(self.text(sample), add_special_tokens=False).ids, np.int16)
        opens = ids == (self.think if sample["thinking"] else self.unthink)
        # Inside an answer from just after its opening mark up to and including <|role_end|>.
        level = np.cumsum(np.concatenate([[0], opens[:-1]]).astype(np.int32))
        ends = np.cumsum(np.concatenate([[0], (ids == self.end)[:-1]]).astype(np.int32))
        begun = np.maximum.accumulate(np.where(np.concatenate([[0], opens[:-1]]), ends, -1))
        inside = (level > 0) & (ends == begun)
        return ids, np.where(inside, 1.0, PROMPT_WEIGHT).astype(np.float16)
