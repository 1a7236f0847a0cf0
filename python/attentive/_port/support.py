"""C++ helper functions that the translated code may need; each is written only where it is used."""

from . import schema

_TEXTS = {
    "floor_divide": """/// Python's a // b: rounds towards minus infinity.
template <class A, class B>
auto floor_divide(A a, B b) {
  const auto quotient = std::floor(static_cast<double>(a) / static_cast<double>(b));
  return static_cast<std::common_type_t<A, B>>(quotient);
}""",
    "modulo": """/// Python's a % b: has the sign of b.
template <class A, class B>
auto modulo(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a - static_cast<T>(std::floor(static_cast<double>(a) / static_cast<double>(b))) * b);
}""",
    "comb": """/// Python's math.comb(n, k).
inline int64_t comb(int64_t n, int64_t k) {
  int64_t ways = k <= n ? 1 : 0;
  for (int64_t m = 0; m < k && ways > 0; ++m) ways = ways * (n - m) / (m + 1);
  return ways;
}""",
    "factorial": """/// Python's math.factorial(n).
inline int64_t factorial(int64_t n) {
  int64_t product = 1;
  for (int64_t m = 2; m <= n; ++m) product *= m;
  return product;
}""",
    "joined": """/// Python's a + b of two lists.
template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}""",
    "letters": """/// The letters of a word, as a loop over it sees them.
inline std::vector<std::string> letters(const std::string& word) {
  std::vector<std::string> all;
  for (const char letter : word) all.emplace_back(1, letter);
  return all;
}""",
    "star_of": """/// How many axes stand before `*` in a pattern, and how many behind it.
inline std::pair<int64_t, int64_t> star_of(const std::string& pattern) {
  std::istringstream words(pattern);
  int64_t before = -1, all = 0;
  for (std::string word; words >> word; ++all) {
    if (word == "*") before = all;
  }
  TORCH_CHECK_VALUE(before >= 0, "expected a pattern with *, got ", pattern);
  return {before, all - 1 - before};
}""",
    "pack": """/// einops' pack: tensors joined along the axes that `*` stands for, and their sizes there.
inline std::tuple<torch::Tensor, std::vector<std::vector<int64_t>>> pack(const std::vector<torch::Tensor>& tensors,
    const std::string& pattern) {
  const auto [before, after] = star_of(pattern);
  std::vector<torch::Tensor> parts;
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& x : tensors) {
    const auto sizes = x.sizes().vec();
    shapes.emplace_back(sizes.begin() + before, sizes.end() - after);
    std::vector<int64_t> flat(sizes.begin(), sizes.begin() + before);
    flat.push_back(c10::multiply_integers(shapes.back()));
    flat.insert(flat.end(), sizes.end() - after, sizes.end());
    parts.push_back(x.reshape(flat));
  }
  return {torch::cat(parts, before), shapes};
}""",
    "unpack": """/// einops' unpack: the tensors that pack joined.
inline std::vector<torch::Tensor> unpack(const torch::Tensor& x, const std::vector<std::vector<int64_t>>& shapes,
    const std::string& pattern) {
  const auto at = star_of(pattern).first;
  std::vector<int64_t> lengths;
  for (const auto& shape : shapes) lengths.push_back(c10::multiply_integers(shape));
  auto parts = x.split_with_sizes(lengths, at);
  for (size_t n = 0; n < parts.size(); ++n) {
    parts[n] = shapes[n].empty() ? parts[n].squeeze(at) : parts[n].unflatten(at, shapes[n]);
  }
  return parts;
}""",
    "repeated": """/// Python's items * times of a list.
template <class T>
std::vector<T> repeated(const std::vector<T>& items, int64_t times) {
  std::vector<T> all;
  for (int64_t n = 0; n < times; ++n) all.insert(all.end(), items.begin(), items.end());
  return all;
}""",
    "part_of": """/// Python's items[low:high:step] of a list or a word.
template <class Items>
Items part_of(const Items& items, int64_t low, int64_t high = std::numeric_limits<int64_t>::max(), int64_t step = 1) {
  const auto size = static_cast<int64_t>(items.size());
  const auto within = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  Items part;
  for (int64_t at = within(low); at < within(high); at += step) part.push_back(items[at]);
  return part;
}""",
    "part_back": """/// Python's items[first:end:step] of a list, with a negative step.
template <class T>
std::vector<T> part_back(const std::vector<T>& items, std::optional<int64_t> first, std::optional<int64_t> end, int64_t step) {
  const auto size = static_cast<int64_t>(items.size());
  const auto within = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, -1, size - 1); };
  std::vector<T> part;
  for (int64_t at = first ? within(*first) : size - 1; at > (end ? within(*end) : -1); at += step) part.push_back(items[at]);
  return part;
}""",
    "part_by": """/// Python's items[part] of a list, for a slice without step.
template <class T>
std::vector<T> part_by(const std::vector<T>& items, const torch::indexing::Slice& part) {
  return part_of(items, part.start().expect_int(), part.stop().expect_int());
}""",
    "WordMap": """/// A dict whose keys are words, in the order in which they came.
template <class T>
struct WordMap : std::vector<std::pair<std::string, T>> {
  using std::vector<std::pair<std::string, T>>::vector;
  auto find(const std::string& word) const {
    auto entry = this->begin();
    while (entry != this->end() && entry->first != word) ++entry;
    return entry;
  }
  size_t count(const std::string& word) const { return find(word) != this->end() ? 1 : 0; }
  const T& at(const std::string& word) const {
    const auto entry = find(word);
    TORCH_CHECK_VALUE(entry != this->end(), "no entry ", word);
    return entry->second;
  }
  T& operator[](const std::string& word) {
    const auto at = find(word) - this->begin();
    if (at == static_cast<std::ptrdiff_t>(this->size())) this->emplace_back(word, T());
    return (this->begin() + at)->second;
  }
  void erase(const std::string& word) {
    at(word);
    this->std::vector<std::pair<std::string, T>>::erase(find(word));
  }
};""",
    "lower": """/// Python's word.lower(), of the letters of ASCII.
inline std::string lower(std::string word) {
  for (char& letter : word) letter = static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter);
  return word;
}""",
    "keys_of": """/// Python's list(entries) of a dict.
template <class M>
auto keys_of(const M& entries) {
  std::vector<std::remove_cvref_t<decltype(entries.begin()->first)>> keys;
  for (const auto& entry : entries) keys.push_back(entry.first);
  return keys;
}""",
    "values_of": """/// Python's list(entries.values()) of a dict.
template <class M>
auto values_of(const M& entries) {
  std::vector<std::remove_cvref_t<decltype(entries.begin()->second)>> values;
  for (const auto& entry : entries) values.push_back(entry.second);
  return values;
}""",
    "items_of": """/// Python's list(entries.items()) of a dict.
template <class M>
auto items_of(const M& entries) {
  std::vector<std::tuple<std::remove_cvref_t<decltype(entries.begin()->first)>, std::remove_cvref_t<decltype(entries.begin()->second)>>> items;
  for (const auto& [key, value] : entries) items.emplace_back(key, value);
  return items;
}""",
    "popped": """/// Python's entries.pop(key) of a dict.
template <class M, class K>
auto popped(M& entries, const K& key) {
  auto value = entries.at(key);
  entries.erase(key);
  return value;
}""",
    "update": """/// Python's entries.update(others) of two dicts.
template <class M>
void update(M& entries, const M& others) {
  for (const auto& [key, value] : others) entries[key] = value;
}""",
    "put_part": """/// Python's items[low:high] = others of a list.
template <class T>
void put_part(std::vector<T>& items, int64_t low, int64_t high, const std::vector<T>& others) {
  const auto size = static_cast<int64_t>(items.size());
  const auto within = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const auto first = items.erase(items.begin() + within(low), items.begin() + std::max(within(low), within(high)));
  items.insert(first, others.begin(), others.end());
}""",
    "in_dtype": """/// Makes a module whose numbers are of another type, which are drawn in that type, as the argument `dtype` does in Python.
template <class Make>
auto in_dtype(torch::Dtype dtype, const Make& make) {
  struct Restore {
    caffe2::TypeMeta before = torch::get_default_dtype();
    ~Restore() { torch::set_default_dtype(before); }
  } restore;
  torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(dtype));
  return make();
}""",
    "call_any": """/// Calls a module that is of one of these classes.
template <class First, class... Rest>
auto call_any(const std::shared_ptr<torch::nn::Module>& module, const auto&... x) {
  auto* held = module->as<First>();
  if constexpr (std::is_same_v<First, torch::nn::SequentialImpl> && sizeof...(x) == 1) {
    if (held && held->is_empty()) return torch::Tensor((x, ...));  // as Python does
  }
  if constexpr (sizeof...(Rest) == 0) {
    return held->forward(x...);
  } else {
    return held ? held->forward(x...) : call_any<Rest...>(module, x...);
  }
}""",
    "range_of": """/// Python's list(range(low, high, step)).
inline std::vector<int64_t> range_of(int64_t low, int64_t high, int64_t step = 1) {
  std::vector<int64_t> all;
  for (int64_t at = low; step > 0 ? at < high : at > high; at += step) all.push_back(at);
  return all;
}""",
    "calculate_gain": """/// Python's torch.nn.init.calculate_gain of a word that is an argument.
inline double calculate_gain(const std::string& name, double param = 0.01) {
  if (name == "tanh") return 5.0 / 3.0;
  if (name == "relu") return std::sqrt(2.0);
  if (name == "leaky_relu") return std::sqrt(2.0 / (1.0 + param * param));
  if (name == "selu") return 0.75;
  TORCH_CHECK(name == "linear" || name == "sigmoid" || name.starts_with("conv"), "unsupported nonlinearity ", name);
  return 1.0;
}""",
    "trailing_ones": """/// Python's x[(...,) + (None,) * count].
inline torch::Tensor trailing_ones(torch::Tensor x, int64_t count) {
  for (; count > 0; --count) x = x.unsqueeze(-1);
  return x;
}""",
    "gumbel_softmax": """/// Python's F.gumbel_softmax, whose eps does nothing.
inline torch::Tensor gumbel_softmax(const torch::Tensor& logits, double tau = 1.0, bool hard = false, double = 1e-10, int64_t dim = -1) {
  const auto noise = -torch::empty_like(logits, torch::MemoryFormat::Contiguous).exponential_().log();
  const auto soft = ((logits + noise) / tau).softmax(dim);
  if (!hard) return soft;
  const auto largest = std::get<1>(soft.max(dim, true));
  return torch::zeros_like(logits, torch::MemoryFormat::Contiguous).scatter_(dim, largest, 1.0) - soft.detach() + soft;
}""",
    "array_of": """/// Python's numpy.array of nested lists.
template <class T>
torch::Tensor array_of(const std::vector<T>& items) {
  if constexpr (std::is_arithmetic_v<T>) {
    return torch::tensor(items, std::is_floating_point_v<T> ? torch::kDouble : torch::kLong);
  } else if constexpr (std::is_same_v<T, torch::Tensor>) {
    return torch::stack(items);
  } else {
    std::vector<torch::Tensor> rows;
    for (const auto& item : items) rows.push_back(array_of(item));
    return torch::stack(rows);
  }
}""",
    "reversed_list": """/// Python's list(reversed(items)).
template <class T>
std::vector<T> reversed_list(const std::vector<T>& items) {
  return std::vector<T>(items.rbegin(), items.rend());
}""",
    "list_of": """/// Python's list of a tensor's numbers.
template <class T>
std::vector<T> list_of(const torch::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() == 1, "the list of a tensor of one dimension");
  const auto numbers = tensor.to(torch::kCPU, c10::CppTypeToScalarType<T>::value).contiguous();
  return std::vector<T>(numbers.template data_ptr<T>(), numbers.template data_ptr<T>() + numbers.numel());
}""",
    "number_of": """/// Python's int(word) or float(word).
template <class T>
T number_of(const std::string& word) {
  size_t end = 0;
  const T number = std::is_integral_v<T> ? static_cast<T>(std::stoll(word, &end)) : static_cast<T>(std::stod(word, &end));
  TORCH_CHECK(end == word.size(), word, " is no number");
  return number;
}""",
    "replaced": """/// Python's text.replace(old, by).
inline std::string replaced(std::string text, const std::string& old, const std::string& by) {
  TORCH_CHECK(!old.empty(), "replace of an empty word");
  for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + by.size())) text.replace(at, old.size(), by);
  return text;
}""",
    "item_at": """/// Python's items[n], which counts from behind where n is negative.
template <class Items>
decltype(auto) item_at(Items&& items, int64_t n) {
  return items.at(n < 0 ? n + static_cast<int64_t>(items.size()) : n);
}""",
    "tensor_named": """/// Python's getattr(module, name) of a parameter that may be None, or of a buffer.
inline torch::Tensor tensor_named(const torch::nn::Module& module, const std::string& name) {
  for (const auto& tensors : {module.named_parameters(/*recurse=*/false), module.named_buffers(/*recurse=*/false)})
    if (const auto* found = tensors.find(name)) return *found;
  return {};
}""",
    "through": """/// Python's call of an nn.Sequential, which returns its argument if there are no layers.
inline torch::Tensor through(torch::nn::Sequential& layers, const torch::Tensor& x) {
  return layers->is_empty() ? x : layers->forward(x);
}""",
    "some_layers": """/// Python's layers[begin:end] of an nn.Sequential: the same layers.
inline torch::nn::Sequential some_layers(torch::nn::SequentialImpl& layers, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(layers.size());
  const auto within = [&](int64_t n) { return std::clamp<int64_t>(n < 0 ? n + size : n, 0, size); };
  torch::nn::Sequential some;
  for (int64_t n = within(begin); n < within(end); ++n) some->push_back(*(layers.begin() + n));
  return some;
}""",
    "as_layer": """/// An nn.Sequential as a layer of another one, which C++'s own class cannot be.
class NestedSequentialImpl : public torch::nn::SequentialImpl {
 public:
  explicit NestedSequentialImpl(torch::nn::Sequential layers) {
    const auto names = layers->named_children().keys();
    for (size_t n = 0; n < names.size(); ++n) push_back(names[n], *(layers->begin() + static_cast<int64_t>(n)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return is_empty() ? x : torch::nn::SequentialImpl::forward(x);
  }
};
TORCH_MODULE(NestedSequential);
""",
    "apply_to": """/// Python's Module.apply: the children first.
inline void apply_to(torch::nn::Module& module, const std::function<void(torch::nn::Module&)>& function) {
  for (const auto& child : module.children()) apply_to(*child, function);
  function(module);
}""",
    "modules_of": """/// Python's Module.modules: the module itself, and those in it.
inline std::vector<torch::nn::Module*> modules_of(torch::nn::Module& module) {
  std::vector<torch::nn::Module*> all{&module};
  for (const auto& child : module.modules(/*include_self=*/false)) all.push_back(child.get());
  return all;
}""",
    "tie_parameter": """/// Makes `value` the parameter of that name, as an assignment to a module's parameter does in Python.
inline torch::Tensor tie_parameter(torch::nn::Module& module, const std::string& name, const torch::Tensor& value) {
  struct Open : torch::nn::Module {
    static auto& parameters(torch::nn::Module& m) { return m.*&Open::parameters_; }
  };
  Open::parameters(module)[name] = value;
  return value;
}""",
    "parameters_of": """/// Python's module._parameters.
inline auto& parameters_of(torch::nn::Module& module) {
  struct Open : torch::nn::Module {
    static auto& parameters(torch::nn::Module& m) { return m.*&Open::parameters_; }
  };
  return Open::parameters(module);
}""",
    "set_buffer": """/// Puts another tensor in the place of a buffer, as an assignment does in Python.
template <auto kBuffers>
struct Buffers {
  friend torch::OrderedDict<std::string, torch::Tensor>& buffers_of(torch::nn::Module& module) { return module.*kBuffers; }
};
torch::OrderedDict<std::string, torch::Tensor>& buffers_of(torch::nn::Module& module);
template struct Buffers<&torch::nn::Module::buffers_>;
inline torch::Tensor set_buffer(torch::nn::Module& module, const std::string& name, const torch::Tensor& value) {
  auto& buffers = buffers_of(module);
  return buffers.contains(name) ? buffers[name] = value : buffers.insert(name, value);
}""",
    "copy_of": """/// Python's copy.deepcopy of a module: equal values, and no random number is drawn.
template <class M>
M copy_of(const M& module) {
  const attentive::RandomStateGuard guard;
  return M(std::dynamic_pointer_cast<typename M::ContainedType>(module->clone()));
}""",
}


def text(name):
    return schema.trunc_normal_source() if name == "trunc_normal_" else _TEXTS.get(name) or schema.HELPERS[name]
