"""Reads a checkpoint folder back, whatever its layout, by each tensor's own header entry: as plain matrices, or as the
fused weights of the training form."""
import json
import struct
from pathlib import Path

import torch

from model.config import Config
from model.formats import E2M1
from model.weights import Weights

KINDS = {"BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn, "I8": torch.int8, "U8": torch.uint8,
         "F8_E8M0": torch.uint8, "I32": torch.int32, "I64": torch.int64}


class Checkpoint:
    def __init__(self, folder, dtype=torch.float32):
        self.folder, self.dtype, self.raw = Path(folder), dtype, {}
        self.config = json.loads((self.folder / "config.json").read_text())
        for path in sorted(self.folder.glob("*.safetensors")):
            data = path.read_bytes()
            length = struct.unpack("<Q", data[:8])[0]
            for name, entry in json.loads(data[8:8 + length]).items():
                if name != "__metadata__":
                    begin, end = (8 + length + o for o in entry["data_offsets"])
                    flat = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.uint8)
                    self.raw[name] = flat.view(KINDS[entry["dtype"]]).view(entry["shape"])

    def scale(self, name):
        scale = self.raw[name]
        return torch.exp2(scale.to(self.dtype) - 127) if scale.dtype == torch.uint8 else scale.to(self.dtype)

    def plain(self, name):
        return self.raw[name].to(self.dtype)

    def matrix(self, name):
        """Dequantised `name.weight`."""
        full = f"{name}.weight"
        if f"{full}_packed" in self.raw:
            words, scale = self.raw[f"{full}_packed"].to(torch.int64) & 0xffffffff, self.scale(f"{full}_scale")
            codes = (words[..., None] >> (4 * torch.arange(8))) & 15
            return (codes.flatten(-2).to(self.dtype) - 8) * scale.repeat_interleave(32, 1)
        w = self.raw[full]
        if f"{full}_scale_inv" not in self.raw:
            return w.to(self.dtype)
        scale = self.scale(f"{full}_scale_inv")
        if w.dtype == torch.int8:
            codes = w.view(torch.uint8)
            codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()
            values = E2M1.to(self.dtype)[codes & 7] * torch.where(codes >= 8, -1, 1)
            return values * scale.repeat_interleave(32, 1)
        return w.to(self.dtype) * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:w.shape[0], :w.shape[1]]


def training_weights(folder, device, dtype):
    """The fused leaves of the training form, filled from a checkpoint."""
    ck, w = Checkpoint(folder, torch.float64 if dtype == torch.float64 else torch.float32), Weights(Config(), device, dtype=dtype)
    c = w.config
    for name in w.leaf:
        p, _, leaf = name.rpartition(".")
        p = f"model.{p}." if p else "model."
        if name == "lm_head":
            value = ck.matrix("lm_head")
        elif leaf == "qkvfg_proj":
            value = torch.cat([ck.matrix(f"{p}{x}_proj") for x in "qkvfg"])
        elif leaf == "conv1d":
            value = torch.cat([ck.matrix(f"{p}{x}_conv1d")[:, 0] for x in "qkv"])
        elif leaf == "gate_up" and name.endswith("mlp.experts.gate_up"):
            value = torch.cat([ck.matrix(f"{p}{e}.{half}_proj") for half in ("gate", "up") for e in range(c.num_experts)])
        elif leaf == "down_t":
            value = torch.cat([ck.matrix(f"{p}{e}.down_proj").t() for e in range(c.num_experts)])
        elif leaf == "gate_up":
            value = torch.cat([ck.matrix(f"{p}{half}_proj") for half in ("gate", "up")])
        elif leaf in ("A_log", "dt_bias"):
            value = ck.plain(f"{p}{leaf}")
        else:
            value = ck.matrix(f"{p}{leaf}")
        kept = w.leaf[name].dtype if dtype == torch.bfloat16 else dtype
        w.leaf[name] = value.reshape(w.leaf[name].shape).to(device, kept)
    for layer in range(c.num_hidden_layers + 1):
        if not c.is_dense(layer):
            w.expert_bias[layer] = ck.plain(f"model.layers.{layer}.mlp.gate.expert_bias")
    return w
