#pragma once

#include <attentive/io/torch_file.h>

#include "io/byte_source.h"

namespace attentive {

/// The two formats of `torch.save`. Both throw Refusal.

/// A zip archive: <root>/data.pkl, <root>/data/<key> a storage, <root>/version, <root>/byteorder, and records
/// that are not needed here.
TorchValue read_torch_zip(const ByteSource& source, const TorchFileOptions& options);

/// Before PyTorch 1.6, five pickles: a magic number, a protocol version, facts about the machine, the value
/// and the keys of its storages; then for each key the number of elements and the elements.
TorchValue read_torch_pickles(const ByteSource& source, const TorchFileOptions& options);

}  // namespace attentive
