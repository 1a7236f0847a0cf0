#include <chrono>
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include <attentive/distributed/peer_error.h>

#include "distributed/connection.h"

namespace attentive {
namespace {

// Writes the file from which torchrun shows why a process has failed.
void write_error_file(const std::string& message) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const nlohmann::json content{{"message", message},
                               {"timestamp", std::chrono::duration_cast<std::chrono::seconds>(now).count()}};
  std::ofstream(path) << content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

}  // namespace

void report_failure(const std::exception& error) noexcept {
  try {
    const auto message = distributed::first_line(error);
    write_error_file(message);
    if (const auto connection = distributed::current_connection()) connection->fail(message);
  } catch (const std::exception&) {  // the program goes on to print the failure itself
  }
}

}  // namespace attentive
