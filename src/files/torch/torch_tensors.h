#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/files/torch_file.h>

#include "files/byte_source.h"
#include "files/mapped_file.h"
#include "files/pickle/graph.h"

namespace attentive {

/// Loads the storages of a file and the tensors that a pickle describes over them. Works in stages: every
/// storage of the file is added, and every mention is assigned to one; then every tensor is checked against
/// the true size of its storage; only then is memory allocated and are bytes read. Every member throws
/// Refusal.
class TorchTensors {
 public:
  TorchTensors(const ByteSource& source, const pickle::Graph& graph, const TorchFileOptions& options);

  /// Adds a storage of `size` bytes at `offset` of the file. `crc` is the CRC-32 of the bytes, if the file
  /// has it.
  uint32_t add(std::string_view name, uint64_t offset, uint64_t size, std::optional<uint32_t> crc);
  /// Assigns the graph's mention with this number to a storage.
  void assign(size_t mention, uint32_t storage);
  /// Reads the storages, in the order in which they were added, and returns the tensors in the order of the
  /// graph.
  std::vector<at::Tensor> load();

 private:
  struct Stored {
    std::string_view name;
    uint64_t offset = 0;
    uint64_t size = 0;
    std::optional<uint32_t> crc;
    std::optional<at::ScalarType> dtype = std::nullopt;  // as given by its mentions
    uint64_t alignment = 1;
    bool holds_bools = false;
    c10::Storage storage = {};
  };

  struct Room {
    int64_t begin = 0;
    int64_t count = 0;
  };

  Room room_of(const pickle::TensorSpec& spec) const;
  void check(const pickle::TensorSpec& spec);
  void check_sum(const Stored& stored, uint32_t sum) const;
  std::vector<int64_t> numbers(pickle::Ref tuple) const;
  void read(Stored& stored);
  c10::DataPtr read_owned(const Stored& stored) const;
  c10::DataPtr read_mapped(const Stored& stored) const;
  at::Tensor make(const pickle::TensorSpec& spec) const;

  const ByteSource& source_;
  const pickle::Graph& graph_;
  const TorchFileOptions& options_;
  std::shared_ptr<MappedFile> mapping_;
  std::vector<Stored> stored_;
  std::vector<uint32_t> storage_of_;  // by mention
  uint64_t bytes_ = 0;
};

/// Readers of the two formats of `torch.save`. Both throw Refusal.

/// Reads a zip archive: <root>/data.pkl, a storage in each <root>/data/<key>, <root>/version,
/// <root>/byteorder, and records that are ignored.
FileValue read_torch_zip(const ByteSource& source, const TorchFileOptions& options);

/// Reads the format before PyTorch 1.6: five pickles (a magic number, a protocol version, facts about the
/// machine, the value, and the keys of its storages), then for each key the number of elements and the
/// elements.
FileValue read_torch_pickles(const ByteSource& source, const TorchFileOptions& options);

}  // namespace attentive
