#include "viz/page_reader.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <zlib.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "support/files.h"

namespace attentive::test {
namespace {

int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  throw std::runtime_error("not a digit of base64");
}

std::vector<float> floats_of(const std::vector<uint8_t>& planes) {
  const auto count = planes.size() / 4;
  std::vector<float> numbers;
  for (size_t n = 0; n < count; ++n) {
    uint32_t bits = 0;
    for (size_t plane = 0; plane < 4; ++plane) bits = bits << 8 | planes[plane * count + n];
    numbers.push_back(std::bit_cast<float>(bits));
  }
  return numbers;
}

}  // namespace

std::vector<uint8_t> decoded_base64(std::string_view text) {
  if (text.size() % 4 != 0) throw std::runtime_error("base64 whose length is no multiple of four");
  while (text.ends_with('=')) text.remove_suffix(1);
  std::vector<uint8_t> bytes;
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    bits = bits << 6 | static_cast<unsigned>(digit(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> count));
  }
  return bytes;
}

std::vector<uint8_t> decoded_base91(std::string_view text) {
  std::string alphabet;
  for (char c = '!'; c <= '|'; ++c) {
    if (c != '<') alphabet += c;
  }
  const auto digit = [&](char c) {
    const auto place = alphabet.find(c);
    if (place == std::string::npos) throw std::runtime_error("not a digit of base 91");
    return place;
  };
  std::vector<bool> bits;
  for (size_t i = 0; i < text.size(); i += 2) {
    const bool whole = i + 1 < text.size();
    const auto value = digit(text[i]) + (whole ? 91 * digit(text[i + 1]) : 0);
    if (value >= (whole ? 8192 : 64)) throw std::runtime_error("more bits than base 91 holds");
    for (int bit = 0; bit < (whole ? 13 : 6); ++bit) bits.push_back((value >> bit & 1) != 0);
  }
  std::vector<uint8_t> bytes(bits.size() / 8, 0);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit)
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] | (bits[bit] ? 1U << bit % 8 : 0U));
  return bytes;
}

std::vector<uint8_t> inflated(const std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> out(1 << 20);
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::runtime_error("inflateInit2");
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  int status = Z_OK;
  while (status == Z_OK) {
    if (stream.total_out == out.size()) out.resize(2 * out.size());
    stream.next_out = out.data() + stream.total_out;
    stream.avail_out = static_cast<uInt>(out.size() - stream.total_out);
    status = inflate(&stream, Z_NO_FLUSH);
  }
  out.resize(stream.total_out);
  const bool whole = status == Z_STREAM_END && stream.avail_in == 0;
  inflateEnd(&stream);
  if (!whole) throw std::runtime_error("no raw DEFLATE, or more than one stream");
  return out;
}

Page::Page(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(file), {});
  data = nlohmann::json::parse(element("attentive-data"));
}

std::string Page::element(const std::string& id) const {
  const auto attribute = fmt::format(" id=\"{}\">", id);
  const auto place = text.find(attribute);
  if (place == std::string::npos || text.find(attribute, place + 1) != std::string::npos)
    throw std::runtime_error("not exactly one element " + id);
  const auto begin = place + attribute.size();
  return text.substr(begin, text.find("</script", begin) - begin);
}

const nlohmann::json& Page::head(size_t view, size_t place) const {
  return data.at("views").at(view).at("heads").at(place);
}

Page::Parts Page::parts(size_t view, size_t place) const {
  const auto all = inflated(
      decoded_base91(element(fmt::format("w-{}-{}", view, head(view, place).at("head").get<int>()))));
  const auto& hidden = data.at("hidden").at(head(view, place).at("hidden").get<size_t>());
  const auto spans = numbers_of<int32_t>(hidden.at("spans"));
  size_t next = 0, cells = 0;
  for (size_t i = 0; i < spans.size(); i += 2) cells += static_cast<size_t>(spans[i + 1] - spans[i]);
  const auto take = [&](size_t count) {
    if (next + count > all.size()) throw std::runtime_error("fewer bytes than a head has");
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(next);
    next += count;
    return std::vector<uint8_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  Parts parts{.steps = take(cells), .maxima = take(2 * spans.size()), .logsumexp = {}, .places = {}};
  if (head(view, place).at("logsumexp").get<bool>()) parts.logsumexp = take(2 * spans.size());
  parts.places = take(all.size() - next);
  return parts;
}

std::vector<uint8_t> Page::bytes(size_t view, size_t place) const {
  return parts(view, place).steps;
}

std::vector<float> Page::row_maxima(size_t view, size_t place) const {
  return floats_of(parts(view, place).maxima);
}

std::vector<float> Page::logsumexp(size_t view, size_t place) const {
  return floats_of(parts(view, place).logsumexp);
}

std::vector<std::vector<int32_t>> Page::top(size_t view, size_t place) const {
  const auto seen = visible(view, place);
  const auto steps = weights(view, place) / at::tensor(row_maxima(view, place)).to(at::kDouble).unsqueeze(1);
  const auto count = head(view, place).at("top_count").get<size_t>();
  const auto places = parts(view, place).places;
  auto byte = places.begin();
  const auto number = [&] {
    size_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (byte == places.end()) throw std::runtime_error("fewer places than rows have");
      value |= static_cast<size_t>(*byte & 127) << shift;
      if (*byte++ < 128) return value;
    }
  };
  std::vector<std::vector<int32_t>> top;
  for (int64_t i = 0; i < seen.size(0); ++i) {
    std::vector<int32_t> left;
    for (int32_t j = 0; j < seen.size(1); ++j) {
      if (seen[i][j].item<bool>()) left.push_back(j);
    }
    const auto row = steps[i].nan_to_num();
    const auto* values = row.const_data_ptr<double>();
    std::stable_sort(left.begin(), left.end(), [&](int32_t a, int32_t b) { return values[a] > values[b]; });
    auto& keys = top.emplace_back();
    while (keys.size() < count && !left.empty()) {
      const auto chosen = left.begin() + static_cast<std::ptrdiff_t>(number());
      keys.push_back(*chosen);
      left.erase(chosen);
    }
  }
  if (byte != places.end()) throw std::runtime_error("more places than rows have");
  return top;
}

at::Tensor Page::visible(size_t view, size_t place) const {
  const auto& shown = data.at("views").at(view);
  const auto keys = shown.at("keys").get<int64_t>();
  const auto& hidden = data.at("hidden").at(head(view, place).at("hidden").get<size_t>());
  const auto spans = numbers_of<int32_t>(hidden.at("spans"));
  std::vector<uint8_t> holes;
  if (!hidden.at("holes").is_null()) holes = inflated(decoded_base64(hidden.at("holes").get<std::string>()));
  auto visible = at::zeros({shown.at("queries").get<int64_t>(), keys}, at::kBool);
  auto* cells = visible.mutable_data_ptr<bool>();
  size_t bit = 0;
  for (size_t i = 0; 2 * i < spans.size(); ++i) {
    for (int32_t j = spans[2 * i]; j < spans[2 * i + 1]; ++j, ++bit)
      cells[static_cast<int64_t>(i) * keys + j] = holes.empty() || (holes.at(bit / 8) >> (bit % 8) & 1) == 0;
  }
  return visible;
}

at::Tensor Page::weights(size_t view, size_t place) const {
  const auto seen = visible(view, place);
  const auto spans =
      numbers_of<int32_t>(data.at("hidden").at(head(view, place).at("hidden").get<size_t>()).at("spans"));
  const auto largest = row_maxima(view, place);
  const auto packed = bytes(view, place);
  auto weights = at::zeros(seen.sizes(), at::kDouble);
  auto* cells = weights.mutable_data_ptr<double>();
  size_t next = 0;
  for (size_t i = 0; i < largest.size(); ++i) {
    for (int32_t j = spans[2 * i]; j < spans[2 * i + 1]; ++j)
      cells[static_cast<int64_t>(i) * seen.size(1) + j] =
          packed.at(next++) * static_cast<double>(largest[i]) / data.at("levels").get<double>();
  }
  if (next != packed.size()) throw std::runtime_error("more weights than keys in spans");
  return weights;
}

Page page_of(const std::vector<AttentionView>& views, const HtmlOptions& options) {
  const TemporaryFolder folder;
  const auto written = write_html(folder / "page.html", views, options);
  Page page(folder / "page.html");
  CHECK(written.bytes == std::ssize(page.text));
  CHECK(written.levels == page.data.at("levels").get<int>());
  CHECK(written.bytes <= options.max_bytes);
  return page;
}

void check_head(const Page& page, const AttentionView& view, size_t number, size_t place) {
  const auto head = static_cast<int64_t>(place);
  const auto want = view.weights[head];
  const auto seen = view.visible.defined() ? view.visible.expand(view.weights.sizes())[head]
                                           : at::ones_like(want).to(at::kBool);
  CHECK(page.visible(number, place).equal(seen));
  const auto step = std::get<0>(want.max(1, true)).to(at::kDouble) / page.data.at("levels").get<double>();
  const auto error = (page.weights(number, place) - want.to(at::kDouble)).abs();
  CHECK(error.le(step * (0.5 + 1e-9)).all().item<bool>());
  CHECK(at::tensor(page.row_maxima(number, place)).equal(std::get<0>(want.max(1))));
  if (view.logsumexp.defined()) {
    CHECK(at::tensor(page.logsumexp(number, place)).equal(view.logsumexp[head]));
  } else {
    CHECK(page.logsumexp(number, place).empty());
  }
}

}  // namespace attentive::test
