"""Merge methods: one file a method, found by name. Adding a method is a file and a line here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from modelfuse.errors import OptionError

if TYPE_CHECKING:
    from modelfuse.methods.contract import Method

__all__ = ["METHODS", "load"]

METHODS = {
    "fedavg": "modelfuse.methods.fedavg:FedAvg",
    "fisher": "modelfuse.methods.fisher:FisherMerge",
    "regmean": "modelfuse.methods.regmean:RegMean",
    "fedfiot": "modelfuse.methods.fedfiot:FedFiOT",
    "pfnm": "modelfuse.methods.pfnm:PFNM",
    "fedma": "modelfuse.methods.fedma:FedMA",
    "fedproto": "modelfuse.methods.fedproto:FedProto",
}
"""Every method by its name on the command line: where its class is. Nothing is imported before it is asked for."""


def load(name: str) -> type[Method]:
    """Return the class of a method.

    Raises:
        OptionError: No method has this name.
    """
    if name not in METHODS:
        raise OptionError("--method", f"no method is called {name!r}", f"There are {', '.join(METHODS)}.")
    module, _, attribute = METHODS[name].partition(":")
    method: type[Method] = getattr(importlib.import_module(module), attribute)
    return method
