#include <c10/util/Exception.h>

#include <attentive/viz/head_statistics.h>

#include "viz/checked_view.h"
#include "viz/statistics_of_rows.h"

namespace attentive {

HeadStatistics head_statistics(const AttentionView& view, int64_t place) {
  viz::check_view("head_statistics", view);
  TORCH_CHECK_VALUE(place >= 0 && place < std::ssize(view.heads), "head_statistics: expected a place in [0, ",
                    view.heads.size(), "), got ", place);
  return viz::statistics_of(viz::HeadMemory(view, place).rows, view.key_origin);
}

}  // namespace attentive
