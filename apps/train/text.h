#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <attentive/train/token_file.h>

// A text above this size is not read into memory, but mapped and tokenized in pieces of this size.
constexpr uint64_t kLongText = uint64_t{16} << 20;

// The text of a run. Throws the errors of attentive::read_text.
class Text {
 public:
  explicit Text(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::string_view view() const { return mapped_ ? mapped_->view() : std::string_view(read_); }
  bool is_long() const { return mapped_.has_value(); }

 private:
  std::filesystem::path path_;
  std::optional<attentive::MappedText> mapped_;
  std::string read_;
};
