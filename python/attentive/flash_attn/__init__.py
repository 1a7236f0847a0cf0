"""flash-attn 2 on CPUs: its functions by their names, arguments, layouts and defaults, with gradients.

    from attentive.flash_attn import flash_attn_func

``install`` makes them importable as ``flash_attn``, for programs that import it without asking whether it is there:

    import attentive.flash_attn

    attentive.flash_attn.install()  # before the import of the program that says `from flash_attn import flash_attn_func`

A model of ``transformers`` asks whether the package is there, and answers no as before: it takes
``attn_implementation="attentive"`` (``attentive.transformers``).
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from attentive.flash_attn import bert_padding, flash_attn_interface
from attentive.flash_attn.flash_attn_interface import *  # noqa: F403
from attentive.flash_attn.flash_attn_interface import __all__ as _functions

__version__ = "2.8.3"
"""The release of flash-attn whose functions these are."""

__all__ = [*_functions, "install", "uninstall"]

_installed: dict[str, ModuleType] = {}


def install() -> None:
    """Makes ``flash_attn``, ``flash_attn.flash_attn_interface`` and ``flash_attn.bert_padding`` importable in this process.

    Their ``__version__`` is that of the flash-attn whose functions these are. Other modules, as ``flash_attn.layers``, are missing.
    A second call changes nothing. Raises ImportError if there is a flash_attn already, installed or imported.

        attentive.flash_attn.install()
        from flash_attn import flash_attn_func
    """
    if _installed:
        return
    if "flash_attn" in sys.modules or importlib.util.find_spec("flash_attn") is not None:
        raise ImportError("attentive.flash_attn.install: expected no flash_attn to be there, got one that is installed or imported")
    sources = {"": flash_attn_interface, ".flash_attn_interface": flash_attn_interface, ".bert_padding": bert_padding}
    for name, source in sources.items():
        module = ModuleType(f"flash_attn{name}", source.__doc__)
        module.__spec__ = ModuleSpec(module.__name__, None, is_package=not name)
        module.__version__ = __version__
        module.__dict__.update({one: getattr(source, one) for one in source.__all__})
        _installed[module.__name__] = module
        setattr(_installed["flash_attn"], name[1:] or "__path__", module if name else [])  # a package without files
    sys.modules.update(_installed)


def uninstall() -> None:
    """Undoes ``install``: a later import of ``flash_attn`` fails as before. What was imported stays with its importers."""
    for name in _installed:
        sys.modules.pop(name, None)
    _installed.clear()
