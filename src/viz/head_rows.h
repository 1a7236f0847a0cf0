#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <attentive/functional/attention_recorder.h>
#include <attentive/viz/attention_view.h>
#include <attentive/viz/head_statistics.h>

namespace attentive::viz {

/// The weights of one head as plain memory: a row of keys for each query, and which keys the query sees.
struct HeadRows {
  const float* weights;  // (queries, keys), contiguous
  const bool* visible;   // of the same shape; null: all are visible
  int64_t queries;
  int64_t keys;

  bool sees(int64_t query, int64_t key) const { return !visible || visible[query * keys + key]; }
  float weight(int64_t query, int64_t key) const { return weights[query * keys + key]; }
};

/// A range [begin, end) that contains all keys which a query sees; both are 0 if there are none.
struct Span {
  int32_t begin;
  int32_t end;
};
std::vector<Span> spans_of(const HeadRows& rows);

/// One bit for each key in each span, row by row, beginning with the lowest bit of a byte: 1 if the key is
/// hidden although it is in the span. Empty if there is no such key.
std::vector<uint8_t> holes_of(const HeadRows& rows, const std::vector<Span>& spans);

/// The largest weight of each row.
std::vector<float> row_maxima(const HeadRows& rows);

/// One byte for each key in each span, row by row: round(weight / row's largest weight * levels), and 0 for a
/// hidden key.
std::vector<uint8_t> quantised(const HeadRows& rows, const std::vector<Span>& spans,
                               const std::vector<float>& maxima, int levels);

/// For each row, the `count` visible keys with the largest weights, in descending order; of equal weights,
/// the lower key comes first. Rows with fewer visible keys are filled with -1.
std::vector<int32_t> top_keys(const HeadRows& rows, int64_t count);

/// Distinguishes the `top_keys` that have the same quantised weight: for each of them, its index among the
/// row's visible keys with the same number of steps, in the order of the keys, not counting keys listed
/// before it. With the steps, this identifies the key. Each index is a variable-length integer: seven bits a
/// byte, lowest first, with the top bit set if more bytes follow; nothing is stored for -1. Most indices are
/// 0, because most weights differ in steps. steps: the result of `quantised`.
std::vector<uint8_t> top_places(const HeadRows& rows, const std::vector<Span>& spans,
                                const std::vector<uint8_t>& steps, const std::vector<int32_t>& top);

/// Reorders the bytes of numbers: first the highest byte of every number, then the next ones, because bytes
/// of the same significance resemble each other and compress better.
std::vector<uint8_t> byte_planes(std::span<const float> numbers);

/// Draws the head as a small picture of height x width cells, which divide queries and keys evenly. A cell's
/// value is the largest of its weights / largest weight of the row, times 255. Cells in which no query's span
/// contains a key are left out.
std::vector<uint8_t> thumbnail(const HeadRows& rows, const std::vector<Span>& spans,
                               const std::vector<float>& maxima, int64_t height, int64_t width);

/// Computes the `head_statistics` of a head that has been checked.
HeadStatistics statistics_of(const HeadRows& rows, int64_t key_origin);

/// Extracts one batch item of a call as a separate call, whose tensors are views of the tensors of `call`.
/// Throws c10::ValueError, prefixed by `caller`, if there is no such item.
RecordedAttention batch_item(const char* caller, const RecordedAttention& call, int64_t batch);

/// Throws c10::ValueError, prefixed by `caller`, unless the parts of a view fit together and its weights are
/// finite and not negative.
void check_view(const char* caller, const AttentionView& view);

/// One head of a checked view, by its index in `view.heads`; owns the memory that `rows` points to.
struct HeadMemory {
  HeadMemory(const AttentionView& view, int64_t place);

  at::Tensor weights, visible;
  HeadRows rows;
};

}  // namespace attentive::viz
