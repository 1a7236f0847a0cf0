#include "viz/head_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace attentive::viz {
namespace {

// A weight in steps of the row's largest weight / levels.
uint8_t steps(float weight, float largest, int levels) {
  if (!(largest > 0)) return 0;
  return static_cast<uint8_t>(
      std::lround(static_cast<double>(weight) / static_cast<double>(largest) * levels));
}

}  // namespace

std::vector<Span> spans_of(const HeadRows& rows) {
  std::vector<Span> spans;
  spans.reserve(static_cast<size_t>(rows.queries));
  for (int64_t i = 0; i < rows.queries; ++i) {
    int64_t begin = 0, end = rows.keys;
    while (begin < end && !rows.sees(i, begin)) ++begin;
    while (end > begin && !rows.sees(i, end - 1)) --end;
    if (begin == end) begin = end = 0;
    spans.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end)});
  }
  return spans;
}

std::vector<uint8_t> holes_of(const HeadRows& rows, const std::vector<Span>& spans) {
  std::vector<uint8_t> bits;
  int64_t place = 0;
  bool any = false;
  for (int64_t i = 0; i < rows.queries; ++i) {
    const auto span = spans[static_cast<size_t>(i)];
    for (int64_t j = span.begin; j < span.end; ++j, ++place) {
      if (place % 8 == 0) bits.push_back(0);
      if (rows.sees(i, j)) continue;
      bits.back() = static_cast<uint8_t>(bits.back() | (1U << (place % 8)));
      any = true;
    }
  }
  return any ? bits : std::vector<uint8_t>{};
}

std::vector<float> row_maxima(const HeadRows& rows) {
  std::vector<float> maxima;
  for (int64_t i = 0; i < rows.queries; ++i) {
    const auto* row = rows.weights + i * rows.keys;
    maxima.push_back(*std::max_element(row, row + rows.keys));
  }
  return maxima;
}

std::vector<uint8_t> quantised(const HeadRows& rows, const std::vector<Span>& spans,
                               const std::vector<float>& maxima, int levels) {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < rows.queries; ++i) {
    const auto span = spans[static_cast<size_t>(i)];
    const float largest = maxima[static_cast<size_t>(i)];
    for (int64_t j = span.begin; j < span.end; ++j)
      bytes.push_back(rows.sees(i, j) ? steps(rows.weight(i, j), largest, levels) : uint8_t{0});
  }
  return bytes;
}

std::vector<int32_t> top_keys(const HeadRows& rows, int64_t count) {
  std::vector<int32_t> top, seen;
  for (int64_t i = 0; i < rows.queries; ++i) {
    seen.clear();
    for (int64_t j = 0; j < rows.keys; ++j) {
      if (rows.sees(i, j)) seen.push_back(static_cast<int32_t>(j));
    }
    const auto* row = rows.weights + i * rows.keys;
    const auto best = std::min(static_cast<size_t>(count), seen.size());
    std::partial_sort(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(best), seen.end(),
                      [row](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    seen.resize(best);
    top.insert(top.end(), seen.begin(), seen.end());
    top.insert(top.end(), static_cast<size_t>(count) - best, -1);
  }
  return top;
}

std::vector<uint8_t> top_places(const HeadRows& rows, const std::vector<Span>& spans,
                                const std::vector<uint8_t>& steps, const std::vector<int32_t>& top) {
  std::vector<uint8_t> bytes;
  const auto count = top.size() / static_cast<size_t>(rows.queries);
  int64_t first = 0;  // index of the row's first value in `steps`
  for (int64_t i = 0; i < rows.queries; ++i) {
    const auto span = spans[static_cast<size_t>(i)];
    const auto steps_of = [&](int32_t key) { return steps[static_cast<size_t>(first + key - span.begin)]; };
    const std::span named(top.data() + static_cast<size_t>(i) * count, count);
    for (size_t n = 0; n < count && named[n] >= 0; ++n) {
      const auto key = named[n];
      uint32_t place = 0;
      for (auto j = span.begin; j < key; ++j)
        place += steps_of(j) == steps_of(key) && rows.sees(i, j) ? 1U : 0U;
      for (size_t before = 0; before < n; ++before)
        place -= steps_of(named[before]) == steps_of(key) && named[before] < key ? 1U : 0U;
      for (; place > 127; place >>= 7) bytes.push_back(static_cast<uint8_t>(place | 128U));
      bytes.push_back(static_cast<uint8_t>(place));
    }
    first += span.end - span.begin;
  }
  return bytes;
}

std::vector<uint8_t> byte_planes(std::span<const float> numbers) {
  std::vector<uint8_t> bytes;
  bytes.reserve(numbers.size_bytes());
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (const auto number : numbers)
      bytes.push_back(static_cast<uint8_t>(std::bit_cast<uint32_t>(number) >> shift));
  }
  return bytes;
}

std::vector<uint8_t> thumbnail(const HeadRows& rows, const std::vector<Span>& spans,
                               const std::vector<float>& maxima, int64_t height, int64_t width) {
  std::vector<uint8_t> cells;
  cells.reserve(static_cast<size_t>(height * width));
  std::vector<uint8_t> line;
  for (int64_t y = 0; y < height; ++y) {
    line.assign(static_cast<size_t>(width), 0);
    std::vector<bool> reached(static_cast<size_t>(width), false);
    for (int64_t i = y * rows.queries / height; i < (y + 1) * rows.queries / height; ++i) {
      const auto largest = maxima[static_cast<size_t>(i)];
      const auto span = spans[static_cast<size_t>(i)];
      for (int64_t x = 0; x < width; ++x) {
        const auto begin = std::max<int64_t>(span.begin, x * rows.keys / width);
        const auto end = std::min<int64_t>(span.end, (x + 1) * rows.keys / width);
        if (begin >= end) continue;
        const auto* row = rows.weights + i * rows.keys;
        auto& cell = line[static_cast<size_t>(x)];
        cell = std::max(cell, steps(*std::max_element(row + begin, row + end), largest, 255));
        reached[static_cast<size_t>(x)] = true;
      }
    }
    for (size_t x = 0; x < line.size(); ++x) {
      if (reached[x]) cells.push_back(line[x]);
    }
  }
  return cells;
}

}  // namespace attentive::viz
