"""Cutting a grown global model back to one client's own units (FedMA with communication)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from modelfuse.core.units import local_part
from modelfuse.errors import ContentError, FileError, OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.spec.axes import PermutationSpec
from modelfuse.types import Order, Tensors

__all__ = ["Localizer", "read_orders"]


@dataclass(frozen=True, slots=True)
class Localizer:
    """A global model, and which of its units are whose.

    Args:
        model: The global model.
        spec: Its permutation spec.
        orders: For each client's key (``client_3``) and each group, (n_k,) the global unit of each local one.
    """

    model: Checkpoint
    spec: PermutationSpec
    orders: Mapping[str, Mapping[str, Order]]

    def of(self, client: int) -> Tensors:
        """Return the model of a client's own widths, in its own order.

        Args:
            client: Its number in the orders.

        Raises:
            OptionError: The orders do not know it.
        """
        key = f"client_{client}"
        if key not in self.orders:
            known = ", ".join(name.removeprefix("client_") for name in self.orders)
            raise OptionError("--client", f"the orders do not know client {client}", f"They know {known}.")
        return local_part(self.model.read_all(), self.spec, self.orders[key])


def read_orders(file: Checkpoint, model: Checkpoint, spec: PermutationSpec) -> Localizer:
    """Return a global model with the orders of the clients that it was made from.

    Args:
        file: What merge --orders wrote.
        model: The global model that it wrote with them.
        spec: Its permutation spec.

    Raises:
        FileError: The orders are those of another model.
        ContentError: They do not fit the model.
    """
    said = file.metadata
    if said is None or said.model_id != model.model_id():
        raise FileError(
            file.label,
            f"the orders of another model than {model.label}",
            "Give the file that the same merge wrote with --orders.",
        )
    widths = spec.widths(model.shapes(), model.label)
    orders: dict[str, dict[str, Order]] = {key: {} for key in said.details.get("clients", {})}
    for name in file.layout:
        group, _, key = name.rpartition(".")
        if key not in orders or group not in widths:
            raise ContentError(file.label, f"{name} is no order of {model.label}", "Merge again with --orders.")
        orders[key][group] = _checked(file.read(name).astype(np.intp), widths[group], f"{file.label}: {name}")
    return Localizer(model, spec, orders)


def _checked(order: Order, width: int, where: str) -> Order:
    units = np.unique(order)
    if order.ndim != 1 or not len(order) or len(units) != len(order) or units[0] < 0 or units[-1] >= width:
        raise ContentError(where, f"it does not name units among {width}, each once", "Merge again with --orders.")
    return order
