"""PyTorch: its fused attention on the CPU, and compiled FlexAttention with the same score functions as ours."""

from environments import TORCH

SOFTCAP = 20.0


class TorchAttention:
    name = "PyTorch"
    environment = TORCH
    ways = ("SDPA", "FlexAttention, compiled")

    def start(self, threads):
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        torch._dynamo.config.recompile_limit = 1000  # every case is compiled
        return {"torch": torch.__version__}

    def call(self, way, case):
        import torch

        heads, tokens, dim = case["heads"], case["tokens"], case["head_dim"]
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[case["dtype"]]

        def read(name, *size):
            return torch.from_file(f"{case['folder']}/{name}.bin", size=torch.Size(size).numel()).clone().view(size)

        qkv = [read(name, 1, heads, tokens, dim).to(dtype) for name in "qkv"]
        slopes, table = read("slopes", heads), read("table", heads, 2 * tokens)
        if way == "SDPA":
            options = self.sdpa_options(case, dtype, slopes, table)
            return lambda: torch.nn.functional.scaled_dot_product_attention(*qkv, **options)
        return self.flex(case, qkv, slopes, table)

    @staticmethod
    def sdpa_options(case, dtype, slopes, table):
        """A bias has to be a mask of all pairs, made beforehand."""
        import torch

        tokens = case["tokens"]
        distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
        if case["variant"] in ("full", "causal"):
            return {"is_causal": case["variant"] == "causal"}
        if case["variant"] == "softcap":
            raise NotImplementedError("it has no softcap")
        bias = table[:, distance + tokens] if case["variant"] == "relative bias" else -slopes[:, None, None] * distance
        return {"attn_mask": bias.masked_fill(distance < 0, -torch.inf).to(dtype)[None]}

    @staticmethod
    def flex(case, qkv, slopes, table):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        tokens = case["tokens"]
        scores = {
            "ALiBi": lambda score, b, h, q, k: score - slopes[h] * (q - k),
            "softcap": lambda score, b, h, q, k: SOFTCAP * torch.tanh(score / SOFTCAP),
            "relative bias": lambda score, b, h, q, k: score + table[h, q - k + tokens],
        }
        block = None
        if case["variant"] != "full":
            block = create_block_mask(lambda b, h, q, k: q >= k, None, None, tokens, tokens, device="cpu")
        compiled = torch.compile(flex_attention, dynamic=False)
        score = scores.get(case["variant"])
        return lambda: compiled(*qkv, score_mod=score, block_mask=block)

    def numbers(self, result):
        return result.float().numpy()


PEER = TorchAttention()
