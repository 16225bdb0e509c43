"""Writes trained weights as a checkpoint folder in one of the four published layouts.

    python export.py --weights run/weights.pt --layout fp4 --out models/ling-nano

One model.safetensors, config.json, generation_config.json; tokenizer, template and card are copied if they lie elsewhere.
Precision by tensor: routed experts MXFP4 (fp4), FP8 (fp8) or INT4 (int4); other matrices FP8 in fp8 and fp4; router,
embeddings, head, norms, convolutions, b_proj, head gates and eh_proj BF16; A_log, dt_bias and expert_bias F32.
"""
import argparse
import json
import shutil
import struct
from pathlib import Path

import torch

from data.render import MODEL
from model import formats
from model.config import Config, config_json
from model.weights import Weights

DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float8_e4m3fn: "F8_E4M3", torch.int8: "I8",
          torch.uint8: "U8", torch.int32: "I32", torch.int64: "I64"}


def checkpoint_matrices(weights):
    """(checkpoint name without `.weight`, form, value) of every tensor, fused leaves taken apart."""
    c, split = weights.config, lambda name, parts: weights.master(name).chunk(parts)
    yield "model.word_embeddings", "bf16", weights.master("word_embeddings")
    yield "model.norm", "bf16", weights.master("norm")
    yield "lm_head", "bf16", weights.master("lm_head")
    for name in weights.leaf:
        p, _, leaf = name.rpartition(".")
        p, m = f"model.{p}.", weights.master(name)
        if not name.startswith("layers."):
            continue
        if leaf == "qkvfg_proj":
            for letter, part in zip("qkvfg", split(name, 5)):
                yield f"{p}{letter}_proj", "fp8", part
        elif leaf == "conv1d":
            for letter, part in zip("qkv", split(name, 3)):
                yield f"{p}{letter}_conv1d", "bf16", part[:, None]
        elif name.endswith("experts.gate_up") and "shared" not in name:
            for half, part in zip(("gate", "up"), split(name, 2)):
                for e, expert in enumerate(part.chunk(c.num_experts)):
                    yield f"{p}{e}.{half}_proj", "expert", expert
        elif leaf == "down_t":
            for e, expert in enumerate(split(name, c.num_experts)):
                yield f"{p}{e}.down_proj", "expert", expert.t()
        elif leaf == "gate_up":
            for half, part in zip(("gate", "up"), split(name, 2)):
                yield f"{p}{half}_proj", "fp8", part
        elif leaf in ("A_log", "dt_bias"):
            yield f"{p}{leaf}", "f32", m
        else:
            form = weights.banks[weights.places[name][0]].form
            yield f"{p}{leaf}", form, m
    for layer in range(c.num_hidden_layers + 1):
        if not c.is_dense(layer):
            yield f"model.layers.{layer}.mlp.gate.expert_bias", "f32", weights.expert_bias[layer]


def stored(name, form, value, layout):
    """The tensors that one matrix becomes on disk."""
    value = value.detach().float().contiguous()
    if form == "f32":
        return {name: value}
    full = f"{name}.weight"
    if form == "expert" and layout == "fp4":
        codes, scale = formats.mxfp4_encode(value)
        return {full: codes, f"{full}_scale_inv": scale}
    if form == "expert" and layout == "int4":
        words, scale = formats.int4_encode(value)
        return {f"{name}.weight_packed": words, f"{name}.weight_scale": scale,
                f"{name}.weight_shape": torch.tensor(value.shape)}
    if form in ("fp8", "expert") and layout in ("fp8", "fp4"):
        codes, scale = formats.fp8_encode(value, e8m0=layout == "fp4")
        return {full: codes, f"{full}_scale_inv": E8M0(formats.e8m0_code(scale)) if layout == "fp4" else scale}
    return {full: value.bfloat16()}


class E8M0:
    """Scale bytes whose header entry says F8_E8M0."""
    def __init__(self, codes):
        self.codes = codes


def write_safetensors(path, tensors):
    """Header length (8 bytes, little endian), JSON header padded to 8 bytes, then the tensors without gaps. Wider types
    come first, so that every tensor starts at a multiple of its element size."""
    head, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    width = lambda t: 1 if isinstance(t, E8M0) else t.element_size()
    for name, tensor in sorted(tensors.items(), key=lambda item: (-width(item[1]), item[0])):
        codes = tensor.codes if isinstance(tensor, E8M0) else tensor
        blob = codes.contiguous().cpu().view(torch.uint8).numpy().tobytes()
        kind = "F8_E8M0" if isinstance(tensor, E8M0) else DTYPES[tensor.dtype]
        head[name] = dict(dtype=kind, shape=list(codes.shape), data_offsets=[at, at + len(blob)])
        blobs.append(blob)
        at += len(blob)
    header = json.dumps(head, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for blob in blobs:
            file.write(blob)


def export(weights, layout, out):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, form, value in checkpoint_matrices(weights):
        tensors.update(stored(name, form, value, layout))
    write_safetensors(out / "model.safetensors", tensors)
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    eos, pad = (tokenizer.token_to_id(t) for t in ("<|role_end|>", "<|endoftext|>"))
    config = config_json(weights.config, layout, eos, pad)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(dict(do_sample=True, temperature=0.6, top_p=0.95), indent=2) + "\n")
    for extra in ("tokenizer.json", "chat_template.jinja", "README.md"):
        if (MODEL / extra).exists() and MODEL.resolve() != out.resolve():
            shutil.copy(MODEL / extra, out / extra)
    return len(tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", help="weights.pt of a run; without it the random initial weights are written")
    parser.add_argument("--layout", choices=("bf16", "fp8", "fp4", "int4"), default="fp4")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    weights = Weights(Config(), "cpu", options.seed)
    if options.weights:
        weights.load_state(torch.load(options.weights, map_location="cpu", weights_only=True))
    count = export(weights, options.layout, options.out)
    size = sum(f.stat().st_size for f in Path(options.out).iterdir())
    print(f"{options.out}: {count} tensors, {size} bytes in all files")


if __name__ == "__main__":
    main()
