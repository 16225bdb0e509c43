"""The model on a packed batch: main loss, three MTP losses, expert loads. A pass reads like the paper."""
import torch

from . import kda, layers

DRAFTS = 3


class TrainForm:
    def __init__(self, weights, longest, compiled):
        """`compiled` turns each piece into few kernels; without it everything runs as written (CPU, parity)."""
        self.w, self.c, self.longest = weights, weights.config, longest
        self.limits = [[torch.tensor(limit or float("inf"), device=weights.device) for limit in self.c.limits(layer)]
                       for layer in range(self.c.num_hidden_layers + 1)]
        wrap = torch.compile if compiled else (lambda f: f)
        for piece in (layers.kda_inputs, layers.kda_output, layers.mla_inputs, layers.mla_output, layers.dense_ffn,
                      layers.moe_ffn, layers.mtp_inputs, layers.weighted_loss, layers.rms):
            setattr(self, piece.__name__, wrap(piece))

    def kda(self, layer, x, positions, bounds):
        w, p, c = self.w, f"layers.{layer}.", self.c
        a = p + "attention."
        q, k, v, f, beta, gate = self.kda_inputs(x, w[p + "input_layernorm"], w[a + "qkvfg_proj"], w[a + "b_proj"],
                                                 w[a + "conv1d"], positions, c.num_attention_heads, c.head_dim)
        o = kda.mix(q, k, v, f, beta, w[a + "A_log"], w[a + "dt_bias"], bounds, c.kda_lower_bound)
        return self.kda_output(x, o, gate, w[a + "o_norm"], w[a + "o_proj"])

    def mla(self, layer, x, positions, bounds):
        w, p = self.w, f"layers.{layer}."
        a = p + "attention."
        q, k, v, gate = self.mla_inputs(x, w[p + "input_layernorm"], w[a + "q_proj"], w[a + "kv_a_proj_with_mqa"],
                                        w[a + "kv_a_layernorm"], w[a + "kv_b_proj"], w[a + "g_proj"], positions, self.c)
        o = layers.attend(q, k, v, bounds, self.longest)
        return self.mla_output(x, o, gate, w[a + "dense"], self.c.v_head_dim)

    def ffn(self, layer, x):
        w, p = self.w, f"layers.{layer}."
        norm, m = w[p + "post_attention_layernorm"], p + "mlp."
        if self.c.is_dense(layer):
            return self.dense_ffn(x, norm, w[m + "gate_up"], w[m + "down_proj"]), None
        return self.moe_ffn(x, norm, w[m + "gate"], w.expert_bias[layer], w[m + "experts.gate_up"], w[m + "experts.down_t"],
                            w[m + "shared_experts.gate_up"], w[m + "shared_experts.down_proj"], self.c, *self.limits[layer])

    def main(self, tokens, positions, bounds):
        """Final-normed hidden [T, h] and the expert loads of each layer."""
        x, loads = self.w["word_embeddings"][tokens], []
        x = x.float() if x.dtype == torch.bfloat16 else x
        for layer in range(self.c.num_hidden_layers):
            x = (self.mla if self.c.is_mla(layer) else self.kda)(layer, x, positions, bounds)
            x, load = self.ffn(layer, x)
            loads.append(load)
        return self.rms(x, self.w["norm"]), loads

    def mtp(self, next_tokens, hidden, positions, bounds):
        """One draft step for all positions: pair (next token, hidden) -> hidden that predicts the token after it."""
        w, n = self.w, self.c.num_hidden_layers
        p = f"layers.{n}."
        embedding = w["word_embeddings"].detach()[next_tokens].to(hidden.dtype)
        x = self.mtp_inputs(embedding, w[p + "enorm"], hidden, w[p + "hnorm"], w[p + "eh_proj"])
        x = self.mla(n, x, positions, bounds)
        x, load = self.ffn(n, x)
        return self.rms(x, w[p + "final_layernorm"]), load

    def losses(self, tokens, weights, positions, bounds):
        """Main loss and the mean draft loss. Draft gradients stop at the main hidden, the embedding and the head: the
        body then trains exactly as without drafts, and the MTP layer may be unrolled on its own output from the start."""
        hidden, loads = self.main(tokens, positions, bounds)
        targets, weight = ahead(tokens, weights, positions, 1)
        loss, hits = self.weighted_loss(hidden, self.w["lm_head"], targets, weight)
        hidden, draft_loss, draft_hits = hidden.detach(), 0, []
        for depth in range(1, DRAFTS + 1):
            next_tokens, _ = ahead(tokens, weights, positions, depth)
            targets, weight = ahead(tokens, weights, positions, depth + 1)
            hidden, load = self.mtp(next_tokens, hidden, positions, bounds)
            part, hit = self.weighted_loss(hidden, self.w["lm_head"].detach(), targets, weight)
            draft_loss, draft_hits = draft_loss + part / DRAFTS, draft_hits + [hit]
            if depth == 1:
                loads.append(load)
        return loss, draft_loss, torch.stack([hits, *draft_hits]), loads


def ahead(tokens, weights, positions, steps):
    """Tokens `steps` later and their weights, zero where the document has ended."""
    same = torch.roll(positions, -steps) == positions + steps
    return torch.roll(tokens, -steps), torch.where(same, torch.roll(weights, -steps), 0.0)
