#pragma once

#include <filesystem>

#include <ATen/core/Tensor.h>

// Reads an image as the tensor that a model takes, (C, H, W) in float32: from a .safetensors file with a
// single tensor or with one named "image", or from a torch.save file of a tensor. (1, C, H, W) is accepted,
// too. Throws c10::ValueError.
at::Tensor read_image(const std::filesystem::path& path);

// The image scaled for display: its smallest value becomes 0, its largest 1. Undefined unless it has 1 or 3
// channels.
at::Tensor shown_pixels(const at::Tensor& image);
