#pragma once

#include <cstdint>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

namespace apps {

// What numbers of all programs' flags may be: CLI11's own checks let NaN pass, a negative seed, and 010 as eight. A
// refusal names the flag, the limits and what came: "--threads: expected a whole number from 0 to 1024, got 1000000".
// Limits are far beyond what makes sense, but small enough that no sum or product of a few of them overflows.

inline constexpr int64_t kMostThreads = 1024;
inline constexpr int64_t kMostSteps = 1'000'000'000'000;
inline constexpr int64_t kMostTokens = 1'000'000'000;  ///< of a text to write
inline constexpr int64_t kMostRows = 1 << 20;          ///< of a batch
inline constexpr int64_t kMostLayers = 1024;
inline constexpr int64_t kMostHeads = 1024;
inline constexpr int64_t kMostWidth = 1 << 16;
inline constexpr int64_t kMostContext = 1 << 20;
inline constexpr double kHighestRate = 1000;

/// A whole number in decimal digits; both ends included.
CLI::Validator whole_number(int64_t least, int64_t most);

/// Which ends of a range belong to it.
enum class Ends { Both, WithoutLeast, WithoutMost };
/// A number, finite.
CLI::Validator number(double least, double most, Ends ends = Ends::Both);

/// A seed: 0 to 2^64 - 1.
CLI::Validator seed_number();

/// true or false, also as 1 or 0, yes or no, on or off.
CLI::Validator true_or_false();

/// --threads; 0, the default, leaves their number alone.
CLI::Option* add_threads(CLI::App& app, int& threads);

/// --device: auto, cpu or cuda.
CLI::Option* add_device(CLI::App& app, std::string& device, const std::string& description = {});

}  // namespace apps
