"""Compares the GPU kernel of the gated delta rule with the literal recurrence in float64: output and gradients."""
import torch

from model import kda


def main():
    torch.manual_seed(3)
    T, H, D = 300, 2, 128
    make = lambda *s: torch.randn(*s, device="cuda").bfloat16()
    inputs = [make(T, H, D), make(T, H, D), make(T, H, D), make(T, H, D) - 3, make(T, H)]
    constants = [torch.zeros(H, device="cuda") + 0.2, torch.randn(H * D, device="cuda")]
    bounds = torch.tensor([0, 70, 199, T, T, T], device="cuda")
    weight = torch.randn(T, H, D, device="cuda", dtype=torch.float64)
    results = []
    for function, cast in ((kda.mix, lambda t: t.clone()), (kda.recurrence, lambda t: t.double())):
        leaves = [cast(t).requires_grad_(True) for t in inputs + constants]
        out = function(*leaves, bounds, -5.0)
        (out.double() * weight).sum().backward()
        results.append([out.double().detach()] + [t.grad.double() for t in leaves])
    for name, a, b in zip("o q k v f beta A_log dt_bias".split(), *results):
        print(f"{name:8} {float((a - b).norm() / b.norm()):.2e}")


if __name__ == "__main__":
    main()
