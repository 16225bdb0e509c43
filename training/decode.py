"""Token-by-token form of the model over a batch of sequences that all start at position 0: the evaluator's engine.

State per layer: KDA matrix and three pre-convolution inputs, or latent rows; one further latent cache for the MTP layer.
Plain torch in any dtype on any device; nothing is rounded but the weights themselves.
"""
import torch
import torch.nn.functional as F

from checkpoint import Checkpoint
from model.layers import rope, route
from model.config import Config


def rms(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


class Decoder:
    def __init__(self, folder, device="cpu", dtype=torch.float32):
        ck, c = Checkpoint(folder, dtype), Config()
        self.c, self.device, self.dtype = c, device, dtype
        move = lambda t: t.to(device)
        matrix = lambda n: move(ck.matrix(n))
        self.embedding, self.head = matrix("model.word_embeddings"), matrix("lm_head")
        self.norm = matrix("model.norm")
        self.layers = [self.load_layer(ck, l, matrix, move) for l in range(c.num_hidden_layers + 1)]
        p = f"model.layers.{c.num_hidden_layers}."
        self.mtp_w = {k: matrix(p + k) for k in ("enorm", "hnorm", "eh_proj", "final_layernorm")}

    def load_layer(self, ck, l, matrix, move):
        c, p = self.c, f"model.layers.{l}."
        w = {k: matrix(p + k) for k in ("input_layernorm", "post_attention_layernorm")}
        if l < c.num_hidden_layers and not c.is_mla(l):
            w.update({k: matrix(f"{p}attention.{k}") for k in ("b_proj", "o_norm", "o_proj")})
            w["qkvfg"] = torch.cat([matrix(f"{p}attention.{x}_proj") for x in "qkvfg"])
            w["conv"] = torch.cat([matrix(f"{p}attention.{x}_conv1d")[:, 0] for x in "qkv"])
            w["A_log"], w["dt_bias"] = (move(ck.plain(f"{p}attention.{k}")) for k in ("A_log", "dt_bias"))
        else:
            w.update({k: matrix(f"{p}attention.{k}") for k in
                      ("q_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "g_proj", "dense")})
        m = p + "mlp."
        if c.is_dense(l):
            w["gate_up"], w["down"] = torch.cat([matrix(m + "gate_proj"), matrix(m + "up_proj")]), matrix(m + "down_proj")
        else:
            w["gate"], w["bias"] = matrix(m + "gate"), move(ck.plain(m + "gate.expert_bias"))
            stack = lambda half: torch.cat([matrix(f"{m}experts.{e}.{half}_proj") for e in range(c.num_experts)])
            w["experts"] = torch.cat([stack("gate"), stack("up")])
            w["down"] = torch.cat([matrix(f"{m}experts.{e}.down_proj") for e in range(c.num_experts)], 1)
            w["shared"] = torch.cat([matrix(m + "shared_experts.gate_proj"), matrix(m + "shared_experts.up_proj")])
            w["shared_down"] = matrix(m + "shared_experts.down_proj")
        return w

    def new_state(self, batch, length):
        """`length`: the most positions that will be used."""
        c, zeros, state = self.c, lambda *s: torch.zeros(*s, device=self.device, dtype=self.dtype), []
        for l in range(c.num_hidden_layers + 1):
            if l < c.num_hidden_layers and not c.is_mla(l):
                state.append([zeros(batch, 2, 128, 128), zeros(batch, 3, 3 * 256)])
            else:
                state.append(zeros(batch, length, c.kv_lora_rank + c.qk_rope_head_dim))
        return state

    def kda(self, w, x, state):
        y = x @ w["qkvfg"].t()
        window = torch.cat([state[1], y[:, None, :768]], 1)
        state[1] = window[:, 1:]
        q, k, v = F.silu((window * w["conv"].t()).sum(1)).view(-1, 3, 2, 128).unbind(1)
        unit = lambda t: t * torch.rsqrt(t.square().sum(-1, keepdim=True) + 1e-6)
        q, k = unit(q) * 128 ** -0.5, unit(k)
        a = (y[:, 768:1024] + w["dt_bias"]).view(-1, 2, 128)
        alpha = torch.exp(self.c.kda_lower_bound * torch.sigmoid(torch.exp(w["A_log"])[:, None] * a))
        S = state[0].mul_(alpha[..., None])
        u = torch.sigmoid(x @ w["b_proj"].t())[..., None] * (v - torch.einsum("bhkv,bhk->bhv", S, k))
        S.add_(k[..., None] * u[:, :, None])
        o = torch.einsum("bhkv,bhk->bhv", S, q)
        gated = rms(o, w["o_norm"]) * torch.sigmoid(y[:, 1024:].view(-1, 2, 128))
        return gated.flatten(1) @ w["o_proj"].t()

    def mla(self, w, x, cache, position):
        """Absorbed form over the latent cache; writes row `position`, reads rows up to it."""
        c, B = self.c, x.shape[0]
        R, nope = c.kv_lora_rank, c.qk_nope_head_dim
        at = torch.full((B,), position, device=self.device)
        q = (x @ w["q_proj"].t()).view(B, 2, nope + 64)
        r = x @ w["kv_a_proj_with_mqa"].t()
        cache[:, position] = torch.cat([rms(r[:, :R], w["kv_a_layernorm"]), rope(r[:, R:], at, c.rope_theta)], -1)
        b = w["kv_b_proj"].view(2, nope + 128, R)
        q = torch.cat([torch.einsum("bhn,hnr->bhr", q[..., :nope], b[:, :nope]), rope(q[..., nope:], at, c.rope_theta)], -1)
        rows = cache[:, :position + 1]
        p = torch.softmax(torch.einsum("bhr,btr->bht", q, rows) * (nope + 64) ** -0.5, -1)
        o = torch.einsum("bhr,hnr->bhn", torch.einsum("bht,btr->bhr", p, rows[..., :R]), b[:, nope:])
        return (o * torch.sigmoid(x @ w["g_proj"].t())[..., None]).flatten(1) @ w["dense"].t()

    def ffn(self, l, w, x):
        c = self.c
        def act(y, limit):
            gate, up = y.chunk(2, -1)
            gate = F.silu(gate)
            return gate.clamp(max=limit) * up.clamp(-limit, limit) if limit else gate * up
        if c.is_dense(l):
            return act(x @ w["gate_up"].t(), 0) @ w["down"].t()
        limit, shared_limit = c.limits(l)
        weights, _ = route(torch.sigmoid(x @ w["gate"].t()), w["bias"], c)
        hidden = act(x @ w["experts"].t(), limit).view(-1, c.num_experts, c.moe_intermediate_size) * weights[..., None]
        return hidden.flatten(1) @ w["down"].t() + act(x @ w["shared"].t(), shared_limit) @ w["shared_down"].t()

    def block(self, l, x, state, position):
        w = self.layers[l]
        h = rms(x, w["input_layernorm"])
        x = x + (self.kda(w, h, state[l]) if isinstance(state[l], list) else self.mla(w, h, state[l], position))
        return x + self.ffn(l, w, rms(x, w["post_attention_layernorm"]))

    @torch.no_grad()
    def step(self, tokens, state, position):
        """(logits [B, V], final-normed hidden [B, h]) after feeding one token to every sequence."""
        x = self.embedding[tokens]
        for l in range(self.c.num_hidden_layers):
            x = self.block(l, x, state, position)
        hidden = rms(x, self.norm)
        return hidden @ self.head.t(), hidden

    @torch.no_grad()
    def draft(self, tokens, hidden, state, position):
        """One MTP step: the pair (next token, hidden of `position`) -> (logits, hidden to feed back)."""
        m, l = self.mtp_w, self.c.num_hidden_layers
        x = torch.cat([rms(self.embedding[tokens], m["enorm"]), rms(hidden, m["hnorm"])], -1) @ m["eh_proj"].t()
        out = rms(self.block(l, x, state, position), m["final_layernorm"])
        return out @ self.head.t(), out
