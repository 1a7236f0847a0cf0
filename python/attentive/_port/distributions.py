"""Distributions of torch.distributions that models make in their forward, as classes that the translation writes out. They take tensors,
and give PyTorch's numbers from PyTorch's draws."""

import math

import torch
import torch.nn.functional as F


class Normal:
    """Normal distributions, one for each number."""

    def __init__(self, loc, scale):
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)

    @property
    def mean(self):
        return self.loc

    @property
    def stddev(self):
        return self.scale

    @property
    def variance(self):
        return self.scale**2

    def rsample(self):
        return self.loc + torch.normal(torch.zeros_like(self.loc), torch.ones_like(self.loc)) * self.scale

    def sample(self):
        return torch.normal(self.loc.detach(), self.scale.detach())

    def log_prob(self, value):
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + torch.log(self.scale)


class Categorical:
    """Choices among the last axis of probabilities or of their logarithms."""

    def __init__(self, probs=None, logits=None):
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
            eps = torch.finfo(probs.dtype).eps
            self.logits = torch.log(self.probs.clamp(min=eps, max=1 - eps))
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
            self.probs = F.softmax(self.logits, dim=-1)

    def sample(self):
        rows = self.probs.detach().flatten(0, -2) if self.probs.dim() > 1 else self.probs.detach().unsqueeze(0)
        return torch.multinomial(rows, 1, True).view(self.probs.shape[:-1])

    def log_prob(self, value):
        index, logits = torch.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self):
        return -(self.logits.clamp(min=torch.finfo(self.logits.dtype).min) * self.probs).sum(-1)


def kl_divergence(p, q):
    """Of normal distributions."""
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())
