#pragma once

#include <string>

namespace attentive::test {

/// The checkout from which tests read data: that of the build, or the one named by the environment variable
/// ATTENTIVE_SOURCE_DIR if the programs run on another machine.
std::string source_folder();

}  // namespace attentive::test
