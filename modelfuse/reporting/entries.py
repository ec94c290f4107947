"""Reading JSON objects with messages that name the field at fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from modelfuse.errors import ContentError
from modelfuse.reporting.quantities import QUANTITIES

__all__ = ["figure", "figures", "optional", "take", "texts"]

T = TypeVar("T")

NAMES: Mapping[type, str] = {dict: "object", list: "list", str: "text"}


def take(entry: Any, key: str, kind: type[T], where: str) -> T:
    """Return a field that has to be there.

    Args:
        entry: The JSON object.
        key: The field.
        kind: dict, list or str.
        where: The place of the object, for messages.

    Raises:
        ContentError: The field is absent or of another type.
    """
    value = entry.get(key) if isinstance(entry, Mapping) else None
    if isinstance(value, kind):
        return value
    what = f"has no {key!r}" if value is None else f"{key!r} is {value!r}, which is no {NAMES[kind]}"
    raise ContentError(where, what, "Write the file again with modelfuse eval or modelfuse merge --report.")


def optional(entry: Mapping[str, Any], key: str, kind: type[T], where: str) -> T:
    """Return a field, or an empty one where it is absent or null; otherwise as :func:`take`."""
    return kind() if entry.get(key) is None else take(entry, key, kind, where)


def figure(value: Any, quantity: str, where: str) -> float:
    """Return a measured figure.

    Args:
        value: The JSON value.
        quantity: What it measures; one that is shown in percent has to be a fraction.
        where: The place of the value, for messages.

    Raises:
        ContentError: It is no number, or a fraction outside 0 to 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ContentError(where, f"{quantity!r} is {value!r}, which is no number", "Write the file again.")
    if QUANTITIES[quantity].percent and not 0 <= value <= 1:
        raise ContentError(where, f"{quantity!r} is {value:g}, outside 0 to 1", "Store fractions, not percent.")
    return float(value)


def figures(entry: Any, names: Mapping[str, str], where: str) -> dict[str, float]:
    """Return those figures of an object that are there, by quantity.

    Args:
        entry: The JSON object.
        names: For each field, the quantity that it measures.
        where: The place of the object, for messages.

    Raises:
        ContentError: As :func:`figure`, or the entry is no object.
    """
    if not isinstance(entry, Mapping):
        raise ContentError(where, f"{entry!r} is no object", "Write the file again.")
    present = ((quantity, entry.get(key)) for key, quantity in names.items())
    return {quantity: figure(value, quantity, where) for quantity, value in present if value is not None}


def texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as text, those that were not given left out; ``local-epochs`` becomes ``local_epochs``."""
    return {key.strip().replace("-", "_"): _text(value) for key, value in options.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
