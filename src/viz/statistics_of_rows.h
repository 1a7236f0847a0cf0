#pragma once

#include <attentive/viz/head_statistics.h>

#include "viz/head_rows.h"

namespace attentive::viz {

/// What `head_statistics` returns, of a head that was checked.
HeadStatistics statistics_of(const HeadRows& rows, int64_t key_origin);

}  // namespace attentive::viz
