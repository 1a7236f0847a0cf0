#include "support/covering_array.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

namespace attentive::test {
namespace {

// Some of the factors, and which combinations of their levels have met.
struct LevelsMeeting {
  std::vector<size_t> factors;
  std::vector<bool> met;

  size_t place(const std::vector<size_t>& row, const std::vector<size_t>& levels) const {
    size_t result = 0;
    for (const size_t factor : factors) result = result * levels[factor] + row[factor];
    return result;
  }
};

std::vector<LevelsMeeting> meetings_of(const std::vector<size_t>& levels, size_t strength) {
  std::vector<bool> chosen(levels.size());
  std::fill_n(chosen.begin(), strength, true);
  std::vector<LevelsMeeting> all;
  do {
    LevelsMeeting meeting;
    size_t combinations = 1;
    for (size_t factor = 0; factor < levels.size(); ++factor) {
      if (!chosen[factor]) continue;
      meeting.factors.push_back(factor);
      combinations *= levels[factor];
    }
    meeting.met.resize(combinations);
    all.push_back(meeting);
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return all;
}

}  // namespace

std::vector<std::vector<size_t>> covering_array(const std::vector<size_t>& levels, size_t strength) {
  auto meetings = meetings_of(levels, std::min(strength, levels.size()));
  const size_t combinations = std::accumulate(levels.begin(), levels.end(), size_t{1}, std::multiplies<>());
  std::vector<std::vector<size_t>> rows;
  // Greedy: first the rows in which every meeting is new, then those with one less. A row that has too few
  // new ones never has more later, so one pass for each number is enough.
  for (size_t wanted = meetings.size(); wanted > 0; --wanted) {
    for (size_t n = 0; n < combinations; ++n) {
      std::vector<size_t> row(levels.size());
      for (size_t factor = levels.size(), rest = n; factor-- > 0; rest /= levels[factor])
        row[factor] = rest % levels[factor];
      const auto fresh = std::count_if(meetings.begin(), meetings.end(), [&](const LevelsMeeting& meeting) {
        return !meeting.met[meeting.place(row, levels)];
      });
      if (static_cast<size_t>(fresh) < wanted) continue;
      for (auto& meeting : meetings) meeting.met[meeting.place(row, levels)] = true;
      rows.push_back(row);
    }
  }
  return rows;
}

bool limited_instructions() {
  return std::getenv("ATEN_CPU_CAPABILITY") || std::getenv("ATTENTIVE_TEST_KERNELS");
}

std::vector<std::vector<size_t>> rows_for_kernels(const std::vector<size_t>& levels) {
  return covering_array(levels, limited_instructions() ? 2 : 3);
}

}  // namespace attentive::test
