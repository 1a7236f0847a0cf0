"""ONNX Runtime's attention operators: GroupQueryAttention, which is causal, and MultiHeadAttention for the full case."""

from environments import Environment
from peers import bias_of, read


class OnnxRuntimeAttention:
    name = "ONNX Runtime, attention alone"
    environment = Environment("onnxruntime_attention", ("onnxruntime", "onnx", "numpy"))
    ways = ("ONNX Runtime",)

    def start(self, threads):
        import onnxruntime

        self.threads = threads
        return {"onnxruntime": onnxruntime.__version__}

    def call(self, way, case):
        import numpy
        import onnxruntime
        from onnx import TensorProto, helper

        if case["dtype"] != "fp32":
            raise NotImplementedError("its operators on CPUs take no bfloat16")
        heads, tokens, dim = case["heads"], case["tokens"], case["head_dim"]
        feeds = {name: numpy.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(1, tokens, heads * dim)
                 for name, array in zip("qkv", read(case), strict=True)}
        if case["variant"] == "full":
            node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", num_heads=heads)
        else:
            feeds |= {"last": numpy.array([tokens - 1], numpy.int32), "total": numpy.array([tokens], numpy.int32)}
            names = ["q", "k", "v", "", "", "last", "total"]
            options = {"softcap": 20.0} if case["variant"] == "softcap" else {}
            if (bias := bias_of(case)) is not None:
                feeds["bias"] = bias
                names += ["", "", "", "bias"]
            node = helper.make_node("GroupQueryAttention", names, ["y", "keys", "values"], domain="com.microsoft", num_heads=heads,
                                    kv_num_heads=heads, **options)
        kinds = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
        graph = helper.make_graph(
            [node], "attention", [helper.make_tensor_value_info(name, kinds[array.dtype.name], array.shape) for name, array in feeds.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, feeds["q"].shape)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = min(model.ir_version, 10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.shape = 1, tokens, heads, dim
        return lambda: session.run(["y"], feeds)[0]

    def numbers(self, result):
        return result.reshape(self.shape).transpose(0, 2, 1, 3)


PEER = OnnxRuntimeAttention()
