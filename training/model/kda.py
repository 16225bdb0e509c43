"""The gated delta rule over packed documents: the chunked GPU kernel for training, a plain recurrence elsewhere."""
import torch


def recurrence(q, k, v, f, beta, A_log, dt_bias, bounds, lower_bound):
    """Literal form, one token at a time: q, k, v, f [T, H, 128] (q, k unnormalised), beta [T, H] before sigmoid."""
    heads, width = q.shape[1:]
    kept = q.dtype
    q, k, v, f, beta = (t.float() if kept == torch.bfloat16 else t for t in (q, k, v, f, beta))
    unit = lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)
    q, k = unit(q) * width ** -0.5, unit(k)
    a = f + dt_bias.view(heads, width)
    alpha = torch.exp(lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * a))
    beta = torch.sigmoid(beta)
    starts, out = set(bounds.tolist()), []
    for t in range(q.shape[0]):
        if t in starts:
            state = torch.zeros(heads, width, width, dtype=q.dtype, device=q.device)
        state = state * alpha[t][:, :, None]
        u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * u[:, None, :]
        out.append(torch.einsum("hkv,hk->hv", state, q[t]))
    return torch.stack(out).to(kept)


def mix(q, k, v, f, beta, A_log, dt_bias, bounds, lower_bound):
    """Same arguments; on a GPU through fla-core's kernel in its graph form (bounds padded by empty documents)."""
    if not q.is_cuda:
        return recurrence(q, k, v, f, beta, A_log, dt_bias, bounds, lower_bound)
    from fla.ops.kda import chunk_kda
    out, _ = chunk_kda(q[None], k[None], v[None], f[None], beta[None], A_log=A_log, dt_bias=dt_bias,
                       use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                       safe_gate=True, lower_bound=lower_bound, cu_seqlens=bounds, use_graph=True,
                       max_num_seqs=bounds.shape[0] - 1)
    return out[0]
