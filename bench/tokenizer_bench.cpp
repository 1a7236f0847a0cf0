// Encodes a text with a tokenizer as bench/tokenizer_peer.py asks, and tells how long that took.
//
//   bench/tokenizer_peer.py --against build/release/bench/tokenizer_bench
//
// The parts of TEXT end with a NUL each. Reads lines from standard input: "time" is answered with the
// milliseconds of processor time that encoding all parts takes on one thread; "ids FILE" writes the number of
// ids of each part and the ids, as 32-bit integers. With --load in place of TEXT, it only prints the
// milliseconds of loading the tokenizer, the kilobytes that it added to the resident memory, and the most
// that it added while loading.

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

#include <attentive/tokenizers/pretrained_tokenizer.h>

namespace {

using attentive::PretrainedTokenizer;

// Processor time, which other programs disturb less than the time that passes.
double milliseconds_since(std::clock_t begin) {
  return 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// A line of /proc/self/status, such as "VmRSS", in kilobytes.
long status_kilobytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stol(line.substr(name.size() + 1));
  }
  return 0;
}

void load_only(const std::string& path) {
  const auto before = status_kilobytes("VmRSS");
  const auto begin = std::clock();
  const auto tokenizer = PretrainedTokenizer::load(path);
  const auto took = milliseconds_since(begin);
  std::printf("%.1f %ld %ld\n", took, status_kilobytes("VmRSS") - before, status_kilobytes("VmHWM") - before);
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find('\0'); end != text.npos; end = text.find('\0')) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return parts;
}

void write_ids(const PretrainedTokenizer& tokenizer, const std::vector<std::string_view>& parts,
               const std::string& path) {
  std::vector<int32_t> numbers;
  for (const auto part : parts) {
    const auto ids = tokenizer.encode(part);
    numbers.push_back(static_cast<int32_t>(ids.size()));
    numbers.insert(numbers.end(), ids.begin(), ids.end());
  }
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(int32_t)));
}

void answer_commands(const PretrainedTokenizer& tokenizer, const std::vector<std::string_view>& parts) {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.starts_with("ids ")) {
      write_ids(tokenizer, parts, line.substr(4));
      std::printf("written\n");
    } else {
      size_t count = 0;
      const auto begin = std::clock();
      for (const auto part : parts) count += tokenizer.encode(part).size();
      std::printf("%.3f %zu\n", milliseconds_since(begin), count);
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: tokenizer_bench TOKENIZER TEXT, or tokenizer_bench TOKENIZER --load\n";
    return 2;
  }
  const std::string tokenizer = argv[1], text = argv[2];
  try {
    if (text == "--load") {
      load_only(tokenizer);
    } else {
      std::ifstream file(text, std::ios::binary);
      const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      answer_commands(PretrainedTokenizer::load(tokenizer), parts_of(all));
    }
  } catch (const c10::Error& error) {
    std::cerr << "tokenizer_bench: " << error.what_without_backtrace() << "\n";
    return 1;
  }
  return 0;
}
