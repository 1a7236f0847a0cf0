"""Scaled-dot-product attention for PyTorch on CPUs.

``attention`` and ``attention_varlen`` compute attention with typed masks and every option, forward and backward. They are
operators of PyTorch (``torch.ops.attentive``), so ``torch.compile``, ``torch.export`` and AOTInductor take them. ``enable``
lets ``torch.nn.functional.scaled_dot_product_attention`` run the same kernel in a program that already exists.
``gated_delta_rule`` is the attention of linear time of Qwen3-Next and Kimi Linear.
``attentive.transformers.register`` adds an attention implementation to ``transformers``, and ``attentive.flash_attn`` has the
functions of flash-attn. ``port`` translates a PyTorch class into C++ for LibTorch, as the command ``attentive-port`` does.

    import attentive

    y = attentive.attention(q, k, v, causal="bottom_right", mask=attentive.Mask.key_lengths(lengths))

``cmake_prefix_path`` is the folder of the C++ package, for ``find_package(attentive)``.
"""

from attentive import _build, _library

_library.load()

from attentive._mask import Mask  # noqa: E402  the library must be there first
from attentive.accelerate import SdpaReport, disable, enable, enabled, report, reset_report  # noqa: E402
from attentive.delta_rule import GatedDeltaRuleResult, gated_delta_rule, gated_delta_rule_  # noqa: E402
from attentive.functional import (  # noqa: E402
    AttentionResult,
    Candidate,
    Explanation,
    attention,
    attention_varlen,
    draw_dropout_key,
    explain,
    merge_attention,
)
from attentive.porting import Port, PortError, port  # noqa: E402

__version__ = _build.VERSION
cmake_prefix_path = str(_library.FOLDER)

__all__ = [
    "AttentionResult",
    "Candidate",
    "Explanation",
    "GatedDeltaRuleResult",
    "Mask",
    "Port",
    "PortError",
    "SdpaReport",
    "attention",
    "attention_varlen",
    "cmake_prefix_path",
    "disable",
    "draw_dropout_key",
    "enable",
    "enabled",
    "explain",
    "gated_delta_rule",
    "gated_delta_rule_",
    "merge_attention",
    "port",
    "report",
    "reset_report",
]
