#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace attentive {

/// Thrown by a call of a Group if another process is missing. `what()` is one line that names the process and
/// the reason, such as "Group::barrier: rank 2 (host node7, process 4711) is gone or stopped: it has not
/// answered for 500 ms". The group is unusable from then on: every later call throws the same error. End the
/// program with a non-zero status, so that torchrun can restart all processes.
class PeerError : public c10::Error {
 public:
  PeerError(const std::string& line, int64_t rank) : c10::Error(line), rank_(rank) {}
  /// The process that is missing; -1 if it is not known which.
  int64_t rank() const { return rank_; }

 private:
  int64_t rank_;
};

/// Tells the other processes why this one ends. Call it in the `catch` of main().
///
///   int main() {
///     try {
///       train(attentive::Group::join());
///     } catch (const std::exception& error) {
///       attentive::report_failure(error);
///       std::fprintf(stderr, "%s\n", error.what());
///       return 1;
///     }
///   }
///
/// The other processes of the group, whose calls now fail, quote the first line of the message in their
/// PeerError. If torchrun asks for a report (TORCHELASTIC_ERROR_FILE), the message is written to that file,
/// and torchrun shows it. Anything that is impossible is skipped; this function never throws. It takes at
/// most about 1 s.
void report_failure(const std::exception& error) noexcept;

}  // namespace attentive
