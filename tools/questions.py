"""Test sets of training/make_tests.py as question files for `sparkling eval set`.

    cd training && python make_tests.py --out /tmp/sets --count 1000
    python3 tools/questions.py /tmp/sets/problems.jsonl > problems.jsonl
    sparkling eval set problems.jsonl --thinking on --out results.jsonl

Items that are one question with one value are taken: one user message, no tools, `check` number or exact.
"""

import json
import sys


def question(item):
    """{id, question, answer}, or None for an item of another form."""
    messages = item["messages"]
    if len(messages) != 1 or item.get("tools") or item["check"] not in ("number", "exact"):
        return None
    return {"id": item["id"], "question": messages[0]["content"], "answer": f"#### {item['answer']}"}


def main(paths):
    if not paths:
        sys.exit(__doc__.strip())
    left = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                row = question(json.loads(line))
                if row is None:
                    left += 1
                else:
                    print(json.dumps(row, ensure_ascii=False))
    if left:
        print(f"{left} items of another form left out", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
