"""Random checkpoints of the family in the four published layouts, for tests: every layer kind, small dimensions.

    python3 tools/random_checkpoint.py OUT --layout fp4 --config nano --seed 1 [--yarn 4] [--shards 2] [--no-mtp]

Layouts: bf16, fp8 (128x128 blocks, F32 scales), fp4 (MXFP4 experts, FP8 rest with E8M0 scales), int4. No tokenizer.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from oracle import E4M3

FAMILY = {
    "architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid", "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 6e6, "rope_interleave": True, "rope_scaling": None,
    "partial_rotary_factor": 0.5, "tie_word_embeddings": False, "score_function": "sigmoid",
    "norm_topk_prob": True, "topk_method": "noaux_tc", "router_dtype": "fp32",
    "moe_router_enable_expert_bias": True, "routed_scaling_factor": 2.5, "num_shared_experts": 1,
    "short_conv_kernel_size": 4, "no_kda_lora": True, "kda_safe_gate": True, "kda_lower_bound": -5.0,
    "gated_attention_proj_granularity_type": "head_wise", "use_bias": False, "use_qkv_bias": False,
    "dtype": "bfloat16", "max_position_embeddings": 4096, "eos_token_id": 3, "pad_token_id": 0,
}  # fmt: skip
NANO = {
    **FAMILY, "hidden_size": 256, "num_hidden_layers": 12, "layer_group_size": 6,
    "first_k_dense_replace": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64,
    "intermediate_size": 384, "vocab_size": 512, "num_experts": 16, "num_experts_per_tok": 4,
    "n_group": 4, "topk_group": 2, "moe_intermediate_size": 64, "q_lora_rank": None,
    "moe_shared_expert_intermediate_size": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "qk_head_dim": 96, "v_head_dim": 64, "num_nextn_predict_layers": 1,
    "expert_swiglu_limit_list": [0] * 9 + [0.3] * 3,
    "share_expert_swiglu_limit_list": [0] * 8 + [0.4] * 2 + [0.6] * 2,
}  # fmt: skip
CONFIGS = {
    "nano": NANO,
    # Ling-3.0-tiny's form: low-rank queries, no MTP, no clamps, a trailing MLA group
    "nano_qlora": {
        **NANO, "num_hidden_layers": 9, "layer_group_size": 4, "first_k_dense_replace": 1,
        "q_lora_rank": 64, "num_nextn_predict_layers": 0, "expert_swiglu_limit_list": None,
        "share_expert_swiglu_limit_list": None,
    },
    # the real per-head shapes; partial FP8 blocks (96, 160 are no multiples of 128)
    "mid": {
        **NANO, "hidden_size": 512, "head_dim": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "qk_head_dim": 192, "v_head_dim": 128, "kv_lora_rank": 512, "num_experts": 64,
        "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "moe_intermediate_size": 96,
        "moe_shared_expert_intermediate_size": 160, "vocab_size": 1024,
    },
    # about 300 MB in bf16: for tests of memory
    "large": {
        **NANO, "hidden_size": 1024, "head_dim": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "qk_head_dim": 192, "v_head_dim": 128, "kv_lora_rank": 512, "num_experts": 64,
        "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "vocab_size": 1024,
    },
    # as small as every layer kind allows: for tests that run many times
    "micro": {
        **NANO, "hidden_size": 64, "num_hidden_layers": 4, "layer_group_size": 2,
        "first_k_dense_replace": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
        "intermediate_size": 96, "vocab_size": 96, "num_experts": 8, "num_experts_per_tok": 2,
        "n_group": 4, "topk_group": 2, "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16, "qk_head_dim": 48, "v_head_dim": 32,
        "expert_swiglu_limit_list": [0, 0, 0.3, 0.3], "share_expert_swiglu_limit_list": [0, 0.4, 0, 0.6],
    },
}  # fmt: skip
QUANTISATION = {
    "bf16": {},
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
            "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]},
    "int4": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
        "group_0": {"targets": ["re:.*mlp.experts.*"], "weights": {
            "num_bits": 4, "type": "int", "symmetric": True, "group_size": 32, "strategy": "group"}}}},
}  # fmt: skip
QUANTISATION["fp4"] = {
    **QUANTISATION["fp8"], "scale_fmt": "ue8m0", "routed_experts_quant_method": "mxfp4",
    "routed_experts_group_size": 32,
}  # fmt: skip


def to_bf16(x):
    """Round to nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def nearest_e4m3(x):
    positive = E4M3[:127]
    above = np.clip(np.searchsorted(positive, np.abs(x)), 1, 126)
    code = above - (np.abs(x) - positive[above - 1] <= positive[above] - np.abs(x))
    return (code | np.where(x < 0, 128, 0)).astype(np.uint8)


class Writer:
    """Collects tensors in one layout and writes shards, index and config."""

    def __init__(self, config, layout, seed):
        self.config, self.layout = config, layout
        self.rng = np.random.default_rng(seed)
        self.tensors = {}

    def plain(self, name, x):
        self.tensors[name] = ("BF16", to_bf16(x))

    def exact(self, name, x):
        self.tensors[name] = ("F32", np.asarray(x, np.float32))

    def norm(self, name, size):
        self.plain(name, 1 + 0.1 * self.rng.standard_normal(size))

    def matrix(self, name, rows, cols, gain=1.0, kind="linear"):
        """kind: linear, expert, or plain (never quantised in any layout)."""
        x = self.rng.standard_normal((rows, cols)) * gain / np.sqrt(cols)
        if kind == "plain" or self.layout == "bf16" or (self.layout == "int4" and kind != "expert"):
            self.plain(name + ".weight", x)
        elif self.layout == "int4":
            self.int4(name, x)
        elif self.layout == "fp4" and kind == "expert":
            self.mxfp4(name, x)
        else:
            self.fp8(name, x)

    def fp8(self, name, x):
        rows, cols = x.shape
        grid = (-(-rows // 128), -(-cols // 128))
        scale = np.empty(grid, np.float32)
        codes = np.empty(x.shape, np.uint8)
        for i, j in np.ndindex(*grid):
            where = np.s_[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128]
            scale[i, j] = np.abs(x[where]).max() / 448
            if self.layout == "fp4":
                scale[i, j] = 2.0 ** np.ceil(np.log2(scale[i, j]))
            codes[where] = nearest_e4m3(x[where] / scale[i, j])
        self.tensors[name + ".weight"] = ("F8_E4M3", codes)
        if self.layout == "fp4":
            code = (np.log2(scale) + 127).round().astype(np.uint8)
            self.tensors[name + ".weight_scale_inv"] = ("F8_E8M0", code)
        else:
            self.tensors[name + ".weight_scale_inv"] = ("F32", scale)

    def mxfp4(self, name, x):
        rows, cols = x.shape
        group = x.reshape(rows, cols // 32, 32)
        exponent = np.clip(np.floor(np.log2(np.abs(group).max(-1) + 1e-30)) - 2, -127, 127)
        scaled = group / 2.0 ** exponent[..., None]
        code = np.searchsorted([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.abs(scaled))
        code = (code | np.where(scaled < 0, 8, 0)).reshape(rows, cols).astype(np.uint8)
        self.tensors[name + ".weight"] = ("I8", code[:, 0::2] | (code[:, 1::2] << 4))
        self.tensors[name + ".weight_scale_inv"] = ("U8", (exponent + 127).astype(np.uint8))

    def int4(self, name, x):
        rows, cols = x.shape
        group = x.reshape(rows, cols // 32, 32)
        scale = to_bf16(np.abs(group).max(-1) / 7)
        value = (scale.astype(np.uint32) << 16).view(np.float32)
        code = np.clip(np.round(group / value[..., None]), -8, 7).reshape(rows, cols // 8, 8) + 8
        words = (code.astype(np.uint32) << (4 * np.arange(8, dtype=np.uint32))).sum(-1)
        self.tensors[name + ".weight_packed"] = ("I32", words.astype(np.uint32))
        self.tensors[name + ".weight_scale"] = ("BF16", scale)
        self.tensors[name + ".weight_shape"] = ("I64", np.array([rows, cols], np.int64))

    def save(self, folder, shards):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = dict(self.config)
        if QUANTISATION[self.layout]:
            config["quantization_config"] = QUANTISATION[self.layout]
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        names = list(self.tensors)
        per_shard = -(-len(names) // shards)
        weight_map = {}
        for s in range(shards):
            file = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
            if shards == 1:
                file = "model.safetensors"
            header, payload, offset = {}, [], 0
            for name in names[s * per_shard : (s + 1) * per_shard]:
                kind, data = self.tensors[name]
                payload.append(np.ascontiguousarray(data).tobytes())
                end = offset + len(payload[-1])
                header[name] = {"dtype": kind, "shape": list(data.shape), "data_offsets": [offset, end]}
                offset, weight_map[name] = end, file
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            body = len(text).to_bytes(8, "little") + text + b"".join(payload)
            (folder / file).write_bytes(body)
        if shards > 1:
            total = sum(data.nbytes for _, data in self.tensors.values())
            index = {"metadata": {"total_size": total}, "weight_map": weight_map}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def add_mla(w, p):
    c = w.config
    hidden, heads, latent = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    width = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    if c["q_lora_rank"]:
        w.matrix(p + "q_a_proj", c["q_lora_rank"], hidden)
        w.norm(p + "q_a_layernorm.weight", c["q_lora_rank"])
        w.matrix(p + "q_b_proj", heads * width, c["q_lora_rank"], 2)
    else:
        w.matrix(p + "q_proj", heads * width, hidden, 2)
    w.matrix(p + "kv_a_proj_with_mqa", latent + c["qk_rope_head_dim"], hidden, 2)
    w.norm(p + "kv_a_layernorm.weight", latent)
    w.matrix(p + "kv_b_proj", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), latent, 2)
    w.matrix(p + "g_proj", heads, hidden, 2, "plain")
    w.matrix(p + "dense", hidden, heads * c["v_head_dim"])


def add_kda(w, p):
    c = w.config
    hidden, heads, dim = c["hidden_size"], c["num_attention_heads"], c["head_dim"]
    inner = heads * dim
    for name in "qkvfg":
        w.matrix(p + f"{name}_proj", inner, hidden, 1.5)
    w.matrix(p + "b_proj", heads, hidden, 1.5, "plain")
    w.exact(p + "A_log", np.log(w.rng.uniform(1, 8, heads)))
    w.exact(p + "dt_bias", w.rng.standard_normal(inner) * 0.5 - 1)
    for name in "qkv":
        taps = c["short_conv_kernel_size"]
        w.plain(p + f"{name}_conv1d.weight", w.rng.standard_normal((inner, 1, taps)) * 0.6)
    w.norm(p + "o_norm.weight", dim)
    w.matrix(p + "o_proj", hidden, inner)


def add_ffn(w, p, width, kind="linear"):
    hidden = w.config["hidden_size"]
    w.matrix(p + "gate_proj", width, hidden, 1.5, kind)
    w.matrix(p + "up_proj", width, hidden, 1.5, kind)
    w.matrix(p + "down_proj", hidden, width, 1, kind)


def add_moe(w, p):
    c = w.config
    w.matrix(p + "gate", c["num_experts"], c["hidden_size"], 2, "plain")
    w.exact(p + "gate.expert_bias", w.rng.standard_normal(c["num_experts"]) * 0.05)
    for e in range(c["num_experts"]):
        add_ffn(w, p + f"experts.{e}.", c["moe_intermediate_size"], "expert")
    shared = c["moe_shared_expert_intermediate_size"] * c["num_shared_experts"]
    add_ffn(w, p + "shared_experts.", shared)


def build(config, layout, seed):
    w = Writer(config, layout, seed)
    c = config
    hidden, layers, group = c["hidden_size"], c["num_hidden_layers"], c["layer_group_size"]
    w.plain("model.word_embeddings.weight", w.rng.standard_normal((c["vocab_size"], hidden)))
    w.norm("model.norm.weight", hidden)
    w.matrix("lm_head", c["vocab_size"], hidden, 3, "plain")
    for layer in range(layers + c["num_nextn_predict_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "input_layernorm.weight", hidden)
        w.norm(p + "post_attention_layernorm.weight", hidden)
        mla = layer >= layers // group * group or (layer + 1) % group == 0
        (add_mla if mla else add_kda)(w, p + "attention.")
        if layer < c["first_k_dense_replace"]:
            add_ffn(w, p + "mlp.", c["intermediate_size"])
        else:
            add_moe(w, p + "mlp.")
        if layer == layers:
            for name in ("enorm", "hnorm", "final_layernorm"):
                w.norm(p + name + ".weight", hidden)
            w.matrix(p + "eh_proj", hidden, 2 * hidden, 1, "plain")
    return w


def make(folder, layout, name, seed, yarn=None, shards=2, mtp=True, changes=None):
    config = {**CONFIGS[name], **(changes or {})}
    if yarn:
        config["rope_scaling"] = {
            "rope_type": "yarn", "factor": yarn, "original_max_position_embeddings": 32,
            "rope_theta": config["rope_theta"],
        }  # fmt: skip
    if not mtp:
        config["num_nextn_predict_layers"] = 0
    build(config, layout, seed).save(folder, shards)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--layout", choices=sorted(QUANTISATION), default="fp4")
    parser.add_argument("--config", choices=sorted(CONFIGS), default="nano")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--yarn", type=float)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--no-mtp", action="store_true")
    a = parser.parse_args()
    make(a.out, a.layout, a.config, a.seed, a.yarn, a.shards, not a.no_mtp)
