"""Metadata of the wheel: it runs with the minor version of PyTorch with which it is built."""

from importlib.metadata import version


def dynamic_metadata(field, settings, project=None):
    if field != "dependencies" or settings:
        raise RuntimeError("torch_requirement knows the field dependencies, without settings")
    major, minor = version("torch").split(".")[:2]
    return [f"torch=={major}.{minor}.*"]
