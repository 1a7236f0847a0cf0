"""OpenVINO GenAI, from a folder that optimum-intel exports."""

from environments import Environment

PRECISION = {"fp32": "f32", "bf16": "bf16", "int8": "bf16"}  # of the calculation
WEIGHTS = {"fp32": "fp32", "bf16": "fp32", "int8": "int8"}  # bf16 weights are rounded when the model is loaded


class OpenVinoGenAI:
    name = "OpenVINO GenAI"
    environment = Environment("openvino", ("openvino", "openvino-genai", "optimum-intel"), torch=True)
    dtypes = ("fp32", "bf16", "int8")

    def start(self, threads):
        import openvino_genai

        self.threads = threads
        return {"openvino-genai": openvino_genai.__version__}

    def convert(self, folder, dtype, target):
        from optimum.exporters.openvino import main_export
        from optimum.intel import OVWeightQuantizationConfig
        from optimum.intel.openvino.configuration import OVConfig

        settings = OVWeightQuantizationConfig(bits=8, sym=False) if WEIGHTS[dtype] == "int8" else None
        main_export(folder, target, task="text-generation-with-past", ov_config=OVConfig(
            dtype=WEIGHTS[dtype], quantization_config=settings))

    def load(self, folder, dtype):
        import openvino_genai

        self.pipeline = openvino_genai.LLMPipeline(folder, "CPU", INFERENCE_PRECISION_HINT=PRECISION[dtype],
                                                   INFERENCE_NUM_THREADS=self.threads)

    def continued(self, prompt, tokens, note):
        import numpy
        import openvino
        import openvino_genai

        class Streamer(openvino_genai.StreamerBase):
            def write(self, token):
                for one in token if isinstance(token, list) else [token]:
                    note(one)
                return openvino_genai.StreamingStatus.RUNNING

            def end(self):
                pass

        ids = openvino.Tensor(numpy.array([prompt], numpy.int64))
        mask = openvino.Tensor(numpy.ones((1, len(prompt)), numpy.int64))
        self.pipeline.generate(openvino_genai.TokenizedInputs(ids, mask), streamer=Streamer(), max_new_tokens=tokens, ignore_eos=True,
                               do_sample=False)

    def logits(self, prompt):
        raise NotImplementedError("the pipeline does not show its logits")


PEER = OpenVinoGenAI()
