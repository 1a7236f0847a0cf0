"""Starts the processes of a group by the environment variables that torchrun sets, without torchrun; reads the log of a run."""

import csv
import os
import socket

GROUP = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# An environment without a group, whatever has started this program.
ALONE = {name: value for name, value in os.environ.items() if name not in GROUP and not name.startswith("TORCHELASTIC")}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environments(size):
    """The environment of each rank of a new group on this machine."""
    port = free_port()
    return [{**ALONE, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
             "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for rank in range(size)]


def log_of(run, times=False):
    """The rows of a run's log, without its times unless they are wanted."""
    with open(run / "log.csv", newline="", encoding="utf-8") as file:
        return [{name: value for name, value in row.items() if times or name != "tokens_per_second"} for row in csv.DictReader(file)]
