"""llama.cpp, compiled by llama-cpp-python for this processor, from a GGUF file that this module writes."""

from pathlib import Path

from environments import Environment

# The names of the matrices and vectors in both formats, without "model.layers.N." and "blk.N.".
LLAMA = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}
LLAMA_REST = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
GPT2 = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "ln_1": "attn_norm",
        "ln_2": "ffn_norm"}
GPT2_REST = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"}


def interleaved(matrix, heads):
    """The rows of queries or keys in llama.cpp's order, which rotates neighbours instead of halves."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def llama_tensors(tensors, config):
    for name, numbers in tensors.items():
        stem, kind = name.rsplit(".", 1)
        if stem in LLAMA_REST:
            yield f"{LLAMA_REST[stem]}.{kind}", numbers
            continue
        _, _, layer, part = stem.split(".", 3)
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(LLAMA[part])
        yield f"blk.{layer}.{LLAMA[part]}.{kind}", interleaved(numbers, heads) if heads else numbers


def gpt2_tensors(tensors, config):
    for name, numbers in tensors.items():
        stem, kind = name.rsplit(".", 1)
        if stem in GPT2_REST:
            yield f"{GPT2_REST[stem]}.{kind}", numbers
        elif stem != "lm_head":  # tied
            _, _, layer, part = stem.split(".", 3)
            # GPT-2 stores its matrices transposed.
            yield f"blk.{layer}.{GPT2[part]}.{kind}", numbers.T if numbers.ndim == 2 else numbers


class LlamaCpp:
    name = "llama.cpp"
    environment = Environment("llama_cpp", ("llama-cpp-python", "gguf", "numpy", "safetensors"), cmake=(
        "-DLLAVA_BUILD=OFF", f"-DCMAKE_PROJECT_INCLUDE={Path(__file__).with_name('llama_cpp.cmake')}"))  # the library alone
    dtypes = ("fp32", "bf16", "int8")

    def start(self, threads):
        import llama_cpp

        self.threads = threads
        return {"llama-cpp-python": llama_cpp.__version__}

    def convert(self, folder, dtype, target):
        import json

        import gguf
        import numpy
        from safetensors.numpy import load_file

        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        family = config["model_type"]
        Path(target).mkdir()
        writer = gguf.GGUFWriter(f"{target}/model.gguf", family)
        if family == "llama":
            tensors = llama_tensors
            writer.add_context_length(config["max_position_embeddings"])
            writer.add_embedding_length(config["hidden_size"])
            writer.add_block_count(config["num_hidden_layers"])
            writer.add_feed_forward_length(config["intermediate_size"])
            writer.add_head_count(config["num_attention_heads"])
            writer.add_head_count_kv(config["num_key_value_heads"])
            writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
            writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
            writer.add_rope_freq_base((config.get("rope_parameters") or config)["rope_theta"])
        else:
            tensors = gpt2_tensors
            writer.add_context_length(config["n_positions"])
            writer.add_embedding_length(config["n_embd"])
            writer.add_block_count(config["n_layer"])
            writer.add_feed_forward_length(4 * config["n_embd"])
            writer.add_head_count(config["n_head"])
            writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        writer.add_vocab_size(config["vocab_size"])
        writer.add_tokenizer_model("none")  # the bench passes ids
        types = {"fp32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16, "int8": gguf.GGMLQuantizationType.Q8_0}
        for name, numbers in tensors(load_file(f"{folder}/model.safetensors"), config):
            numbers = numpy.ascontiguousarray(numbers)
            kind = types[dtype] if numbers.ndim == 2 and not name.startswith("position_embd") else gguf.GGMLQuantizationType.F32
            writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def load(self, folder, dtype):
        import llama_cpp

        if dtype == "int8":
            # Its buffers for the matrix unit crash at the first prompt: llama.cpp's issue 20824.
            parameters = llama_cpp.llama_model_default_params()
            parameters.use_extra_bufts = False
            llama_cpp.llama_cpp.llama_model_default_params = lambda: parameters
        kind = llama_cpp.GGML_TYPE_F32 if dtype == "fp32" else llama_cpp.GGML_TYPE_F16  # of the cache; float16 is its default
        self.model = llama_cpp.Llama(f"{folder}/model.gguf", n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=self.threads,
                                     n_threads_batch=self.threads, type_k=kind, type_v=kind, verbose=False)

    def last(self):
        """The logits of the last token, (vocabulary)."""
        import numpy

        context = self.model._ctx
        return numpy.ctypeslib.as_array(context.get_logits_ith(-1), (self.model.n_vocab(),))

    def continued(self, prompt, tokens, note):
        self.model.reset()
        ids = prompt
        for _ in range(tokens):
            self.model.eval(ids)
            ids = [int(self.last().argmax())]
            note(ids[0])

    def logits(self, prompt):
        self.model.reset()
        self.model.eval(prompt)
        return self.last().tolist()


PEER = LlamaCpp()
