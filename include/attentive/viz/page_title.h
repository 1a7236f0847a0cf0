#pragma once

#include <string>
#include <string_view>

namespace attentive {

/// The heading that a page has by default: the model's name and the text's first words, "gpt2: To be or not
/// to be". Either may be empty; "Attention" if both are. Runs of white space become one space, and what is
/// longer than 48 characters is cut between words and ends in "…"; a word that is longer is cut itself.
///
///   attentive::write_html("page.html", views, {.title = attentive::page_title("gpt2", text)});
std::string page_title(std::string_view model, std::string_view text);

}  // namespace attentive
