"""All parameters: one table, masters in float32 kept in banks of equal shape, working copies in bfloat16.

A leaf is what a layer multiplies with (for example the rows of q, k, v, f and g under each other); its blocks are the
matrices that the optimizer sees. Leaves of equal block shape share a bank, so that one step over a few large tensors
updates everything, and the gradients of all leaves are views of one buffer per bank.
"""
import math
from dataclasses import dataclass

import torch

from . import formats


@dataclass
class Leaf:
    name: str
    shape: tuple            # of the working copy
    blocks: int             # leading axis of the bank that this leaf fills: shape[0] = blocks * rows
    rule: str               # muon | adam
    form: str               # fp8 | mxfp4 | mxfp4_t (stored transposed) | bf16 | f32
    scale: float            # initial standard deviation; norms hold ones instead
    kind: str = "normal"    # normal | ones | zeros | decay | embedding


def leaves(c):
    h, d, heads = c.hidden_size, c.head_dim, c.num_attention_heads
    inner, rope, nope = heads * d, c.qk_rope_head_dim, c.qk_nope_head_dim
    out = [Leaf("word_embeddings", (c.vocab_size, h), 1, "adam", "bf16", 0.7),
           Leaf("lm_head", (c.vocab_size, h), 1, "adam", "bf16", 0.02),
           Leaf("norm", (h,), 1, "adam", "bf16", 0, "ones")]

    def norm(name, size=h):
        out.append(Leaf(name, (size,), 1, "adam", "bf16", 0, "ones"))

    def matrix(name, rows, cols, blocks=1, gain=1.0, form="fp8", rule="muon"):
        out.append(Leaf(name, (rows, cols), blocks, rule, form, gain / math.sqrt(cols)))

    def mla(p):
        matrix(p + "q_proj", heads * (nope + rope), h)
        matrix(p + "kv_a_proj_with_mqa", c.kv_lora_rank + rope, h)
        norm(p + "kv_a_layernorm", c.kv_lora_rank)
        matrix(p + "kv_b_proj", heads * (nope + c.v_head_dim), c.kv_lora_rank)
        matrix(p + "g_proj", heads, h, form="bf16", rule="adam")
        matrix(p + "dense", h, heads * c.v_head_dim, gain=0.3)

    def kda(p):
        matrix(p + "qkvfg_proj", 5 * inner, h, blocks=5)
        matrix(p + "b_proj", heads, h, form="bf16", rule="adam")
        out.append(Leaf(p + "conv1d", (3 * inner, 4), 1, "adam", "bf16", 0.4))
        out.append(Leaf(p + "A_log", (heads,), 1, "adam", "f32", 0, "zeros"))
        out.append(Leaf(p + "dt_bias", (inner,), 1, "adam", "f32", 0, "decay"))
        norm(p + "o_norm", d)
        matrix(p + "o_proj", h, inner, gain=0.3)

    def moe(p):
        e, i, s = c.num_experts, c.moe_intermediate_size, c.moe_shared_expert_intermediate_size
        matrix(p + "gate", e, h, form="bf16", rule="adam")
        matrix(p + "experts.gate_up", 2 * e * i, h, blocks=2 * e, form="mxfp4")
        out.append(Leaf(p + "experts.down_t", (e * i, h), e, "muon", "mxfp4_t", 0.3 / math.sqrt(i)))
        matrix(p + "shared_experts.gate_up", 2 * s, h, blocks=2)
        matrix(p + "shared_experts.down_proj", h, s, gain=0.3)

    for layer in range(c.num_hidden_layers + 1):
        p, mtp = f"layers.{layer}.", layer == c.num_hidden_layers
        if mtp:
            norm(p + "enorm"), norm(p + "hnorm"), norm(p + "final_layernorm")
            matrix(p + "eh_proj", h, 2 * h, form="bf16")
        norm(p + "input_layernorm"), norm(p + "post_attention_layernorm")
        (mla if mtp or c.is_mla(layer) else kda)(p + "attention.")
        if c.is_dense(layer):
            matrix(p + "mlp.gate_up", 2 * c.intermediate_size, h, blocks=2)
            matrix(p + "mlp.down_proj", h, c.intermediate_size, gain=0.3)
        else:
            moe(p + "mlp.")
    return out


@dataclass
class Bank:
    rule: str
    form: str
    master: torch.Tensor        # [n, rows, cols] or [n, size], float32
    work: torch.Tensor          # same shape, bfloat16 (float32 for form f32)
    grad: torch.Tensor          # like work


class Weights:
    def __init__(self, config, device, seed=0, dtype=torch.bfloat16):
        self.config, self.device = config, device
        table, groups = leaves(config), {}
        for leaf in table:
            block = (leaf.shape[0] // leaf.blocks, *leaf.shape[1:])
            groups.setdefault((leaf.rule, leaf.form, block), []).append(leaf)
        generator = torch.Generator().manual_seed(seed)
        self.leaf, self.banks, self.places = {}, [], {}
        for (rule, form, block), members in groups.items():
            parts = [initial(leaf, generator).view(leaf.blocks, *block) for leaf in members]
            master = torch.cat(parts).to(device)
            kept = torch.float32 if form == "f32" else dtype
            bank = Bank(rule, form, master, master.to(kept), torch.zeros_like(master, dtype=kept))
            self.banks.append(bank)
            at = 0
            for leaf in members:
                work = bank.work[at:at + leaf.blocks].view(leaf.shape).detach().requires_grad_(True)
                work.grad = bank.grad[at:at + leaf.blocks].view(leaf.shape)
                self.leaf[leaf.name] = work
                self.places[leaf.name] = (len(self.banks) - 1, at, leaf.blocks)
                at += leaf.blocks
        layers = config.num_hidden_layers + 1
        self.expert_bias = torch.zeros(layers, config.num_experts, device=device)

    def __getitem__(self, name):
        return self.leaf[name]

    def master(self, name):
        bank, at, blocks = self.places[name]
        return self.banks[bank].master[at:at + blocks].view(self.leaf[name].shape)

    @torch.no_grad()
    def refresh(self, rounding):
        """Working copies from the masters; `rounding` (a 0-d bool tensor) sends them through the shipped formats."""
        for bank in self.banks:
            bank.work.copy_(torch.where(rounding, rounded(bank), bank.master))
            bank.grad.zero_()

    def state(self):
        return dict(masters=[bank.master for bank in self.banks], expert_bias=self.expert_bias)

    def load_state(self, state):
        for bank, master in zip(self.banks, state["masters"]):
            bank.master.copy_(master)
        self.expert_bias.copy_(state["expert_bias"])


def rounded(bank):
    if bank.form == "fp8":
        return formats.fp8_round(bank.master)
    if bank.form == "mxfp4":
        return formats.mxfp4_round(bank.master)
    if bank.form == "mxfp4_t":
        return formats.mxfp4_round(bank.master.mT.contiguous()).mT
    return bank.master


def initial(leaf, generator):
    if leaf.kind == "ones":
        return torch.ones(leaf.shape)
    if leaf.kind == "zeros":
        return torch.zeros(leaf.shape)
    if leaf.kind == "decay":
        # g = -5 sigmoid(a) spread over half-lives from about 1 to 1,400 tokens: -g from 0.0005 to 0.5, log-uniform.
        rate = torch.exp(torch.empty(leaf.shape).uniform_(math.log(5e-4), math.log(0.5), generator=generator)) / 5
        return torch.log(rate / (1 - rate))
    return torch.randn(leaf.shape, generator=generator) * leaf.scale
