// A user's program that trains in two processes. Started alone, it starts both itself, as torchrun would.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/linear.h>

#include <attentive/distributed/data_parallel.h>
#include <attentive/distributed/group.h>
#include <attentive/train/adamw.h>

namespace {

int train() {
  const auto group = attentive::Group::join();
  at::manual_seed(1 + group->rank());
  torch::nn::Linear model(4, 3);
  attentive::DataParallel parallel(*model, group);
  attentive::AdamW optimizer(*model);
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    parallel.backward(model->forward(at::rand({5, 4})).square().mean());
    optimizer.step();
  }
  const auto weights = group->gather(model->weight.detach());
  if (group->size() != 2 || !at::equal(weights[0], weights[1])) return 1;
  std::printf("rank %d of 2: equal weights after 10 steps\n", static_cast<int>(group->rank()));
  return 0;
}

pid_t start(const char* program, int rank) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(20000 + ::getppid() % 10000).c_str(), 1);
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  ::execl(program, program, static_cast<char*>(nullptr));
  std::_Exit(127);
}

}  // namespace

int main(int, char** argv) {
  if (std::getenv("RANK") == nullptr) {
    const pid_t children[] = {start(argv[0], 0), start(argv[0], 1)};
    int failures = 0, status = 0;
    for (const pid_t child : children) {
      failures += ::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    return failures;
  }
  try {
    return train();
  } catch (const std::exception& error) {
    attentive::report_failure(error);
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
