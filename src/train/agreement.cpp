#include "train/agreement.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "train/run_state.h"
#include "train/sha256.h"

namespace attentive {
namespace {

std::vector<std::string> gather_texts(TrainingGroup& group, std::string text) {
  std::vector<std::string> texts;
  const auto lengths = group.gather(at::tensor({static_cast<int64_t>(text.size())}, at::kLong));
  int64_t longest = 0;
  for (const auto& length : lengths) longest = std::max(longest, length.item<int64_t>());
  text.resize(static_cast<size_t>(longest));
  for (const auto& bytes : group.gather(to_tensor(text))) {
    texts.push_back(bytes_of(bytes).substr(0, static_cast<size_t>(lengths[texts.size()].item<int64_t>())));
  }
  return texts;
}

// Removes JSON's white space and commas at the ends of a line.
std::string trimmed(const std::string& line) {
  const auto begin = line.find_first_not_of(' ');
  if (begin == std::string::npos) return {};
  return line.substr(begin, line.find_last_not_of(" ,") - begin + 1);
}

}  // namespace

void check_agreement(const char* caller, TrainingGroup& group, const std::vector<Agreed>& texts) {
  std::string digest;
  for (const auto& agreed : texts) digest += sha256(agreed.text);
  std::vector<std::string> all;
  for (const auto& digests : group.gather(to_tensor(digest))) all.push_back(bytes_of(digests));
  const auto digits = digest.size() / texts.size();
  for (size_t rank = 1; rank < all.size(); ++rank) {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (all[0].compare(i * digits, digits, all[rank], i * digits, digits) == 0) continue;
      // All processes reach this point, so this collective call is safe.
      const auto quoted =
          texts[i].quoted ? first_difference(gather_texts(group, texts[i].text)) : std::nullopt;
      TORCH_CHECK_VALUE(false, caller, ": expected the same ", texts[i].name, " in every process, but ",
                        quoted.value_or(fmt::format("those of rank {} differ from those of rank 0", rank)));
    }
  }
}

std::optional<std::string> first_difference(const std::vector<std::string>& texts) {
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    std::istringstream expected(texts[0]), got(texts[rank]);
    std::string expected_line, got_line;
    while (true) {
      const bool more = static_cast<bool>(std::getline(expected, expected_line));
      const bool got_more = static_cast<bool>(std::getline(got, got_line));
      if (!more && !got_more) break;
      if (more && got_more && expected_line == got_line) continue;
      return fmt::format("rank 0 has {}, rank {} has {}", more ? trimmed(expected_line) : "nothing more",
                         rank, got_more ? trimmed(got_line) : "nothing more");
    }
  }
  return std::nullopt;
}

std::string printed_options(const torch::nn::Module& model) {
  std::string lines;
  const auto add = [&](const std::string& name, const torch::nn::Module& module) {
    std::ostringstream stream;
    module.pretty_print(stream);
    auto printed = stream.str();
    constexpr std::string_view kUnnamed = "(anonymous namespace)::";
    for (size_t offset; (offset = printed.find(kUnnamed)) != std::string::npos;)
      printed.erase(offset, kUnnamed.size());
    std::replace(printed.begin(), printed.end(), '\n', ' ');
    const auto open = std::min(printed.find('('), printed.size());
    lines += fmt::format("{}: {}\n", name, printed.substr(0, open));
    if (printed.ends_with(')')) printed.pop_back();
    for (size_t begin = open + 1; begin < printed.size();) {
      const auto end = std::min(printed.find(", ", begin), printed.size());
      lines += fmt::format("{}: {}\n", name, printed.substr(begin, end - begin));
      begin = end + 2;
    }
  };
  add("the model", model);
  // Excludes the module itself, because named_modules() would need a shared_ptr that holds it.
  for (const auto& item : model.named_modules("", /*include_self=*/false)) add(item.key(), *item.value());
  return lines;
}

}  // namespace attentive
