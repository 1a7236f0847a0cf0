#include <algorithm>

#include <attentive/viz/page_title.h>

#include "base/strings.h"

namespace attentive {
namespace {

constexpr size_t kMostOfTitle = 48;  // characters

// Joins the words of a text with single spaces.
std::string joined_words(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  std::string words;
  for (auto begin = text.find_first_not_of(kSpaces); begin != std::string_view::npos;
       begin = text.find_first_not_of(kSpaces, begin)) {
    const auto end = std::min(text.find_first_of(kSpaces, begin), text.size());
    if (!words.empty()) words += ' ';
    words += text.substr(begin, end - begin);
    begin = end;
  }
  return words;
}

std::string first_words(std::string_view text) {
  const auto words = joined_words(text.substr(0, 16 * kMostOfTitle));
  auto cut = shortened(words, kMostOfTitle);
  if (cut == words) return words;
  const auto space = cut.rfind(' ');
  return space == std::string::npos ? cut : cut.substr(0, space) + " …";
}

}  // namespace

std::string page_title(std::string_view model, std::string_view text) {
  const auto words = first_words(text);
  if (model.empty()) return words.empty() ? "Attention" : words;
  return words.empty() ? std::string(model) : std::string(model) + ": " + words;
}

}  // namespace attentive
