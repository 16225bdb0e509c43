"""What each published layout costs on ling-nano: accuracy and divergence in one table.

    python3 tools/formats.py QUESTIONS.jsonl [--thinking on] [--limit N] [--weights FOLDER ...] [-- further options of eval]

The shipped fp4 weights are written again in the other layouts (tests/layouts_test.py does it, so that both measure the same
files); each is asked the same questions by `sparkling eval set`, and its teacher-forced distribution over answers that the
shipped files wrote is compared with theirs. --weights FOLDER adds checkpoints that training/export.py made from the unrounded
masters. Needs numpy (.venv/bin/python). McNemar's test is against fp4.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import layouts_test as layouts  # noqa: E402

HEAD = "| layout | accuracy % (95 %) | lost, won | McNemar p | truncated | mean KL, nats | same top token % |\n|---|---:|---:|---:|---:|---:|---:|"


def evaluate(model, out, options):
    """Writes the rows of one model; returns its report."""
    command = [layouts.SPARKLING, "eval", "set", options.questions, str(model), "--thinking", options.thinking, "--precision",
               "exact", "--format", "json", "--out", str(out), *options.rest]
    if options.limit:
        command += ["--limit", str(options.limit)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compare(a, b):
    command = [layouts.SPARKLING, "eval", "compare", str(a), str(b), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def divergence(truth, model, folder):
    ids, written, fp4 = truth
    other = layouts.log_softmax(layouts.logits(model, ids, folder / "out.npy"))[written]
    fp4 = fp4[written]
    return (np.exp(fp4) * (fp4 - other)).sum(1).mean(), (fp4.argmax(1) == other.argmax(1)).mean()


def options_of_command_line():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions")
    parser.add_argument("--thinking", default="on", choices=("on", "off"))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--weights", nargs="*", default=[], help="checkpoint folders of training/export.py")
    # argparse gives what follows "--" to nobody once an option stood between the positionals.
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    options.rest = given[end + 1:]
    return options


def table(options, folder):
    ids, written = layouts.chats()
    truth = ids, written, layouts.log_softmax(layouts.logits(layouts.NANO, ids, folder / "fp4.npy"))
    models = {"fp4 (shipped)": layouts.NANO}
    for layout in ("bf16", "fp8", "int4"):
        models[layout] = folder / layout
        layouts.export(models[layout], layout)
        for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
            (models[layout] / name).write_bytes((layouts.NANO / name).read_bytes())
    models.update({Path(path).name: Path(path) for path in options.weights})
    print(HEAD)
    for number, (name, model) in enumerate(models.items()):
        out = folder / f"{number}.jsonl"
        report = evaluate(model, out, options)
        low, high = report["accuracy_interval_percent"]
        pair = compare(folder / "0.jsonl", out)
        changed = f"{pair['right_in_a_only']}, {pair['right_in_b_only']}"
        kl, agree = divergence(truth, model, folder)
        print(f"| {name} | {report['accuracy_percent']:.2f} ({low:.2f} to {high:.2f}) | {changed} | {pair['mcnemar_p']:.3f} | "
              f"{report['truncated']} | {kl:.2e} | {100 * agree:.2f} |", flush=True)
    print(f"\n{report['questions']} questions of {options.questions}, thinking {options.thinking}, temperature "
          f"{report['options']['temperature']}, commit {report['options']['commit']}")


def main():
    options = options_of_command_line()
    with tempfile.TemporaryDirectory(prefix="formats-") as folder:
        table(options, Path(folder))


if __name__ == "__main__":
    main()
