"""Pieces of a layer on packed tokens [T, h], each written to compile into a few kernels. Residual stream in float32."""
import torch
import torch.nn.functional as F


def rms(x, weight, eps=1e-6):
    x = x.float() if x.dtype == torch.bfloat16 else x
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def kda_inputs(x, norm, qkvfg, b_proj, conv, positions, heads, width):
    """q, k, v after convolution and SiLU, raw f, raw beta, raw output gate."""
    h = rms(x, norm).to(qkvfg.dtype)
    y = h @ qkvfg.t()
    inner = heads * width
    raw, acc = y[:, :3 * inner], 0
    for back in range(4):           # tap 3 belongs to the newest token; earlier ones only inside the document
        shifted = F.pad(raw, (0, 0, back, 0))[:raw.shape[0]]
        acc = acc + shifted * conv[:, 3 - back] * (positions >= back)[:, None]
    q, k, v = F.silu(acc).to(y.dtype).split(inner, -1)
    split = lambda t: t.reshape(-1, heads, width)
    return split(q), split(k), split(v), split(y[:, 3 * inner:4 * inner]), h @ b_proj.t(), split(y[:, 4 * inner:])


def kda_output(x, o, gate, o_norm, o_proj):
    y = rms(o, o_norm) * torch.sigmoid(gate.to(x.dtype))
    return x + (y.flatten(1).to(o_proj.dtype) @ o_proj.t())


def rope(x, positions, theta):
    """Interleaved pairs over the last axis of x [T, ..., R]."""
    size = x.shape[-1]
    frequency = theta ** (-torch.arange(0, size, 2, device=x.device, dtype=torch.float32) / size)
    angle = positions.float()[:, None] * frequency
    angle = angle.view(-1, *[1] * (x.dim() - 2), size // 2)
    cos, sin = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)


def mla_inputs(x, norm, q_proj, kv_a, kv_a_norm, kv_b, g_proj, positions, c):
    """q, k [T, H, 192], v padded from 128 to 192 (the attention kernel wants one width), head gate [T, H]."""
    heads, nope, R = c.num_attention_heads, c.qk_nope_head_dim, c.kv_lora_rank
    h = rms(x, norm).to(q_proj.dtype)
    q = (h @ q_proj.t()).view(-1, heads, nope + c.qk_rope_head_dim)
    latent = h @ kv_a.t()
    kv = (rms(latent[:, :R], kv_a_norm).to(h.dtype) @ kv_b.t()).view(-1, heads, nope + c.v_head_dim)
    wide = (lambda t: t.float()) if h.dtype == torch.bfloat16 else (lambda t: t)
    q_pe = rope(wide(q[..., nope:]), positions, c.rope_theta).to(h.dtype)
    k_pe = rope(wide(latent[:, R:]), positions, c.rope_theta).to(h.dtype)
    q = torch.cat([q[..., :nope], q_pe], -1)
    k = torch.cat([kv[..., :nope], k_pe[:, None].expand(-1, heads, -1)], -1)
    v = F.pad(kv[..., nope:], (0, q.shape[-1] - c.v_head_dim))
    return q, k, v, torch.sigmoid(wide(h @ g_proj.t()))


def attend(q, k, v, bounds, longest):
    """Causal attention inside documents; every width equal."""
    scale = q.shape[-1] ** -0.5
    if q.is_cuda:
        b = bounds.to(torch.int32)
        return torch.ops.aten._flash_attention_forward(q, k, v, b, b, longest, longest, 0.0, True, False, scale=scale)[0]
    document = torch.bucketize(torch.arange(q.shape[0]), bounds[1:], right=True)
    mask = (document[:, None] == document[None]) & torch.ones(q.shape[0], q.shape[0], dtype=torch.bool).tril()
    scores = torch.einsum("thd,shd->hts", q, k) * scale
    return torch.einsum("hts,shd->thd", scores.masked_fill(~mask, -torch.inf).softmax(-1), v)


def mla_output(x, o, gate, dense, width):
    y = o[..., :width] * gate[..., None]
    return x + (y.flatten(1).to(dense.dtype) @ dense.t())


def swiglu(gate, up, limit=None):
    """SiLU first, then the cap on the activated gate; the up side is capped on both sides. `limit` is a 0-d tensor,
    infinite where a layer has none: one compiled form serves all layers."""
    gate, up = (gate.float(), up.float()) if gate.dtype == torch.bfloat16 else (gate, up)
    gate = F.silu(gate)
    return gate * up if limit is None else torch.minimum(gate, limit) * torch.clamp(up, -limit, limit)


def dense_ffn(x, norm, gate_up, down):
    h = rms(x, norm).to(gate_up.dtype)
    return x + (swiglu(*(h @ gate_up.t()).chunk(2, -1)).to(h.dtype) @ down.t())


def largest(x, count):
    """The `count`-th largest of the last axis, by repeated maximum: short axes, no sort, compiles into one kernel."""
    for _ in range(count - 1):
        x = torch.where(x >= x.amax(-1, keepdim=True), -torch.inf, x)
    return x.amax(-1, keepdim=True)


def route(scores, bias, c):
    """Weights [T, E], zero for experts that were not picked."""
    biased = scores.detach() + bias
    groups = biased.view(-1, c.n_group, c.num_experts // c.n_group)
    first = groups.amax(-1)
    strength = first + largest(groups, 2)[..., 0]
    kept = strength >= largest(strength, c.topk_group)
    biased = torch.where(kept[..., None], groups, -torch.inf).flatten(1)
    picked = biased >= largest(biased, c.num_experts_per_tok)
    chosen = torch.where(picked, scores, 0.0)
    return chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * c.routed_scaling_factor, picked


def moe_ffn(x, norm, gate, bias, gate_up, down_t, shared_gate_up, shared_down, c, limit, shared_limit):
    """All experts for all tokens, unpicked ones times zero: at 32 x 64 faster than gathering. Returns (x, load [E])."""
    wide = rms(x, norm)
    h = wide.to(gate_up.dtype)
    scores = torch.sigmoid(h.to(x.dtype) @ gate.to(x.dtype).t())
    weights, picked = route(scores, bias, c)
    act = swiglu(*(h @ gate_up.t()).chunk(2, -1), limit)
    act = act.view(-1, c.num_experts, c.moe_intermediate_size) * weights[..., None]
    shared = swiglu(*(h @ shared_gate_up.t()).chunk(2, -1), shared_limit)
    y = act.flatten(1).to(h.dtype) @ down_t + shared.to(h.dtype) @ shared_down.t()
    return x + y, picked.sum(0, dtype=torch.float32)


def mtp_inputs(embedding, enorm, hidden, hnorm, eh_proj):
    pair = torch.cat([rms(embedding, enorm), rms(hidden, hnorm)], -1)
    return (pair.to(eh_proj.dtype) @ eh_proj.t()).to(hidden.dtype)


def weighted_loss(hidden, lm_head, targets, weights):
    """Sum of weighted cross entropies, and of weighted hits, both over the given weights."""
    logits = hidden.to(lm_head.dtype) @ lm_head.t()
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    picked = logits.gather(-1, targets[:, None])[:, 0]
    loss = (torch.logsumexp(logits, -1) - picked) * weights
    hits = (picked >= logits.amax(-1)) & (weights >= 0.5)
    return loss.sum() / weights.sum().clamp_min(1), hits.sum() / (weights >= 0.5).sum().clamp_min(1)
