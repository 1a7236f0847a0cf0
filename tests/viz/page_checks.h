#pragma once

// Writes pages and compares them with their views.

#include <vector>

#include <attentive/viz/write_page.h>

#include "viz/page_reader.h"

namespace attentive::test {

// Writes a page and reads it back.
Page page_of(const std::vector<AttentionView>& views, const HtmlOptions& options = {});

// Checks that every weight is within half a step, that hidden keys are hidden, and that the other numbers are
// exact.
void check_head(const Page& page, const AttentionView& view, size_t number, size_t place);

}  // namespace attentive::test
