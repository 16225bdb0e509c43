"""Picks the launch configuration of each KDA kernel once per GPU model and keeps it as small files.

    python tune.py --out kernel_configs        then train with FLA_CACHE_MODE=default FLA_CONFIG_DIR=kernel_configs

Left to itself the tuner compiles some two hundred variants one after the other. Here processes compile them side by
side into Triton's cache first; the measuring pass then only loads them.
"""
import argparse
import json
import multiprocessing
import sys
from pathlib import Path

import torch


def one_pass(tokens, documents):
    """Forward and backward of the kernel at the training shapes."""
    from model import kda
    leaf = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16).requires_grad_(True)
    q, k, v, f, beta = leaf(tokens, 2, 128), leaf(tokens, 2, 128), leaf(tokens, 2, 128), leaf(tokens, 2, 128), leaf(tokens, 2)
    A_log, dt_bias = torch.zeros(2, device="cuda", requires_grad=True), torch.zeros(256, device="cuda", requires_grad=True)
    step = max(1, tokens // (documents // 2))
    bounds = torch.clamp(torch.arange(documents + 1, device="cuda") * step, max=tokens)
    bounds[-1] = tokens
    kda.mix(q, k, v, f, beta, A_log, dt_bias, bounds, -5.0).float().square().sum().backward()
    torch.cuda.synchronize()


def tuners():
    from triton.runtime.autotuner import Autotuner
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("fla."):
            for thing in list(vars(module).values()):
                while thing is not None and not isinstance(thing, Autotuner) and hasattr(thing, "fn"):
                    thing = thing.fn
                if isinstance(thing, Autotuner):
                    found[id(thing)] = thing
    return list(found.values())


def compile_share(index, count):
    import fla.ops.kda  # noqa: F401
    for tuner in tuners():
        tuner.configs = tuner.configs[index::count] or tuner.configs[:1]
        tuner._do_bench = lambda call, quantiles: (call(), [1.0] * 3)[1]
    one_pass(1024, 640)


def quick_bench(call, quantiles):
    """Least of six timed calls, in ms: enough to rank variants, a tenth of the usual time."""
    call()
    times = []
    for _ in range(6):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return [min(times)] * 3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--processes", type=int, default=15)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=compile_share, args=(i, options.processes)) for i in range(options.processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    import fla.ops.kda  # noqa: F401
    for tuner in tuners():
        tuner._do_bench = quick_bench
    one_pass(65536, 640)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    for tuner in tuners():
        for config in list(tuner.cache.values())[:1]:
            kept = dict(kwargs=config.kwargs, num_warps=config.num_warps, num_stages=config.num_stages,
                        num_ctas=config.num_ctas, maxnreg=config.maxnreg, ir_override=None)
            name = tuner.base_fn.__name__
            (out / f"{name}.json").write_text(json.dumps(dict(kernel_name=name, default_config=kept)) + "\n")
            print(name, config.kwargs, config.num_warps, config.num_stages)


if __name__ == "__main__":
    main()
