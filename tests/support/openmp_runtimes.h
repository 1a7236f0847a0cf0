#pragma once

#include <map>
#include <set>
#include <string>

namespace attentive::test {

/// The files of OpenMP runtimes (libgomp, libomp and libiomp5, with any ending) that this process has loaded.
std::set<std::string> loaded_openmp_runtimes();

/// The OpenMP functions that a loaded library calls, each with the file that provides it. The library is the
/// first one whose file name begins with `library`; "" is the program itself.
std::map<std::string, std::string> openmp_calls_of(const std::string& library);

}  // namespace attentive::test
