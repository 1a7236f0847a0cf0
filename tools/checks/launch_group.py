"""Starts the processes of a group by the environment variables that torchrun sets, without torchrun."""

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
