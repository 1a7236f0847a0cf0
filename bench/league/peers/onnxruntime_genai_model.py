"""ONNX Runtime GenAI, from a folder that its model builder writes."""

from environments import Environment


class OnnxRuntimeGenAI:
    name = "ONNX Runtime GenAI"
    environment = Environment("onnxruntime_genai", ("onnxruntime-genai", "onnx", "onnx-ir", "transformers"), torch=True)
    dtypes = ("fp32", "int8")

    def start(self, threads):
        import onnxruntime_genai

        self.threads = threads
        return {"onnxruntime-genai": onnxruntime_genai.__version__}

    def convert(self, folder, dtype, target):
        import subprocess
        import sys

        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", folder, "-o", target, "-p", dtype, "-e", "cpu", "-c", target]
        done = subprocess.run(command, text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])

    def load(self, folder, dtype):
        import onnxruntime_genai

        config = onnxruntime_genai.Config(folder)
        config.overlay(f'{{"model": {{"decoder": {{"session_options": {{"intra_op_num_threads": {self.threads}}}}}}}}}')
        self.model = onnxruntime_genai.Model(config)

    def generator(self, prompt, tokens):
        import numpy
        import onnxruntime_genai

        parameters = onnxruntime_genai.GeneratorParams(self.model)
        parameters.set_search_options(max_length=len(prompt) + tokens, do_sample=False)
        generator = onnxruntime_genai.Generator(self.model, parameters)
        generator.append_tokens(numpy.array([prompt], numpy.int32))
        return generator

    def continued(self, prompt, tokens, note):
        generator = self.generator(prompt, tokens)
        for _ in range(tokens):
            generator.generate_next_token()
            note(generator.get_next_tokens()[0])

    def logits(self, prompt):
        return self.generator(prompt, 1).get_logits().reshape(-1).tolist()


PEER = OnnxRuntimeGenAI()
