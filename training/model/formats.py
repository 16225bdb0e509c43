"""The published weight formats as torch code: block FP8, MXFP4, INT4. Encode, decode, and round (= decode of encode).

Training rounds through the same functions as the exporter, so a weight that was trained rounded is exported unchanged.
"""
import torch

E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
BLOCK, GROUP = 128, 32


def power_of_two(x):
    """2^ceil(log2 x), exactly: frexp has no rounding at the borders that log2 has."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.ones_like(x), exponent - (mantissa == 0.5).to(exponent.dtype))


def fp8_scale(w, e8m0):
    """Scale of each 128 x 128 block of w [..., out, in], partial blocks included: [..., ceil(out/128), ceil(in/128)]."""
    *lead, rows, cols = w.shape
    padded = torch.nn.functional.pad(w.abs(), (0, -cols % BLOCK, 0, -rows % BLOCK))
    blocks = padded.view(*lead, padded.shape[-2] // BLOCK, BLOCK, padded.shape[-1] // BLOCK, BLOCK)
    scale = blocks.amax((-3, -1)).clamp_min(1e-12) / 448
    return power_of_two(scale) if e8m0 else scale


def spread(scale, shape):
    return scale.repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)[..., :shape[-2], :shape[-1]]


def fp8_encode(w, e8m0):
    scale = fp8_scale(w, e8m0)
    return (w / spread(scale, w.shape)).to(torch.float8_e4m3fn), scale


def fp8_round(w):
    codes, scale = fp8_encode(w, e8m0=True)
    return codes.to(w.dtype) * spread(scale, w.shape)


def mxfp4_scale(w):
    """Power of two per 32 inputs (last axis). The largest magnitude may be clipped by a seventh: 7 becomes 6, which
    costs less than halving the resolution of the other 31."""
    amax = w.unflatten(-1, (-1, GROUP)).abs().amax(-1)
    return power_of_two(amax.clamp_min(1e-12) / 7)


def mxfp4_magnitudes(w, scale):
    y = (w.unflatten(-1, (-1, GROUP)) / scale[..., None]).abs()
    step = torch.where(y < 2, 0.5, torch.where(y < 4, 1.0, 2.0))
    return (torch.round(y / step) * step).clamp_max(6.0)


def mxfp4_round(w):
    scale = mxfp4_scale(w)
    q = mxfp4_magnitudes(w, scale) * scale[..., None]
    return torch.copysign(q.flatten(-2), w)


def mxfp4_encode(w):
    """(int8 [..., out, in/2] with the lower nibble first, uint8 E8M0 scale [..., out, in/32])."""
    scale = mxfp4_scale(w)
    q = mxfp4_magnitudes(w, scale).flatten(-2)
    code = torch.searchsorted(E2M1, q.contiguous()).to(torch.uint8) | (w < 0).to(torch.uint8) << 3
    packed = code[..., 0::2] | code[..., 1::2] << 4
    return packed.view(torch.int8), e8m0_code(scale)


def e8m0_code(scale):
    return (torch.log2(scale).round() + 127).to(torch.uint8)


def int4_encode(w):
    """compressed-tensors pack-quantized: (int32 [out, in/8], bf16 scale [out, in/32])."""
    groups = w.unflatten(-1, (-1, GROUP))
    scale = (groups.abs().amax(-1).clamp_min(1e-12) / 7).bfloat16()
    q = torch.round(groups / scale.float()[..., None]).clamp(-8, 7).flatten(-2).to(torch.int64) + 8
    words = (q.unflatten(-1, (-1, 8)) << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32), scale
