#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace attentive {

/// Splits features into heads: (B, T, H * d) -> (B, H, T, d). The result is a view, whatever the strides of
/// x. Throws c10::ValueError unless x has rank 3 and `num_heads` divides its last size.
///
///   auto q = attentive::split_heads(query, 12);  // (8, 1024, 768) -> (8, 12, 1024, 64)
at::Tensor split_heads(const at::Tensor& x, int64_t num_heads);

/// Undoes `split_heads`: (B, H, T, d) -> (B, T, H * d). The result is a view, without a copy, if x is
/// contiguous in memory as (B, T, H, d). Throws c10::ValueError unless x has rank 4.
at::Tensor merge_heads(const at::Tensor& x);

/// Cuts images into windows, whose tokens then attend to each other alone (Swin).
///
///   x (B, height, width, C) -> (B * windows, window[0] * window[1], C)
///
/// The windows of an image and the tokens of a window are in row-major order. With a shift, the image is
/// first rolled up by shift[0] rows and to the left by shift[1] columns, so that the windows lie across the
/// borders of those without a shift; `shifted_window_mask` hides the pairs that are no neighbours. Throws
/// c10::ValueError unless x has rank 4, the window divides the image, and each shift is in [0, window).
/// Source: Liu et al. 2021, "Swin Transformer", section 3.2.
///
///   auto windows = attentive::window_partition(x, {7, 7}, {3, 3});
at::Tensor window_partition(const at::Tensor& x, std::array<int64_t, 2> window,
                            std::array<int64_t, 2> shift = {0, 0});

/// Undoes `window_partition`, for images of this size (height, width).
///
///   windows (B * windows, window[0] * window[1], C) -> (B, height, width, C)
///
/// Throws c10::ValueError as `window_partition` does, and for windows of another shape.
///
///   x = x + attentive::window_merge(attention->forward(windows, mask), {56, 56}, {7, 7}, {3, 3});
at::Tensor window_merge(const at::Tensor& windows, std::array<int64_t, 2> size, std::array<int64_t, 2> window,
                        std::array<int64_t, 2> shift = {0, 0});

/// The pairs that may attend in the windows of a shifted image: bool (windows, N, N), N = window[0] *
/// window[1], true where query and key are also neighbours in the image itself, and not only because it was
/// rolled.
///
/// A batch needs one mask per image: `Mask::per_batch(Mask::keep(mask.repeat({B, 1, 1})))`. The mask hides
/// exactly; transformers' Swin adds -100 to the hidden scores instead. That leaves a hidden key e^-100 =
/// 4e-44 of the weight that it would have: as long as scores differ by less than 50, neither float32 nor
/// float64 shows a difference. Throws c10::ValueError as `window_partition` does. Memory: windows N N bytes.
///
///   auto keep = attentive::shifted_window_mask({56, 56}, {7, 7}, {3, 3});
at::Tensor shifted_window_mask(std::array<int64_t, 2> size, std::array<int64_t, 2> window,
                               std::array<int64_t, 2> shift, at::Device device = at::kCPU);

}  // namespace attentive
