"""Muon for matrices, Adam for the rest, over whole banks. Everything that changes from step to step is a device tensor,
so that the update can be part of a captured graph."""
import torch

MOMENTUM = 0.95
BETAS, EPS = (0.9, 0.95), 1e-8


def orthogonalize(g):
    """Newton-Schulz towards the nearest orthogonal matrix, batched over the first axis; the quintic of Muon's author."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.mT if tall else x


class Optimizer:
    def __init__(self, weights, muon_rate=0.02, adam_rate=3e-3):
        self.banks, self.peak = weights.banks, (muon_rate, adam_rate)
        device = weights.device
        self.scale = torch.ones((), device=device)          # of both rates: the schedule
        self.steps = torch.zeros((), device=device)
        self.first = [torch.zeros_like(b.master) for b in self.banks]
        self.second = [torch.zeros_like(b.master) if b.rule == "adam" else None for b in self.banks]

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for bank, first, second in zip(self.banks, self.first, self.second):
            gradient = bank.grad.float()
            if bank.rule == "muon":
                first.lerp_(gradient, 1 - MOMENTUM)
                update = orthogonalize(gradient.lerp(first, MOMENTUM)).float()
                rows, cols = bank.master.shape[-2:]
                rows, cols = (cols, rows) if bank.form.endswith("_t") else (rows, cols)
                rate = self.peak[0] * max(1, rows / cols) ** 0.5
            else:
                first.lerp_(gradient, 1 - BETAS[0])
                second.lerp_(gradient.square(), 1 - BETAS[1])
                unbiased = second / (1 - BETAS[1] ** self.steps)
                update = (first / (1 - BETAS[0] ** self.steps)) / (unbiased.sqrt() + EPS)
                rate = self.peak[1]
            bank.master.sub_(self.scale * rate * update)

    def state(self):
        return dict(steps=self.steps, first=self.first, second=[s for s in self.second if s is not None])

    def load_state(self, state):
        self.steps.copy_(state["steps"])
        for mine, other in zip(self.first, state["first"]):
            mine.copy_(other)
        for mine, other in zip([s for s in self.second if s is not None], state["second"]):
            mine.copy_(other)
