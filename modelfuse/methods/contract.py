"""What a method is: options in a frozen dataclass, clients' files in, tensors, orders and a report out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol, TypeVar

from numpy.typing import NDArray

from modelfuse.errors import OptionError
from modelfuse.files.layout import TensorLayout, is_float, numpy_dtype
from modelfuse.methods.uploads import Uploads
from modelfuse.types import Kind, Order, Tensors

__all__ = ["Merged", "MergedTensor", "Method", "Once", "from_options", "one_of", "promote", "whole"]


@dataclass(frozen=True, slots=True)
class MergedTensor:
    """One tensor of the global model, made piece by piece.

    Args:
        layout: Its dtype and shape in the output file.
        chunks: Returns its entries in order, as arrays in that dtype; may be called more than once.
    """

    layout: TensorLayout
    chunks: Callable[[], Iterable[NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge makes.

    Args:
        tensors: The global model, in the order to write it.
        report: What the method has to say of the merge, as JSON data; complete once every chunk has been made.
        orders: For each group, each client's order; empty for methods without alignment.
        kind: What the output file is.
    """

    tensors: Mapping[str, MergedTensor]
    report: dict[str, Any]
    orders: Mapping[str, tuple[Order, ...]] = field(default_factory=dict)
    kind: Kind = "model"


class Method(Protocol):
    """A merge method: a frozen dataclass whose fields are its options, with the only defaults there are."""

    takes: ClassVar[Kind]
    """What a client's file is: a model, or prototypes."""
    companion: ClassVar[Kind | None]
    """What every client must send beside its model: its Fisher, its Gram matrices, or nothing."""
    needs_spec: ClassVar[bool]
    """Whether the permutation spec must be known."""
    takes_reference: ClassVar[bool]
    """Whether clients are aligned to a reference that the user may name."""
    takes_unequal_widths: ClassVar[bool]
    """Whether groups may be wider in some clients than in others."""

    def merge(self, uploads: Uploads) -> Merged:
        """Return the merge of the clients' uploads."""


M = TypeVar("M", bound=Method)


def from_options(method: type[M], name: str, given: Mapping[str, Any]) -> M:
    """Return the method with the options that the user gave.

    Args:
        method: The method's class.
        name: Its name on the command line.
        given: The options by their field names.

    Raises:
        OptionError: The method does not know an option, or an option's value is out of range.
    """
    known = {entry.name for entry in fields(method)}  # type: ignore[arg-type]
    for key in given:
        if key not in known:
            options = ", ".join(f"--{each.replace('_', '-')}" for each in sorted(known)) or "no options of its own"
            raise OptionError(
                f"--{key.replace('_', '-')}", f"method {name} does not know it", f"Leave it out; {name} has {options}."
            )
    return method(**given)


def one_of(option: str, value: str, choices: Iterable[str]) -> None:
    """Check that a named choice is one of those there are.

    Raises:
        OptionError: It is not.
    """
    allowed = tuple(choices)
    if value not in allowed:
        raise OptionError(option, f"{value!r} is not a choice", f"There are {', '.join(allowed)}.")


def promote(layouts: Sequence[TensorLayout]) -> str:
    """Return the dtype that holds every client's values: theirs where they agree, else F64 if any is, else F32."""
    dtypes = {layout.dtype for layout in layouts}
    if len(dtypes) == 1:
        return layouts[0].dtype
    if not all(map(is_float, dtypes)):
        return "I64"
    return "F64" if "F64" in dtypes else "F32"


def whole(uploads: Uploads, tensors: Tensors) -> dict[str, MergedTensor]:
    """Return tensors that are in memory as the tensors of a merge, in the clients' dtypes.

    Args:
        uploads: The clients' files.
        tensors: The global model, in float64 (integers as they are); shapes may differ from the clients'.
    """
    merged: dict[str, MergedTensor] = {}
    for name in sorted(tensors):
        dtype = promote([client.model.layout[name] for client in uploads.clients])
        cast = tensors[name].astype(numpy_dtype(dtype))
        merged[name] = MergedTensor(TensorLayout(dtype, cast.shape), Once(cast))
    return merged


@dataclass(frozen=True, slots=True)
class Once:
    """The chunks of a tensor that is in memory: one."""

    array: NDArray[Any]

    def __call__(self) -> Iterable[NDArray[Any]]:
        """Return the whole array as the only chunk."""
        return (self.array,)
