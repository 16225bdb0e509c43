"""Trains ling-nano for a given number of seconds and writes masters, log and a resumable state.

    python train.py --seconds 1000 --out run --gsm8k train.jsonl --prose prose.txt

The schedule is a fraction of the wall clock, so a run always completes its decay: full rate for the first 40 % (--flat), then
linear to zero. The whole step is one CUDA graph. Rounding to FP8/MXFP4 joins the loop at --round-from. A second phase goes
on from the weights of a first one (--start) with fresh optimizer statistics and a short warm-up:

    python train.py --deadline 128 --out run2 --start run/weights.pt --phase second --peak 0.5 --flat 0.2 --round-from 0 ...
"""
import argparse
import json
import os
import time
from pathlib import Path

import torch

from data.mix import LONGEST, MAX_DOCUMENTS, SHARES
from feed import Feed
from model.config import Config
from model.train_form import TrainForm
from model.weights import Weights
from optim import Optimizer

BIAS_RATE = 2e-3            # per step; slower left one expert with 89 % of the tokens after 150 steps
FLAT, WARM_UP = 0.4, 20     # of the time; steps, only after --start


class Step:
    """One update on static input buffers; captured once, replayed for every batch."""

    def __init__(self, options, device):
        self.config = Config()
        self.weights = Weights(self.config, device, options.seed)
        self.form = TrainForm(self.weights, LONGEST, compiled=device != "cpu" or options.compile)
        self.optimizer = Optimizer(self.weights, options.muon, options.adam)
        size, documents = options.tokens, MAX_DOCUMENTS
        self.tokens = torch.zeros(size, dtype=torch.int64, device=device)
        self.loss_weights = torch.zeros(size, device=device)
        self.positions = torch.zeros(size, dtype=torch.int32, device=device)
        self.bounds = torch.full((documents + 1,), size, dtype=torch.int64, device=device)
        self.rounding = torch.zeros((), dtype=torch.bool, device=device)
        self.bias_scale = torch.ones((), device=device)
        self.report = torch.zeros(6, device=device)
        self.loads = torch.zeros(self.config.num_hidden_layers + 1, self.config.num_experts, device=device)
        self.graph = None

    def load(self, batch):
        for static, part in zip((self.tokens, self.loss_weights, self.positions, self.bounds), batch):
            static.copy_(part, non_blocking=True)

    def run(self):
        self.weights.refresh(self.rounding)
        loss, draft_loss, hits, loads = self.form.losses(self.tokens, self.loss_weights, self.positions, self.bounds)
        (loss + draft_loss).backward()
        self.optimizer.step()
        with torch.no_grad():
            for layer, load in enumerate(loads):
                if load is not None:
                    self.loads[layer].lerp_(load / load.sum(), 0.05)
                    self.weights.expert_bias[layer] += BIAS_RATE * self.bias_scale * torch.sign(load.mean() - load)
            self.report.copy_(torch.cat([torch.stack([loss, draft_loss]), hits]))

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.run()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # Another thread pins memory meanwhile; only this thread's calls must be capturable.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.run()

    def __call__(self):
        self.graph.replay() if self.graph else self.run()

    def state(self):
        return dict(weights=self.weights.state(), optimizer=self.optimizer.state())

    def load_state(self, state):
        self.weights.load_state(state["weights"])
        self.optimizer.load_state(state["optimizer"])


def schedule(fraction, flat=FLAT, end=0.0):
    return 1.0 if fraction < flat else max(0.0, end + (1 - end) * (1 - fraction) / (1 - flat))


def awaited(path):
    """The file may still be in the making when compilation is done."""
    while not Path(path).exists():
        time.sleep(0.1)
    return path


def save(path, content):
    torch.save(content, f"{path}.part")
    os.replace(f"{path}.part", path)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    span = parser.add_mutually_exclusive_group(required=True)
    span.add_argument("--seconds", type=float, help="of training, compilation not counted")
    span.add_argument("--deadline", type=float, help="seconds from the start of the program, compilation counted")
    parser.add_argument("--out", required=True)
    parser.add_argument("--gsm8k")
    parser.add_argument("--prose")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=65536, help="per step")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--muon", type=float, default=0.02)
    parser.add_argument("--adam", type=float, default=3e-3)
    parser.add_argument("--round-from", type=float, default=0.6, help="fraction of the time; above 1 never")
    parser.add_argument("--steps", type=int, default=0, help="stop after this many steps, for rehearsals")
    parser.add_argument("--resume", help="state file to go on from, with its clock")
    parser.add_argument("--start", help="weights to go on from, with a new clock")
    parser.add_argument("--phase", choices=list(SHARES), default="first", help="shares of the kinds of text")
    parser.add_argument("--peak", type=float, default=1.0, help="factor on both rates")
    parser.add_argument("--flat", type=float, default=FLAT, help="fraction of the time at the full rate")
    parser.add_argument("--end-rate", type=float, default=0, help="share of the full rate that is left at the end")
    parser.add_argument("--keep-at", type=float, default=2, help="fraction of the time at which weights are also written")
    parser.add_argument("--compile", action="store_true", help="compile also on the CPU")
    return parser.parse_args()


def main():
    options = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    began = time.time()
    feed = Feed(device, options.tokens, options.seed, options.workers,
                dict(gsm8k=options.gsm8k, prose=options.prose, phase=options.phase))
    torch._dynamo.config.cache_size_limit = 64
    step = Step(options, device)
    feed.start()
    step.load(feed.next())
    if device == "cuda":
        initial = {k: [t.clone() for t in v] if isinstance(v, list) else v.clone() for k, v in step.weights.state().items()}
        step.optimizer.scale.fill_(0.0)         # warm-up and capture must not train
        step.bias_scale.fill_(0.0)
        step.capture()
        step.weights.load_state(initial)
        step.optimizer = reset(step.optimizer)
        step.bias_scale.fill_(1.0)
    spent, count = 0.0, 0
    if options.resume:
        saved = torch.load(options.resume, map_location=device, weights_only=True)
        step.load_state(saved["state"])
        spent, count = saved["spent"], saved["count"]
    if options.start:
        step.weights.load_state(torch.load(awaited(options.start), map_location=device, weights_only=True))
    print(f"ready after {time.time() - began:.1f} s", flush=True)
    if options.deadline:
        options.seconds = max(1.0, options.deadline - (time.time() - began))
    train(options, step, feed, out, spent, count)
    feed.stop()


def reset(optimizer):
    """Zeroes the statistics in place: the captured graph holds these very tensors."""
    optimizer.steps.zero_()
    for tensors in (optimizer.first, [s for s in optimizer.second if s is not None]):
        for tensor in tensors:
            tensor.zero_()
    return optimizer


def train(options, step, feed, out, spent, count):
    start, log, shown, saved_at, kept = time.time() - spent, open(out / "log.jsonl", "a"), 0.0, time.time(), False
    while True:
        now = time.time() - start
        fraction = now / options.seconds
        if fraction >= 1 or options.steps and count >= options.steps:
            break
        step.load(feed.next())
        rate = options.peak * schedule(fraction, options.flat, options.end_rate)
        step.optimizer.scale.fill_(rate * min(1, (count + 1) / WARM_UP) if options.start else rate)
        step.rounding.fill_(fraction >= options.round_from)
        step.bias_scale.fill_(rate)
        step()
        count += 1
        if count % 20 == 0:
            report = step.report.tolist()       # waits for the device; every 20 steps that costs nothing
            row = dict(step=count, seconds=round(now, 1), tokens=count * options.tokens, loss=report[0], draft_loss=report[1],
                       hits=report[2:], peak_load=[round(x, 3) for x in step.loads.amax(1).tolist()], waiting=feed.ready.qsize())
            log.write(json.dumps(row) + "\n")
            log.flush()
            if now - shown > 10:
                shown = now
                print(f"{count} {now:.0f}s {count * options.tokens / max(now, 1) / 1e3:.0f}K/s loss {report[0]:.4f} draft {report[1]:.4f} "
                      f"hits {' '.join(f'{h:.3f}' for h in report[2:])} load {max(row['peak_load']):.2f} queue {row['waiting']}", flush=True)
        if fraction >= options.keep_at and not kept:
            kept = True
            save(out / "weights.pt", step.weights.state())
        if time.time() - saved_at > 120 and not options.deadline:
            saved_at = time.time()
            save(out / "state.pt", dict(state=step.state(), spent=now, count=count))
    save(out / "weights.pt", step.weights.state())
    print(f"done: {count} steps, {count * options.tokens / 1e6:.1f} M tokens, {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
