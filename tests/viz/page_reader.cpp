#include "viz/page_reader.h"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <zlib.h>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

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

std::vector<uint8_t> Page::bytes(size_t view, size_t place) const {
  return inflated(
      decoded_base64(element(fmt::format("w-{}-{}", view, head(view, place).at("head").get<int>()))));
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
  const auto largest = numbers_of<float>(head(view, place).at("row_max"));
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

}  // namespace attentive::test
