"""CTranslate2, from a folder that its converter writes."""

from environments import Environment

QUANTIZATION = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


class CTranslate2:
    name = "CTranslate2"
    environment = Environment("ctranslate2", ("ctranslate2", "transformers"), torch=True)
    dtypes = ("fp32", "bf16", "int8")

    def start(self, threads):
        import ctranslate2

        self.threads = threads
        return {"ctranslate2": ctranslate2.__version__}

    def convert(self, folder, dtype, target):
        import ctranslate2

        ctranslate2.converters.TransformersConverter(folder).convert(target, quantization=QUANTIZATION[dtype], force=True)

    def load(self, folder, dtype):
        import ctranslate2

        self.generator = ctranslate2.Generator(folder, device="cpu", compute_type=QUANTIZATION[dtype], intra_threads=self.threads)

    def continued(self, prompt, tokens, note):
        words = [f"t{token}" for token in prompt]
        for step in self.generator.generate_tokens(words, max_length=tokens, min_length=tokens, end_token=[], sampling_topk=1):
            note(step.token_id)

    def logits(self, prompt):
        import numpy

        return numpy.array(self.generator.forward_batch([prompt]))[0, -1].tolist()


PEER = CTranslate2()
