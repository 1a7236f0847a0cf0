#pragma once

#include <string_view>

namespace attentive::viz {

/// The texts of src/viz/page: the template with its three markers, all style sheets, all scripts.
extern const char* const kPageTemplate;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace attentive::viz
