"""The inputs of a case of attention, as numpy arrays."""


def read_one(case, name, *shape):
    import numpy

    return numpy.fromfile(f"{case['folder']}/{name}.bin", numpy.float32).reshape(shape)


def read(case):
    """q, k and v, rounded to the case's dtype, as float32 (1, heads, tokens, head_dim)."""
    return [read_one(case, name, 1, case["heads"], case["tokens"], case["head_dim"]) for name in "qkv"]


def bias_of(case):
    """The bias of a variant with its causal mask, (1, heads, tokens, tokens); None if the variant has no bias."""
    import numpy

    heads, tokens = case["heads"], case["tokens"]
    distance = numpy.arange(tokens)[:, None] - numpy.arange(tokens)
    if case["variant"] == "ALiBi":
        bias = -read_one(case, "slopes", heads, 1, 1) * distance.astype(numpy.float32)
    elif case["variant"] == "relative bias":
        bias = read_one(case, "table", heads, 2 * tokens)[:, distance + tokens]
    else:
        return None
    return numpy.where(distance < 0, numpy.float32(-numpy.inf), bias)[None]
