#pragma once

#include <string>

namespace attentive::test {

/// The checkout that the tests read data from: that of the build, or what the environment variable
/// ATTENTIVE_SOURCE_DIR names where the programs run on another machine.
std::string source_folder();

}  // namespace attentive::test
