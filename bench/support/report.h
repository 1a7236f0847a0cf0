#pragma once

#include <string>

#include "support/machine.h"
#include "support/runner.h"

namespace bench {

/// Prints machine, threads and device. The limits are printed as they are measured.
void print_head(const Machine& machine, const Settings& settings);
void print_limit(const std::string& limit);
void print_columns(const std::string& suite);
void print_row(const Row& row);
void print_growth(const std::vector<GrowthPoint>& points);

/// Writes all measurements, one a line, below the machine and its limits.
void write_csv(const std::string& path, const Machine& machine, const Runner& runner);

/// Draws time and memory against T, one curve per series.
void write_plot(const std::string& path, const Machine& machine, const Runner& runner);

}  // namespace bench
