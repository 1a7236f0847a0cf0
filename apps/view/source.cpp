#include "source.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/functional/attention_recorder.h>
#include <attentive/parity/case.h>
#include <attentive/viz/write_page.h>

#include "image.h"
#include "network.h"

namespace {

using namespace attentive;

Network network_of(const std::filesystem::path& path, bool for_images) {
  auto network = load_network(path);
  TORCH_CHECK_VALUE(network.image.has_value() == for_images, path.string(), ": expected a model of ",
                    for_images ? "images for --image" : "texts for --text or --ids", ", got one of ",
                    for_images ? "texts" : "images");
  return network;
}

std::set<std::string> paths_of(const std::vector<RecordedAttention>& calls) {
  std::set<std::string> paths;
  for (const auto& call : calls) paths.insert(call.path);
  return paths;
}

// The last component of a path, also for "gpt2/" and ".".
std::string last_name(const std::filesystem::path& path) {
  return std::filesystem::weakly_canonical(path).filename().string();
}

// The name of a token: its bytes, or its number if the tokenizer does not have it.
std::string name_of(const Network& network, int64_t id) {
  if (!network.tokenizer || id >= network.tokenizer->vocab_size()) return std::to_string(id);
  try {
    return std::string(network.tokenizer->bytes(id));
  } catch (const c10::ValueError&) {  // the vocabulary has gaps
    return std::to_string(id);
  }
}

}  // namespace

Source text_source(const std::filesystem::path& model, const TextInput& input, const std::string& layers) {
  const auto network = network_of(model, /*for_images=*/false);
  auto ids = input.ids.empty() ? network.encode(input.text, "--text") : input.ids;
  TORCH_CHECK_VALUE(!ids.empty(), "expected a text of at least one token, got none");
  const auto count = std::ssize(ids);
  if (input.most_tokens > 0) ids.resize(static_cast<size_t>(std::min(count, input.most_tokens)));
  TORCH_CHECK_VALUE(network.context_length == 0 || std::ssize(ids) <= network.context_length, "the text has ",
                    count, " tokens, but the model's context is ", network.context_length, "; --tokens ",
                    network.context_length, " takes the first of them");
  const at::NoGradGuard no_grad;
  const AttentionRecorder recorder(*network.module, {.layers = layers});
  network.forward(at::tensor(ids).unsqueeze(0));
  const auto text = input.ids.empty() ? input.text : network.tokenizer ? network.tokenizer->decode(ids) : "";
  Source source{.calls = recorder.calls(),
                .chosen = paths_of(recorder.calls()),
                .title = page_title(last_name(model), text)};
  for (const auto id : ids) source.tokens.push_back(name_of(network, id));
  return source;
}

Source image_source(const std::filesystem::path& model, const std::filesystem::path& image,
                    const std::string& layers) {
  const auto network = network_of(model, /*for_images=*/true);
  const auto pixels = read_image(image);
  const at::NoGradGuard no_grad;
  const AttentionRecorder all(*network.module);
  const AttentionRecorder chosen(*network.module, {.layers = layers});
  network.forward(pixels.unsqueeze(0));
  const auto& options = *network.image;
  const auto side = options.image_size() / options.patch_size();
  const int64_t first = options.distillation_token() ? 2 : 1;
  return {.calls = all.calls(),
          .chosen = paths_of(chosen.calls()),
          .image = PatchImage{.rows = side, .columns = side, .first = first, .pixels = shown_pixels(pixels)},
          .title = fmt::format("{}: {}", last_name(model), last_name(image))};
}

Source case_source(const std::filesystem::path& path, const std::string& layers) {
  const auto test_case = read_case(path);
  Source source{.calls = case_attention(test_case, {.layers = layers}), .title = last_name(path)};
  for (auto& call : source.calls) {
    if (call.path.empty()) call.path = test_case.module;
  }
  source.chosen = paths_of(source.calls);
  return source;
}
