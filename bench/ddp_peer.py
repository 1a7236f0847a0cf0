#!/usr/bin/env python3
"""The program of gpt_peer.py in several processes: PyTorch's DistributedDataParallel on Gloo. tools/checks/group_check starts it.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 bench/ddp_peer.py --text tinyshakespeare.txt --preset shakespeare-large --steps 5

Every process computes a batch of its own in each step, those that `attentive-train --accumulate W` takes in W processes. Rank 0
prints the mean loss and the seconds of each step.
"""

import argparse
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gpt_peer import PRESETS, Run


class Loss(nn.Module):
    """The loss as a forward pass, which DistributedDataParallel needs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, targets):
        return self.model.loss(ids, targets)


class OwnBatches:
    """Takes this rank's batch out of every `size` batches of a sampler."""

    def __init__(self, sampler, rank, size):
        self.sampler, self.rank, self.size = sampler, rank, size

    def next(self):
        return [self.sampler.next() for _ in range(self.size)][self.rank]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, help="a text file; its first 90 %% are for training")
    parser.add_argument("--preset", default="shakespeare-small", choices=PRESETS)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    with open(args.text, encoding="utf-8", newline="") as file:
        run = Run(file.read(), args.preset, args.seed)
    run.p = {**run.p, "steps": args.steps}
    run.loss_of = DistributedDataParallel(Loss(run.model), gradient_as_bucket_view=True)
    run.sampler = OwnBatches(run.sampler, rank, size)
    torch.manual_seed(args.seed + rank)  # separate dropout for each rank
    if rank == 0:
        print("step,loss,seconds")
    for step in range(1, args.steps + 1):
        begin = time.perf_counter()
        loss = torch.tensor(run.step())
        seconds = time.perf_counter() - begin
        distributed.all_reduce(loss)
        if rank == 0:
            print(f"{step},{loss.item() / size},{seconds}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
