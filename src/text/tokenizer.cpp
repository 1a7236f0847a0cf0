#include <system_error>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <attentive/text/bpe_tokenizer.h>
#include <attentive/text/char_tokenizer.h>
#include <attentive/text/tokenizer.h>

#include "base/files.h"
#include "base/strings.h"

namespace attentive {
namespace {

// The JSON formats are {"type": "char", "characters": ["61", "c3a9", ...]}, with each character as
// hexadecimal bytes, and {"type": "bpe", "merges": [[104, 101], ...]}.
constexpr const char* kParseTokenizer = "parse_tokenizer";

const nlohmann::json& member(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  TORCH_CHECK_VALUE(found != object.end() && found->is_array(), kParseTokenizer, ": expected an array \"",
                    key, "\"");
  return *found;
}

CharTokenizer parse_characters(const nlohmann::json& object) {
  std::vector<std::string> characters;
  for (const auto& item : member(object, "characters")) {
    TORCH_CHECK_VALUE(item.is_string(), kParseTokenizer, ": expected characters as strings, got ",
                      item.dump());
    characters.push_back(from_hex(kParseTokenizer, item.get_ref<const std::string&>()));
  }
  return CharTokenizer(std::move(characters));
}

BpeTokenizer parse_merges(const nlohmann::json& object) {
  std::vector<BpeTokenizer::Merge> merges;
  for (const auto& item : member(object, "merges")) {
    TORCH_CHECK_VALUE(
        item.is_array() && item.size() == 2 && item[0].is_number_integer() && item[1].is_number_integer(),
        kParseTokenizer, ": expected merges as pairs of integers, got ", item.dump());
    merges.emplace_back(item[0].get<int64_t>(), item[1].get<int64_t>());
  }
  return BpeTokenizer(std::move(merges));
}

}  // namespace

std::string Tokenizer::decode(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) text += bytes(id);
  return text;
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json) {
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  TORCH_CHECK_VALUE(object.is_object(), kParseTokenizer, ": expected a JSON object");
  TORCH_CHECK_VALUE(!object.contains("model"), kParseTokenizer,
                    ": expected a tokenizer of this package, got Hugging Face's tokenizer.json; "
                    "load_any_tokenizer of the component attentive::tokenizers reads both");
  const auto type = object.find("type");
  TORCH_CHECK_VALUE(type != object.end() && (*type == "char" || *type == "bpe"), kParseTokenizer,
                    ": expected \"type\" to be \"char\" or \"bpe\", got ",
                    type == object.end() ? std::string("none") : type->dump());
  if (*type == "char") return std::make_unique<CharTokenizer>(parse_characters(object));
  return std::make_unique<BpeTokenizer>(parse_merges(object));
}

void save_tokenizer(const std::filesystem::path& path, const Tokenizer& tokenizer) {
  const auto text = tokenizer.to_json() + '\n';
  try {
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "save_tokenizer: ", path.string(), ": ", error.what());
  }
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const std::system_error& error) {
    TORCH_CHECK_VALUE(false, "load_tokenizer: ", error.what());
  }
  try {
    return parse_tokenizer(text);
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, "load_tokenizer: ", path.string(), ": ", error.what_without_backtrace());
  }
}

}  // namespace attentive
