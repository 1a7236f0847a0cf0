#!/usr/bin/env python3
"""A training step of a class that attentive-port wrote, beside the Python class that it was written from.

    bench/port_peer.py --prefix ~/attentive

takes both classes of bench/port_block.py to C++, builds them against the installed package, compares their
losses without dropout, and then takes turns: steps of AdamW with dropout in C++, with the fastest random numbers, and
the same in eager PyTorch. Needs the wheel (`attentive-port`) and a compiler.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import port_block
from machine import describe

PROGRAM = """
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ported.h"

// Answers each line "<dropout> <steps>" with the median seconds of a step and the loss of the last one.
int main(int, char** argv) {
  const int64_t batch = std::stoll(argv[1]), length = std::stoll(argv[2]), width = std::stoll(argv[3]);
  torch::set_num_threads(std::stoi(argv[5]));
  const auto dtype = std::string(argv[6]) == "bfloat16" ? torch::kBFloat16 : torch::kFloat;
  double dropout = -1, asked = 0;
  torch::Tensor x;
  torch::nn::AnyModule module;
  std::unique_ptr<torch::optim::AdamW> optimizer;
  for (int steps = 0; std::cin >> asked >> steps;) {
    if (asked != dropout) {
      dropout = asked;
      torch::manual_seed(1);
      x = torch::randn({batch, length, width}).to(dtype);
      module = torch::nn::AnyModule(ported::@(width, std::stoll(argv[4]), dropout));
      module.ptr()->to(dtype);
      optimizer = std::make_unique<torch::optim::AdamW>(module.ptr()->parameters(), 1e-4);
    }
    std::vector<double> seconds;
    double last = 0;
    for (int i = 0; i < steps; ++i) {
      const auto start = std::chrono::steady_clock::now();
      optimizer->zero_grad();
      const auto loss = module.forward(x).to(torch::kFloat).square().mean();
      loss.backward();
      optimizer->step();
      last = loss.item<double>();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(seconds.begin(), seconds.end());
    std::cout << seconds[seconds.size() / 2] << ' ' << last << std::endl;
  }
}
"""

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(port_peer CXX)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
add_subdirectory(ported)
add_executable(step step.cpp)
target_link_libraries(step PRIVATE ported)
"""


class Peer:
    """The Python class, answering as the C++ program does."""

    def __init__(self, name, sizes):
        self.make, self.sizes, self.dropout = getattr(port_block, name), sizes, None

    def steps(self, dropout, count):
        if dropout != self.dropout:
            self.dropout = dropout
            torch.manual_seed(1)
            dtype = getattr(torch, self.sizes.dtype)
            self.x = torch.randn(self.sizes.batch, self.sizes.length, self.sizes.width).to(dtype)
            self.module = self.make(self.sizes.width, self.sizes.heads, dropout).to(dtype)
            self.optimizer = torch.optim.AdamW(self.module.parameters(), 1e-4)
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            self.optimizer.zero_grad()
            loss = self.module(self.x).float().square().mean()
            loss.backward()
            self.optimizer.step()
            last = loss.item()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds), last


def built(name, folder, prefix):
    """The program of a class: written by attentive-port and compiled."""
    subprocess.run(
        [sys.executable, "-m", "attentive._port.cli", port_block.__file__, name, "--args",
         "width=64, heads=4, dropout=0.1", "--inputs", "x=randn(B, T, 64)", "--out", folder / "ported"],
        check=True, stdout=subprocess.DEVNULL)
    (folder / "step.cpp").write_text(PROGRAM.replace("@", name), encoding="utf-8")
    (folder / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
    build = folder / "build"
    subprocess.run(["cmake", "-S", folder, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "--target", "step"], check=True, stdout=subprocess.DEVNULL)
    return build / "step"


def compare(name, program, sizes, turns):
    peer = Peer(name, sizes)
    arguments = [sizes.batch, sizes.length, sizes.width, sizes.heads, sizes.threads, sizes.dtype]
    with subprocess.Popen([program, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:

        def ours(dropout, count):
            print(dropout, count, file=process.stdin, flush=True)
            return tuple(map(float, process.stdout.readline().split()))

        losses = ours(0.0, 2)[1], peer.steps(0.0, 2)[1]
        if abs(losses[0] / losses[1] - 1) > (1e-4 if sizes.dtype == "float32" else 1e-2):
            raise SystemExit(f"{name}: loss {losses[0]} against {losses[1]}")
        ours(0.1, 1), peer.steps(0.1, 1)
        pairs = [(ours(0.1, 1)[0], peer.steps(0.1, 1)[0]) for _ in range(turns)]
        process.stdin.close()
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(b / a for a, b in pairs)
    print(f"{name}: a step of C++ {mine:.2f} s, of eager PyTorch {theirs:.2f} s, {statistics.median(ratios):.2f} x as fast "
          f"({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", required=True, help="where attentive is installed")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    for name, value in dict(batch=8, length=1024, width=768, heads=12, threads=2).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(", ".join(f"{name} {value}" for name, value in describe(torch, args.threads).items()), flush=True)
    for name in ("CausalHeads", "Block"):
        with tempfile.TemporaryDirectory() as folder:
            compare(name, built(name, Path(folder), args.prefix), args, args.turns)


if __name__ == "__main__":
    main()
