"""numpy's functions of arrays as torch's. Arrays become tensors; where numpy computes in double precision, so does C++."""

NAMES = {name: name for name in (
    "sin cos tan exp log log2 sqrt tanh floor ceil where maximum minimum outer triu tril eye zeros ones full zeros_like ones_like "
    "arange linspace squeeze tile roll prod sum mean cumsum cumprod clip meshgrid sort argsort diag matmul dot flip"
).split()} | {"power": "pow", "absolute": "abs", "abs": "abs", "concatenate": "cat", "vstack": "vstack", "hstack": "hstack", "expand_dims": "unsqueeze",
              "stack": "stack", "array": "clone", "asarray": "clone", "deg2rad": "deg2rad"}
KEYWORDS = {"k": "diagonal", "axis": "dim", "keepdims": "keepdim", "reps": "dims"}
MADE = {"zeros", "ones", "full", "eye", "linspace", "arange"}  # in double precision, unless a dtype is given
_DTYPES = {
    "float32": "torch::kFloat", "float64": "torch::kDouble", "float16": "torch::kHalf", "float": "torch::kDouble", "int": "torch::kLong", "bool": "torch::kBool",
    "int64": "torch::kLong", "int32": "torch::kInt", "uint8": "torch::kByte", "bool_": "torch::kBool",
}  # fmt: skip


def dtype(value):
    """The C++ name of a dtype that is given as a class or a word; None if there is none."""
    return _DTYPES.get(getattr(value, "__name__", value))
