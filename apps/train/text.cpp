#include "text.h"

#include <system_error>

#include <attentive/train/language_model.h>

Text::Text(const std::filesystem::path& path) : path_(path) {
  std::error_code unknown;
  const auto size = std::filesystem::file_size(path, unknown);
  if (!unknown && size > kLongText) {
    mapped_.emplace(path);
  } else {
    read_ = attentive::read_text(path);
  }
}
