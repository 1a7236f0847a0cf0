// Loads a state dict and a model of 500 MB from files in the page cache, compared with a plain read of their
// bytes.

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>

#include <ATen/ATen.h>

#include <attentive/files/state_dict.h>
#include <attentive/files/torch_file.h>
#include <attentive/models/model_folder.h>

#include "suites.h"

namespace bench {
namespace {

constexpr int64_t kTensors = 60, kRows = 2048, kColumns = 1024;  // tensors of 8 MiB

// A file that is removed with the last contender.
class File {
 public:
  File() : path_((std::filesystem::temp_directory_path() / "attentive-bench-XXXXXX").string()) {
    const int descriptor = ::mkstemp(path_.data());
    if (descriptor < 0) throw std::system_error(errno, std::generic_category(), path_);
    ::close(descriptor);
  }
  ~File() { std::remove(path_.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Reads the whole file into newly allocated memory.
at::Tensor read_whole(const std::string& path) {
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  auto bytes = at::empty({size}, at::kByte);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) throw std::system_error(errno, std::generic_category(), path);
  std::setvbuf(file, nullptr, _IONBF, 0);
  const auto got = std::fread(bytes.mutable_data_ptr<uint8_t>(), 1, static_cast<size_t>(size), file);
  std::fclose(file);
  if (got != static_cast<size_t>(size)) throw std::runtime_error("short read of " + path);
  return bytes;
}

// A folder with a Llama-like model of 500 MB, which is removed with the last contender.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "attentive-bench-XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) throw std::system_error(errno, std::generic_category(), path_);
    at::manual_seed(5);
    const attentive::Llama model(attentive::LlamaOptions(32000, 768, 12, 11).hidden_dim(2048));
    attentive::save_model_folder(path_, *model);
  }
  ~Folder() {
    for (const auto* name : {"config.json", "model.safetensors"}) std::remove((path_ + '/' + name).c_str());
    std::remove(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Tensors parameters_of(const attentive::Llama& model) {
  return model->parameters();
}

void folder_case(Runner& runner) {
  Case c{.suite = "load", .name = "model folder of 500 MB into a Llama", .dtype = "fp32"};
  if (!runner.wants(c)) return;
  const auto folder = std::make_shared<Folder>();
  const auto load = [folder](bool map) {
    return parameters_of(attentive::load_pretrained<attentive::Llama>(
        attentive::read_model_folder(folder->path(), {.map = map})));
  };
  c.check = [=] {
    return Check{"the model read without a mapping", difference(load(true), load(false)), 0.0};
  };
  c.contenders = {
      {"attentive, mapped", [=] { return load(true); }},
      {"attentive, mapped, then every number read",
       [=] {
         auto parameters = load(true);
         for (const auto& parameter : parameters) parameter.sum();
         return parameters;
       }},
      {"plain read", [folder] { return Tensors{read_whole(folder->path() + "/model.safetensors")}; }}};
  runner.run(c);
}

void file_case(Runner& runner) {
  Case c{.suite = "load", .name = "torch.save file of 500 MB", .dtype = "fp32"};
  if (!runner.wants(c)) return;
  std::map<std::string, at::Tensor> state;
  at::manual_seed(5);
  for (int64_t i = 0; i < kTensors; ++i) state["layer" + std::to_string(i)] = at::randn({kRows, kColumns});
  const auto file = std::make_shared<File>();
  attentive::save_torch(file->path(), state);
  const auto load = [file](bool map) {
    const auto value = attentive::load_torch(file->path(), {.map = map});
    return Tensors{value.at("layer0").as<at::Tensor>()};
  };
  c.check = [&state, file] {
    Tensors loaded, saved;
    for (const auto& [name, tensor] : attentive::read_state_dict(file->path())) loaded.push_back(tensor);
    for (const auto& [name, tensor] : state) saved.push_back(tensor);
    return Check{"the tensors that were saved", difference(loaded, saved), 0.0};
  };
  c.contenders = {{"attentive", [=] { return load(false); }},
                  {"attentive, mapped", [=] { return load(true); }},
                  {"plain read", [file] { return Tensors{read_whole(file->path())}; }}};
  runner.run(c);
}

}  // namespace

void load_suite(Runner& runner) {
  file_case(runner);
  folder_case(runner);
}

}  // namespace bench
