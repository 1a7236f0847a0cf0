"""Layers with weight normalisation, as classes that the translation writes out: PyTorch changes a layer in place, which C++ cannot.

Loaded as one of the user's files when his code calls torch.nn.utils.weight_norm for the first time."""

import torch
import torch.nn.functional as F
from torch import nn


class WeightNormLinear(nn.Module):
    """A linear layer whose weight is weight_g * weight_v / |weight_v|."""

    def __init__(self, layer, dim):
        super().__init__()
        self.dim = dim
        self.bias = layer.bias
        self.weight_g = nn.Parameter(torch.norm_except_dim(layer.weight, 2, dim).detach())
        self.weight_v = nn.Parameter(layer.weight.detach())
        self.weight = torch._weight_norm(self.weight_v, self.weight_g, dim)

    def forward(self, x):
        self.weight = torch._weight_norm(self.weight_v, self.weight_g, self.dim)
        return F.linear(x, self.weight, self.bias)


class WeightNormConv1d(nn.Module):
    """A convolution whose weight is weight_g * weight_v / |weight_v|."""

    def __init__(self, layer, dim):
        super().__init__()
        self.stride, self.padding, self.dilation, self.groups, self.dim = layer.stride, layer.padding, layer.dilation, layer.groups, dim
        self.bias = layer.bias
        self.weight_g = nn.Parameter(torch.norm_except_dim(layer.weight, 2, dim).detach())
        self.weight_v = nn.Parameter(layer.weight.detach())
        self.weight = torch._weight_norm(self.weight_v, self.weight_g, dim)

    def forward(self, x):
        self.weight = torch._weight_norm(self.weight_v, self.weight_g, self.dim)
        return F.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class WeightNormConv2d(nn.Module):
    """A convolution whose weight is weight_g * weight_v / |weight_v|."""

    def __init__(self, layer, dim):
        super().__init__()
        self.stride, self.padding, self.dilation, self.groups, self.dim = layer.stride, layer.padding, layer.dilation, layer.groups, dim
        self.bias = layer.bias
        self.weight_g = nn.Parameter(torch.norm_except_dim(layer.weight, 2, dim).detach())
        self.weight_v = nn.Parameter(layer.weight.detach())
        self.weight = torch._weight_norm(self.weight_v, self.weight_g, dim)

    def forward(self, x):
        self.weight = torch._weight_norm(self.weight_v, self.weight_g, self.dim)
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


CLASSES = {nn.Linear: WeightNormLinear, nn.Conv1d: WeightNormConv1d, nn.Conv2d: WeightNormConv2d}
