"""OpenVINO's scaled dot-product attention, with a mask of all pairs where a variant needs a bias."""

from environments import Environment
from peers import bias_of, read


class OpenVinoAttention:
    name = "OpenVINO, attention alone"
    environment = Environment("openvino_attention", ("openvino", "numpy"))
    ways = ("OpenVINO",)

    def start(self, threads):
        import openvino

        self.threads = threads
        return {"openvino": openvino.__version__}

    def call(self, way, case):
        import numpy
        import openvino
        from openvino import opset13

        if case["variant"] == "softcap":
            raise NotImplementedError("it has no softcap")
        arrays = read(case)
        bias = bias_of(case)
        if bias is not None:
            arrays.append(bias)
        nodes = [opset13.parameter(array.shape, numpy.float32) for array in arrays]
        node = opset13.scaled_dot_product_attention(*nodes[:3], nodes[3] if bias is not None else None,
                                                    causal=case["variant"] == "causal")
        # Inputs and results are float32; the hint is the type of the calculation.
        model = openvino.Core().compile_model(openvino.Model([node], nodes, "attention"), "CPU", {
            "INFERENCE_PRECISION_HINT": "bf16" if case["dtype"] == "bf16" else "f32", "INFERENCE_NUM_THREADS": self.threads})
        request = model.create_infer_request()
        return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)[0]

    def numbers(self, result):
        return result


PEER = OpenVinoAttention()
