#pragma once

#include <cstdint>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

namespace apps {

// Checks of the numbers in all programs' flags. CLI11's own checks accept NaN and a negative seed, and read
// 010 as eight. A refusal names the flag, the limits and the given text: "--threads: expected a whole number
// from 0 to 1024, got 1000000". The limits are far beyond sensible values, but small enough that no sum or
// product of a few of them overflows.

inline constexpr int64_t kMostThreads = 1024;
inline constexpr int64_t kMostSteps = 1'000'000'000'000;
inline constexpr int64_t kMostTokens = 1'000'000'000;  ///< tokens of a text to write
inline constexpr int64_t kMostRows = 1 << 20;          ///< rows of a batch
inline constexpr int64_t kMostLayers = 1024;
inline constexpr int64_t kMostHeads = 1024;
inline constexpr int64_t kMostWidth = 1 << 16;
inline constexpr int64_t kMostContext = 1 << 20;
inline constexpr double kHighestRate = 1000;

/// A whole number in decimal digits; both limits are included.
CLI::Validator whole_number(int64_t least, int64_t most);

/// Which limits of a range are included.
enum class Ends { Both, WithoutLeast, WithoutMost };
/// A finite number.
CLI::Validator number(double least, double most, Ends ends = Ends::Both);

/// A seed: 0 to 2^64 - 1.
CLI::Validator seed_number();

/// true or false, also as 1 or 0, yes or no, on or off.
CLI::Validator true_or_false();

/// Adds --threads; 0, the default, does not change the number of threads.
CLI::Option* add_threads(CLI::App& app, int& threads);

/// Adds --device: auto, cpu or cuda.
CLI::Option* add_device(CLI::App& app, std::string& device, const std::string& description = {});

}  // namespace apps
