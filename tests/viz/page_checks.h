#pragma once

// Pages written and checked against their views.

#include <vector>

#include <attentive/viz/write_html.h>

#include "viz/page_reader.h"

namespace attentive::test {

// Writes a page and reads it back.
Page page_of(const std::vector<AttentionView>& views, const HtmlOptions& options = {});

// Every weight within half a step, hidden keys hidden, and exact numbers beside them.
void check_head(const Page& page, const AttentionView& view, size_t number, size_t place);

}  // namespace attentive::test
