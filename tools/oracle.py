"""Numpy oracle of the Ling-3.0 family: float64, one token at a time, written from the formulas in docs/MODEL.md.

Owns nothing but the mathematics; it shares no code with the engine. It expands MLA's keys and values per token instead
of absorbing them, and runs the delta rule step by step, so it checks both of the engine's shortcuts.

    python3 tools/oracle.py CHECKPOINT 1,2,3 OUT.npz     logits, mtp, routes, margins
"""

import json
import sys
from pathlib import Path

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def e4m3_values():
    """The 256 values of OCP E4M3 (bias 7, no infinities)."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    value[(code & 127) == 127] = np.nan
    return np.where(code >= 128, -value, value)


E4M3 = e4m3_values()
STORAGE = {
    "F32": np.float32, "BF16": np.uint16, "U8": np.uint8, "I8": np.uint8, "F8_E4M3": np.uint8,
    "F8_E8M0": np.uint8, "I32": np.uint32, "I64": np.int64,
}  # fmt: skip


class Tensors:
    """All tensors of a folder by name; value(name) dequantises in float64."""

    def __init__(self, folder):
        self.stored = {}
        for path in sorted(Path(folder).glob("*.safetensors")):
            blob = path.read_bytes()
            size = int.from_bytes(blob[:8], "little")
            for name, info in json.loads(blob[8 : 8 + size]).items():
                if name == "__metadata__":
                    continue
                begin, end = (8 + size + x for x in info["data_offsets"])
                data = np.frombuffer(blob[begin:end], STORAGE[info["dtype"]])
                self.stored[name] = (info["dtype"], data.reshape(info["shape"]))

    def __contains__(self, name):
        return name in self.stored

    def plain(self, name):
        kind, data = self.stored[name]
        if kind == "BF16":
            return (data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if kind == "F8_E4M3":
            return E4M3[data]
        if kind in ("F8_E8M0", "U8"):  # scales: powers of two
            return 2.0 ** (data.astype(np.float64) - 127)
        return data.astype(np.float64)

    def matrix(self, base):
        """Matrix `base`.weight in whatever of the four layouts it is stored."""
        if f"{base}.weight_packed" in self:
            words = self.stored[f"{base}.weight_packed"][1]
            codes = np.stack([(words >> np.uint32(4 * i)) & 15 for i in range(8)], -1)
            codes = codes.reshape(words.shape[0], -1).astype(np.float64) - 8
            return codes * np.repeat(self.plain(f"{base}.weight_scale"), 32, axis=1)
        name = f"{base}.weight"
        kind, data = self.stored[name]
        if kind in ("I8", "U8"):
            codes = np.stack([data & 15, data >> 4], -1).reshape(data.shape[0], -1)
            values = np.where(codes >= 8, -1, 1) * E2M1[codes & 7]
            return values * np.repeat(self.plain(f"{name}_scale_inv"), 32, axis=1)
        values = self.plain(name)
        if f"{name}_scale_inv" in self:
            rows, cols = values.shape
            blocks = self.plain(f"{name}_scale_inv")
            values = values * np.kron(blocks, np.ones((128, 128)))[:rows, :cols]
        return values


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def unit(x):
    """L2 norm per head; the epsilon is added to the sum."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


class Oracle:
    def __init__(self, folder):
        self.config = json.loads(Path(folder, "config.json").read_text())
        self.tensors = Tensors(folder)
        self.cached = {}
        c = self.config
        self.layers, self.group = c["num_hidden_layers"], c["layer_group_size"]
        self.heads, self.dim = c["num_attention_heads"], c["head_dim"]
        self.has_mtp = bool(c.get("num_nextn_predict_layers"))
        self.moe_layers = self.layers - c["first_k_dense_replace"]
        self.forced = None
        self.frequencies, self.rope_factor = self.rope_table()

    # -- weights --
    def mat(self, base):
        if base not in self.cached:
            self.cached[base] = self.tensors.matrix(base)
        return self.cached[base]

    def vec(self, name):
        if name not in self.cached:
            self.cached[name] = self.tensors.plain(name)
        return self.cached[name]

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return self.vec(name) * (x / scale)

    # -- structure --
    def is_mla(self, layer):
        return (layer + 1) % self.group == 0 or layer >= self.layers // self.group * self.group

    def rope_table(self):
        """Angles per position of each pair, and the factor on cos and sin (YaRN, spec 'rope_scaling')."""
        c = self.config
        dim, theta = c["qk_rope_head_dim"], c["rope_theta"]
        pair = np.arange(dim // 2)
        base = theta ** (-2.0 * pair / dim)
        scaling = c.get("rope_scaling") or {}
        if (scaling.get("rope_type") or scaling.get("type")) != "yarn":
            return base, 1.0
        factor, length = scaling["factor"], scaling["original_max_position_embeddings"]

        def index(beta):
            return dim * np.log(length / (2 * np.pi * beta)) / (2 * np.log(theta))

        low = np.clip(np.floor(index(scaling.get("beta_fast", 32))), 0, dim - 1)
        high = np.clip(np.ceil(index(scaling.get("beta_slow", 1))), 0, dim - 1)
        ramp = np.clip((pair - low) / max(high - low, 1e-3), 0, 1)
        return base / factor * ramp + base * (1 - ramp), 0.1 * np.log(factor) + 1

    def rotate(self, x, position):
        angle = position * self.frequencies
        cos, sin = np.cos(angle) * self.rope_factor, np.sin(angle) * self.rope_factor
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, odd * cos + even * sin], -1).reshape(x.shape)

    # -- mixers --
    def kda(self, layer, x, state):
        p = f"model.layers.{layer}.attention."
        heads, dim = self.heads, self.dim
        mixed = []
        for i, name in enumerate("qkv"):
            window = np.vstack([state["conv"][i], self.mat(p + f"{name}_proj") @ x])
            taps = self.vec(p + f"{name}_conv1d.weight").reshape(heads * dim, -1)
            mixed.append(silu((window * taps.T).sum(0)).reshape(heads, dim))
            state["conv"][i] = window[1:]
        q, k, v = unit(mixed[0]) / np.sqrt(dim), unit(mixed[1]), mixed[2]
        rate = np.exp(self.vec(p + "A_log").reshape(heads, 1))
        raw = (self.mat(p + "f_proj") @ x + self.vec(p + "dt_bias")).reshape(heads, dim)
        decay = np.exp(self.config["kda_lower_bound"] * sigmoid(rate * raw))
        beta = sigmoid(self.mat(p + "b_proj") @ x)
        out = np.empty((heads, dim))
        for h in range(heads):
            s = decay[h][:, None] * state["s"][h]
            s = s + np.outer(k[h], beta[h] * (v[h] - k[h] @ s))
            state["s"][h], out[h] = s, q[h] @ s
        gate = sigmoid(self.mat(p + "g_proj") @ x).reshape(heads, dim)
        return self.mat(p + "o_proj") @ (self.norm(out, p + "o_norm.weight") * gate).ravel()

    def mla(self, layer, x, state, position):
        c, p, heads = self.config, f"model.layers.{layer}.attention.", self.heads
        nope, latent = c["qk_nope_head_dim"], c["kv_lora_rank"]
        width = nope + c["qk_rope_head_dim"]
        if c.get("q_lora_rank"):
            low = self.norm(self.mat(p + "q_a_proj") @ x, p + "q_a_layernorm.weight")
            q = (self.mat(p + "q_b_proj") @ low).reshape(heads, width)
        else:
            q = (self.mat(p + "q_proj") @ x).reshape(heads, width)
        kv = self.mat(p + "kv_a_proj_with_mqa") @ x
        c_row = self.norm(kv[:latent], p + "kv_a_layernorm.weight")
        expanded = (self.mat(p + "kv_b_proj") @ c_row).reshape(heads, -1)
        state["k"].append(expanded[:, :nope])
        state["v"].append(expanded[:, nope:])
        state["r"].append(self.rotate(kv[latent:], position))
        k, v, r = (np.array(state[name]) for name in "kvr")
        q_rope = self.rotate(q[:, nope:], position)
        scores = np.einsum("hn,thn->ht", q[:, :nope], k) + q_rope @ r.T
        scores = scores / np.sqrt(width)
        weight = np.exp(scores - scores.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        out = np.einsum("ht,thv->hv", weight, v)
        out *= sigmoid(self.mat(p + "g_proj") @ x)[:, None]
        return self.mat(p + "dense") @ out.ravel()

    # -- feed forward --
    def gated(self, prefix, x, limit=0.0):
        gate, up = silu(self.mat(prefix + "gate_proj") @ x), self.mat(prefix + "up_proj") @ x
        if limit:
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return self.mat(prefix + "down_proj") @ (gate * up)

    def limit(self, key, layer):
        values = self.config.get(key) or []
        return float(values[layer] or 0) if layer < len(values) else 0.0

    def route(self, layer, x):
        """Chosen experts (best first), their weights, and the smallest score gap that would change the choice."""
        c, p = self.config, f"model.layers.{layer}.mlp."
        score = sigmoid(self.mat(p + "gate") @ x)
        biased = (score + self.vec(p + "gate.expert_bias")).reshape(c["n_group"], -1)
        group = np.sort(biased, 1)[:, -2:].sum(1)
        order = np.argsort(-group, kind="stable")
        keep = order[: c["topk_group"]]
        masked = np.full_like(biased, -np.inf)
        masked[keep] = biased[keep]
        masked = masked.ravel()
        ids = np.argsort(-masked, kind="stable")
        k = c["num_experts_per_tok"]
        gaps = [np.inf]
        if c["topk_group"] < c["n_group"]:
            gaps.append(group[keep[-1]] - group[order[len(keep)]])
        if k < len(ids):
            gaps.append(masked[ids[k - 1]] - masked[ids[k]])
        ids = ids[:k]
        if self.forced is not None:
            ids = np.asarray(next(self.forced))
        weight = score[ids] / (score[ids].sum() + 1e-20) * c["routed_scaling_factor"]
        return ids, weight, min(gaps)

    def feed(self, layer, x, trace):
        p = f"model.layers.{layer}.mlp."
        if layer < self.config["first_k_dense_replace"]:
            return self.gated(p, x)
        ids, weights, gap = self.route(layer, x)
        trace.append((ids, gap))
        y = self.gated(p + "shared_experts.", x, self.limit("share_expert_swiglu_limit_list", layer))
        for expert, weight in zip(ids, weights):
            limit = self.limit("expert_swiglu_limit_list", layer)
            y = y + weight * self.gated(f"{p}experts.{expert}.", x, limit)
        return y

    # -- the model --
    def block(self, layer, x, state, position, trace):
        p = f"model.layers.{layer}."
        h = self.norm(x, p + "input_layernorm.weight")
        mla = layer == self.layers or self.is_mla(layer)
        x = x + (self.mla(layer, h, state, position) if mla else self.kda(layer, h, state))
        return x + self.feed(layer, self.norm(x, p + "post_attention_layernorm.weight"), trace)

    def new_state(self, mla):
        if mla:
            return {"k": [], "v": [], "r": []}
        taps = self.config["short_conv_kernel_size"] - 1
        return {
            "s": np.zeros((self.heads, self.dim, self.dim)),
            "conv": np.zeros((3, taps, self.heads * self.dim)),
        }

    def run(self, tokens, routes=None):
        """Dict of logits [n, V], mtp [n-1, V], routes and margins; `routes` [n, moe + 1, k] replaces the choice."""
        n, last = len(tokens), self.layers
        if routes is not None:
            queue = [row for i in range(n) for row in routes[i, : self.moe_layers]]
            queue += [routes[i, self.moe_layers] for i in range(n - 1)] if self.has_mtp else []
            self.forced = iter(queue)
        k = self.config["num_experts_per_tok"]
        taken = np.full((n, self.moe_layers + 1, k), -1, np.int32)
        margins = np.full((n, self.moe_layers + 1), np.inf)
        states = [self.new_state(self.is_mla(layer)) for layer in range(last)]
        embedding, head = self.mat("model.word_embeddings"), self.mat("lm_head")
        logits, hidden = [], []
        for i, token in enumerate(tokens):
            x, trace = embedding[token], []
            for layer in range(last):
                x = self.block(layer, x, states[layer], i, trace)
            hidden.append(self.norm(x, "model.norm.weight"))
            logits.append(head @ hidden[-1])
            for column, (ids, gap) in enumerate(trace):
                taken[i, column], margins[i, column] = ids, gap
        mtp, state, p = [], self.new_state(True), f"model.layers.{last}."
        for i in range(n - 1 if self.has_mtp else 0):
            e = self.norm(embedding[tokens[i + 1]], p + "enorm.weight")
            x = self.mat(p + "eh_proj") @ np.concatenate([e, self.norm(hidden[i], p + "hnorm.weight")])
            trace = []
            x = self.block(last, x, state, i, trace)
            mtp.append(head @ self.norm(x, p + "final_layernorm.weight"))
            taken[i, -1], margins[i, -1] = trace[0]
        self.forced = None
        return {
            "logits": np.array(logits), "mtp": np.array(mtp), "routes": taken, "margins": margins
        }  # fmt: skip


if __name__ == "__main__":
    result = Oracle(sys.argv[1]).run([int(t) for t in sys.argv[2].split(",")])
    np.savez(sys.argv[3], **result)
