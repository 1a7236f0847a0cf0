#include "io/pickle_input.h"

#include <algorithm>
#include <new>

#include "io/refusal.h"

namespace attentive::pickle {

// For all that may ever be taken, once: it takes address space, and memory where bytes are read to. To grow
// as they are taken, it would have to be copied.
void PickleInput::reserve() {
  if (bytes_) return;
  bytes_.reset(static_cast<char*>(std::malloc(std::max<uint64_t>(std::min(size_, limit_), 1))));
  if (!bytes_) throw std::bad_alloc();
}

uint32_t PickleInput::load_all() {
  if (size_ > limit_) {
    refuse("a description of {} bytes exceeds the limit of {} (max_pickle_bytes)", size_, limit_);
  }
  reserve();
  loaded_ = size_;
  return source_.read_and_sum(begin_, bytes_.get(), size_);
}

void PickleInput::load(uint64_t count) {
  constexpr uint64_t kFirst = 4096;
  const auto wanted = std::min({std::max({count, 2 * loaded_, kFirst}), size_, limit_});
  if (count > wanted) {
    refuse("its description exceeds the limit of {} bytes (max_pickle_bytes)", limit_);
  }
  reserve();
  source_.read(begin_ + loaded_, bytes_.get() + loaded_, wanted - loaded_);
  loaded_ = wanted;
}

const char* PickleInput::take(uint64_t count) {
  if (count > remaining()) {
    refuse("its pickle is truncated: {} bytes are needed at byte {}, {} are left", count, position_,
           remaining());
  }
  if (position_ + count > loaded_) load(position_ + count);
  const auto* bytes = bytes_.get() + position_;
  position_ += count;
  return bytes;
}

std::string_view PickleInput::take_line(uint64_t longest) {
  const auto begin = position_;
  while (position_ - begin <= longest) {
    if (*take(1) == '\n') return text(begin, position_ - 1 - begin);
  }
  refuse("its pickle holds a name of more than {} bytes at byte {}", longest, begin);
}

}  // namespace attentive::pickle
