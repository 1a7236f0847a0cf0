#pragma once

#include <filesystem>

#include <ATen/core/Tensor.h>

// An image as the tensor that the model takes: (C, H, W), float32. Read from a .safetensors file with one
// tensor, or with one that is named "image", or from a torch.save file of a tensor; (1, C, H, W) is one
// image, too. Throws c10::ValueError.
at::Tensor read_image(const std::filesystem::path& path);

// The picture of it: its smallest number becomes 0 and its largest 1. Undefined unless it has 1 or 3
// channels.
at::Tensor shown_pixels(const at::Tensor& image);
