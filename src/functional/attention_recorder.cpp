#include <fnmatch.h>

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <attentive/functional/attention_recorder.h>

#include "functional/recording.h"

namespace attentive {
namespace recording {
namespace {

constexpr const char* kAttentionRecorder = "AttentionRecorder";

bool matches(const std::string& pattern, const std::string& path) {
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

}  // namespace

Recording::Recording(const torch::nn::Module* root, AttentionRecorderOptions options)
    : options_(std::move(options)), rooted_(root != nullptr) {
  TORCH_CHECK_VALUE(options_.most_calls >= 0, kAttentionRecorder, ": expected most_calls >= 0, got ",
                    options_.most_calls);
  if (root) name_modules(*root);
}

void Recording::name_modules(const torch::nn::Module& root) {
  const auto owner = root.weak_from_this();
  names_[&root] = {"", owner.expired() ? std::nullopt : std::optional(owner)};
  bool any = chosen("");
  std::string some;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    names_.try_emplace(item.value().get(),
                       Name{item.key(), std::weak_ptr<const torch::nn::Module>(item.value())});
    any = any || chosen(item.key());
    if (some.size() < 60) some += (some.empty() ? "\"" : ", \"") + item.key() + "\"";
  }
  TORCH_CHECK_VALUE(any, kAttentionRecorder, ": expected layers to choose a module, got \"", options_.layers,
                    "\"; the modules are ", some.empty() ? "the root alone, \"\"" : some);
}

std::optional<std::string> Recording::path_of(const torch::nn::Module* caller) const {
  if (!rooted_ || !caller) return "call " + std::to_string(seen_);
  const auto found = names_.find(caller);
  if (found == names_.end()) return std::nullopt;
  const auto& [path, module] = found->second;
  if (module && module->expired()) return std::nullopt;
  return path;
}

// Whether the pattern matches the path or the path of a module that contains it.
bool Recording::chosen(const std::string& path) const {
  for (auto end = path.find('.'); end != std::string::npos; end = path.find('.', end + 1)) {
    if (matches(options_.layers, path.substr(0, end))) return true;
  }
  return matches(options_.layers, path);
}

void Recording::take(const torch::nn::Module* caller, const std::function<const RecordedAttention&()>& copy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!open_) return;
  const auto path = path_of(caller);
  if (!path) return;
  if (chosen(*path) && static_cast<int64_t>(calls_.size()) < options_.most_calls) {
    auto call = copy();
    call.path = *path;
    call.number = seen_;
    calls_.push_back(std::move(call));
  }
  ++seen_;
}

void Recording::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
}

bool Recording::open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return open_;
}

void Recording::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.clear();
  seen_ = 0;
}

}  // namespace recording

AttentionRecorder::AttentionRecorder() : AttentionRecorder(AttentionRecorderOptions{}) {}

AttentionRecorder::AttentionRecorder(AttentionRecorderOptions options)
    : recording_(std::make_shared<recording::Recording>(nullptr, std::move(options))) {
  recording::listen(recording_);
}

AttentionRecorder::AttentionRecorder(const torch::nn::Module& root, AttentionRecorderOptions options)
    : recording_(std::make_shared<recording::Recording>(&root, std::move(options))) {
  recording::listen(recording_);
}

AttentionRecorder::~AttentionRecorder() {
  recording::forget(recording_);
}

const std::vector<RecordedAttention>& AttentionRecorder::calls() const {
  return recording_->calls();
}

int64_t AttentionRecorder::seen() const {
  return recording_->seen();
}

void AttentionRecorder::clear() {
  recording_->clear();
}

}  // namespace attentive
