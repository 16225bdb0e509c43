"""Dimensions of ling-nano and its config.json. The real per-head shapes of the family, few and narrow layers."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    hidden_size: int = 256
    num_hidden_layers: int = 12
    layer_group_size: int = 6             # MLA at layers 5 and 11, KDA elsewhere
    first_k_dense_replace: int = 1
    num_attention_heads: int = 2
    head_dim: int = 128
    intermediate_size: int = 768
    num_experts: int = 32
    num_experts_per_tok: int = 4
    n_group: int = 4
    topk_group: int = 2
    moe_intermediate_size: int = 64
    moe_shared_expert_intermediate_size: int = 128
    routed_scaling_factor: float = 2.5
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    rope_theta: float = 6000000.0
    rms_norm_eps: float = 1e-6
    kda_lower_bound: float = -5.0
    vocab_size: int = 4096
    # Low enough that trained activations meet them now and then, so that a wrong clamp shows.
    expert_swiglu_limit_list: tuple = (0,) * 9 + (1.5,) * 3
    share_expert_swiglu_limit_list: tuple = (0,) * 8 + (2.0,) * 2 + (2.5,) * 2

    def is_mla(self, layer):
        group = self.layer_group_size
        return (layer + 1) % group == 0 or layer >= self.num_hidden_layers // group * group

    def is_dense(self, layer):
        return layer < self.first_k_dense_replace

    def limits(self, layer):
        """(routed, shared) clamp of a layer; the MTP layer lies outside the lists and has none."""
        if layer >= self.num_hidden_layers:
            return 0.0, 0.0
        return float(self.expert_swiglu_limit_list[layer]), float(self.share_expert_swiglu_limit_list[layer])


QUANTIZATION = {
    "bf16": None,
    "fp8": dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128],
                modules_to_not_convert=["lm_head"]),
    "int4": dict(quant_method="compressed-tensors", format="pack-quantized", config_groups=dict(group_0=dict(
        targets=["re:.*mlp.experts.*"],
        weights=dict(num_bits=4, type="int", symmetric=True, group_size=32, strategy="group")))),
}
QUANTIZATION["fp4"] = dict(QUANTIZATION["fp8"], scale_fmt="ue8m0", routed_experts_quant_method="mxfp4",
                           routed_experts_group_size=32)


def config_json(config, layout, eos, pad):
    """Every field of the family's config.json, in its spelling; the vestigial ones too, since loaders may read them."""
    c = config
    out = dict(
        architectures=["BailingMoeV3ForCausalLM"], model_type="bailing_hybrid", hidden_size=c.hidden_size,
        num_hidden_layers=c.num_hidden_layers, num_attention_heads=c.num_attention_heads,
        num_key_value_heads=c.num_attention_heads, head_dim=c.head_dim, intermediate_size=c.intermediate_size,
        vocab_size=c.vocab_size, first_k_dense_replace=c.first_k_dense_replace, layer_group_size=c.layer_group_size,
        num_experts=c.num_experts, num_experts_per_tok=c.num_experts_per_tok, n_group=c.n_group, topk_group=c.topk_group,
        moe_intermediate_size=c.moe_intermediate_size, num_shared_experts=1,
        moe_shared_expert_intermediate_size=c.moe_shared_expert_intermediate_size,
        routed_scaling_factor=c.routed_scaling_factor, norm_topk_prob=True, score_function="sigmoid",
        topk_method="noaux_tc", router_dtype="fp32", moe_router_enable_expert_bias=True, q_lora_rank=None,
        kv_lora_rank=c.kv_lora_rank, qk_nope_head_dim=c.qk_nope_head_dim, qk_rope_head_dim=c.qk_rope_head_dim,
        qk_head_dim=c.qk_nope_head_dim + c.qk_rope_head_dim, v_head_dim=c.v_head_dim, rope_theta=c.rope_theta,
        rope_interleave=True, partial_rotary_factor=0.5, rotary_dim=c.qk_rope_head_dim, rope_scaling=None,
        max_position_embeddings=65536, rms_norm_eps=c.rms_norm_eps, short_conv_kernel_size=4, no_kda_lora=True,
        use_kda_lora=False, kda_safe_gate=True, kda_lower_bound=c.kda_lower_bound,
        gated_attention_proj_granularity_type="head_wise", num_nextn_predict_layers=1, mtp_use_kda=False,
        mtp_loss_scaling_factor=0, expert_swiglu_limit_list=list(c.expert_swiglu_limit_list),
        share_expert_swiglu_limit_list=list(c.share_expert_swiglu_limit_list), eos_token_id=eos, pad_token_id=pad,
        tie_word_embeddings=False, hidden_act="silu", use_bias=False, use_qkv_bias=False, initializer_range=0.02,
        attention_dropout=0.0, embedding_dropout=0.0, output_dropout=0.0, dtype="bfloat16", use_qk_norm=True,
        linear_silu=False, group_norm_size=1, max_window_layers=20, use_mla_nope=False, use_nGPT=False, value_norm=False,
        up_proj_norm=False, scale_router_input=False, seq_aux=True, num_kv_heads_for_linear_attn=0)
    if QUANTIZATION[layout]:
        out["quantization_config"] = QUANTIZATION[layout]
    return out
