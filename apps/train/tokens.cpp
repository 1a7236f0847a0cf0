#include "tokens.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/train/token_file.h>

#include "common/run_main.h"
#include "join_group.h"

namespace {

using namespace attentive;

constexpr int64_t kLongestPath = 4096;

// Whether rank 0 is done with the file.
bool is_ready(TrainingGroup& group, bool ready) {
  return group.gather(at::full({1}, ready, at::kByte))[0].item<bool>();
}

void check_same_size(const Text& text, TrainingGroup& group) {
  const auto bytes = static_cast<int64_t>(text.view().size());
  const auto all = group.gather(at::full({1}, bytes, at::kLong));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    TORCH_CHECK_VALUE(all[rank].equal(all[0]), "expected the same --text in every process, but it has ",
                      all[0].item<int64_t>(), " bytes on rank 0 and ", all[rank].item<int64_t>(), " on rank ",
                      rank);
  }
}

// Rank 0's path: the others may have another --out, to which they do not write.
std::filesystem::path path_of_first(const std::filesystem::path& path, TrainingGroup& group) {
  const auto name = std::filesystem::absolute(path).string();
  auto bytes = at::zeros({kLongestPath}, at::kByte);
  TORCH_CHECK_VALUE(name.size() < static_cast<size_t>(kLongestPath), "--out: expected a shorter path, got ",
                    name);
  std::copy(name.begin(), name.end(), bytes.mutable_data_ptr<uint8_t>());
  const auto first = group.gather(bytes)[0].contiguous();
  return reinterpret_cast<const char*>(first.const_data_ptr<uint8_t>());
}

// Writes the file unless it holds the tokens already.
void prepare(const std::filesystem::path& file, bool replaces, const Text& text, const Tokenizer& tokenizer,
             const TokenFileOptions& options) {
  if (std::filesystem::exists(file)) {
    const auto mismatch = token_file_mismatch(file, text.path(), tokenizer, options);
    if (!mismatch) return;
    TORCH_CHECK_VALUE(replaces, "--tokens ", file.string(), ": expected the tokens of ", text.path().string(),
                      ", but ", *mismatch);
  }
  apps::print_error(fmt::format("tokenizing {} into {}", text.path().string(), file.string()));
  write_token_file(file, text.path(), tokenizer, options);
}

}  // namespace

TokenizedText tokens_of(const Settings& settings, const Text& text, const Tokenizer& tokenizer,
                        TrainingGroup* group) {
  if (group) check_same_size(text, *group);
  const bool given = !settings.tokens.empty();
  if (!given && !(text.is_long() && on_one_machine(group))) return tokenize(text.view(), tokenizer);
  auto file =
      given ? std::filesystem::path(settings.tokens) : std::filesystem::path(settings.out) / "tokens.bin";
  if (group && !given) file = path_of_first(file, *group);
  if (!group || group->rank() == 0) {
    TokenFileOptions options{.piece_bytes = kLongText};
    // The others wait in a call of the group, which has a timeout.
    if (group) options.on_piece = [&] { (void)is_ready(*group, false); };
    prepare(file, !given, text, tokenizer, options);
    if (group) (void)is_ready(*group, true);
  } else {
    while (!is_ready(*group, false)) {
    }
  }
  auto tokens = map_token_file(file);
  return {tokens.training, tokens.validation};
}
