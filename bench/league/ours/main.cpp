// This package as a contender of the league: bench/league/run.py.
//
// Reads one JSON object per line from standard input and answers each with one. An exception becomes an
// answer with the field "refused".

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include "common/run_main.h"
#include "support/machine.h"
#include "turns.h"

namespace {

using namespace league;

Json about() {
  const auto machine = bench::describe_machine();
  return {{"cpu", machine.cpu},           {"isa", machine.isa},           {"libtorch", machine.libtorch},
          {"compiler", machine.compiler}, {"attentive", machine.package}, {"threads", at::get_num_threads()}};
}

Json answer(const Commands& commands, const std::string& line) {
  try {
    const auto command = Json::parse(line);
    return commands.at(command.at("do").get<std::string>())(command);
  } catch (const std::exception& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Answers the lines of bench/league/run.py.", "league_ours");
  int threads = 0;
  app.add_option("THREADS", threads)->check(CLI::Range(1, 1024))->required();
  return apps::run_main(app, argc, argv, [&] {
    at::set_num_threads(threads);
    auto commands = attention_commands();
    commands.merge(model_commands());
    commands["about"] = [](const Json&) { return about(); };
    std::string line;
    while (std::getline(std::cin, line)) {
      std::printf("%s\n",
                  answer(commands, line).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
      apps::flush_output();
    }
    return 0;
  });
}
