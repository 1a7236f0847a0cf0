"""The properties of the machine that every measurement must record; used by the programs in this folder."""

import platform


def processor():
    """The processor's name in /proc/cpuinfo; ARM gives numbers only."""
    entries = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                entries.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    if entries.get("model name"):
        return entries["model name"]
    if "CPU implementer" in entries:
        return f"{platform.machine()}, CPU implementer {entries['CPU implementer']}, part {entries.get('CPU part')}"
    return platform.machine()


def describe(torch, threads):
    """The processor, the vectors and the version of PyTorch, and the threads, as text by name."""
    return {"cpu": processor(), "vectors": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__,
            "python": platform.python_version(), "threads": str(threads)}
