#include "train/token_file_header.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/refusal.h"
#include "train/sha256.h"

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace attentive {
namespace {

constexpr std::string_view kMagic = "attntok\n";
constexpr uint64_t kTokenFileFormat = 1;
constexpr size_t kFormatAt = 8, kDigestAt = 16, kTrainingAt = 80, kValidationAt = 88, kJsonAt = 96;
constexpr uint64_t kMostTokens = std::numeric_limits<int64_t>::max() / 16;

void put(std::string& header, size_t at, uint64_t number) {
  std::memcpy(header.data() + at, &number, sizeof(number));
}

uint64_t number_at(std::string_view header, size_t at) {
  uint64_t number = 0;
  std::memcpy(&number, header.data() + at, sizeof(number));
  return number;
}

std::string digest_of(std::string_view header) {
  Sha256 sum;
  sum.add(header.substr(0, kDigestAt));
  sum.add(header.substr(kTrainingAt));
  return sum.digest();
}

int64_t tokens_at(std::string_view header, size_t at) {
  const auto count = number_at(header, at);
  if (count > kMostTokens) refuse("damaged: it cannot hold {} tokens", count);
  return static_cast<int64_t>(count);
}

}  // namespace

std::string make_token_file_header(const TokenFileInfo& info) {
  const nlohmann::json json{{"text_bytes", info.text_bytes},
                            {"text_sha256", info.text_sha256},
                            {"tokenizer_sha256", info.tokenizer_sha256},
                            {"vocab_size", info.vocab_size},
                            {"training_share", info.training_share},
                            {"piece_bytes", info.piece_bytes}};
  std::string header(kTokenFileHeader, ' ');
  header.replace(0, kMagic.size(), kMagic);
  put(header, kFormatAt, kTokenFileFormat);
  put(header, kTrainingAt, static_cast<uint64_t>(info.training));
  put(header, kValidationAt, static_cast<uint64_t>(info.validation));
  const auto text = json.dump();
  header.replace(kJsonAt, text.size(), text);
  const auto digest = digest_of(header);
  return header.replace(kDigestAt, digest.size(), digest);
}

TokenFileInfo parse_token_file_header(std::string_view header) {
  if (!header.starts_with(kMagic)) refuse("expected a token file, got another file");
  if (header.size() < kTokenFileHeader) {
    refuse("expected a header of {} bytes, got {}", kTokenFileHeader, header.size());
  }
  if (const auto format = number_at(header, kFormatAt); format != kTokenFileFormat) {
    refuse("expected format {}, got {}", kTokenFileFormat, format);
  }
  if (header.substr(kDigestAt, kTrainingAt - kDigestAt) != digest_of(header)) {
    refuse("damaged: the SHA-256 of its header differs");
  }
  TokenFileInfo info{.training = tokens_at(header, kTrainingAt),
                     .validation = tokens_at(header, kValidationAt)};
  try {
    const auto json = nlohmann::json::parse(header.substr(kJsonAt));
    json.at("text_bytes").get_to(info.text_bytes);
    json.at("text_sha256").get_to(info.text_sha256);
    json.at("tokenizer_sha256").get_to(info.tokenizer_sha256);
    json.at("vocab_size").get_to(info.vocab_size);
    json.at("training_share").get_to(info.training_share);
    json.at("piece_bytes").get_to(info.piece_bytes);
  } catch (const nlohmann::json::exception& error) {
    refuse("damaged: {}", error.what());
  }
  return info;
}

}  // namespace attentive
