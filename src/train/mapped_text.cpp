#include <c10/util/Exception.h>

#include <attentive/train/token_file.h>

#include "base/refusal.h"
#include "files/byte_source.h"

namespace attentive {

MappedText::MappedText(const std::filesystem::path& path) {
  try {
    const ByteSource file(path);
    if (file.size() == 0) refuse("expected a text, got an empty file");
    mapping_ = std::make_unique<MappedFile>(file.descriptor(), file.size());
    text_ = {mapping_->data(), static_cast<size_t>(file.size())};
  } catch (const Refusal& refusal) {
    TORCH_CHECK_VALUE(false, "MappedText: ", path.string(), ": ", refusal.what());
  }
}

MappedText::~MappedText() = default;

}  // namespace attentive
