"""transformers on PyTorch: eager, and with its forward pass compiled for a cache of fixed size."""

from environments import Environment

ENVIRONMENT = Environment("transformers", ("transformers",), torch=True)


class Transformers:
    environment = ENVIRONMENT
    dtypes = ("fp32", "bf16")

    def __init__(self, name, compiled):
        self.name, self.compiled = name, compiled
        self.model = self.step = None

    def start(self, threads):
        import torch
        import transformers

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        transformers.logging.set_verbosity_error()
        return {"torch": torch.__version__, "transformers": transformers.__version__}

    def load(self, folder, dtype):
        import torch
        import transformers

        dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtypes[dtype]).eval()
        self.step = torch.compile(self.model, dynamic=False) if self.compiled else self.model

    def continued(self, prompt, tokens, note):
        import torch
        import transformers

        if self.compiled:
            cache = transformers.StaticCache(config=self.model.config, max_cache_len=len(prompt) + tokens)
        else:
            cache = transformers.DynamicCache(config=self.model.config)
        ids = torch.tensor([prompt])
        for _ in range(tokens):
            ids = self.step(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1].argmax(-1, keepdim=True)
            note(ids.item())

    def logits(self, prompt):
        import torch

        return self.model(torch.tensor([prompt]), logits_to_keep=1).logits[0, -1].float().tolist()


PEER = Transformers("transformers, eager", compiled=False)
COMPILED = Transformers("transformers, compiled", compiled=True)
