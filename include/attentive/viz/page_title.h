#pragma once

#include <string>
#include <string_view>

namespace attentive {

/// The default heading of a page: the model's name and the first words of the text, "gpt2: To be or not to
/// be". Either may be empty; "Attention" if both are. Runs of white space become one space. A heading of more
/// than 48 characters is cut between words and ends in "…"; a single longer word is itself cut.
///
///   attentive::write_html("page.html", views, {.title = attentive::page_title("gpt2", text)});
std::string page_title(std::string_view model, std::string_view text);

}  // namespace attentive
