"""The permutation spec: for each tensor and axis, which group's units it indexes and how. Plain data."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from modelfuse.errors import ContentError, FileError

__all__ = ["Axis", "PermutationSpec", "Place", "Role", "carry", "consume", "match", "read_spec"]

Role = Literal["match", "carry", "input"]
ROLES: tuple[Role, ...] = ("match", "carry", "input")


@dataclass(frozen=True, slots=True)
class Axis:
    """One tensor axis indexed by the units of a group.

    Position ``(s * n + unit) * block + b`` belongs to ``unit`` of the group's ``n`` units.

    Args:
        group: The group whose units the axis indexes.
        role: ``match`` (rows make the unit vectors), ``carry`` (moves along, outside the cost) or ``input`` (consumes).
        stack: Copies of the group one after another, at least 1 (4 gates in an LSTM).
        block: Entries a unit, at least 1 (h·w after the flatten behind a convolution).
    """

    group: str
    role: Role
    stack: int = 1
    block: int = 1

    def units(self, length: int) -> int | None:
        """Return the group's width on an axis of ``length`` entries, or None if the length does not divide."""
        width, rest = divmod(length, self.stack * self.block)
        return width if rest == 0 and width > 0 else None


def match(group: str, stack: int = 1, block: int = 1) -> Axis:
    """Return an axis whose slices make the group's unit vectors."""
    return Axis(group, "match", stack, block)


def carry(group: str, stack: int = 1, block: int = 1) -> Axis:
    """Return an axis that moves with the group and stays outside the matching cost."""
    return Axis(group, "carry", stack, block)


def consume(group: str, stack: int = 1, block: int = 1) -> Axis:
    """Return an axis that reads the group's units (a later layer's inputs)."""
    return Axis(group, "input", stack, block)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group meets a tensor: the tensor's name, the axis number, and the axis."""

    tensor: str
    dimension: int
    axis: Axis


@dataclass(frozen=True, slots=True)
class PermutationSpec:
    """Which units every tensor axis of a network indexes.

    Args:
        axes: For each tensor, in merge order, one entry an axis: an :class:`Axis`, or None for an axis no group moves.
        class_axis: For each tensor of the output layer, the axis that runs over the classes.
    """

    axes: Mapping[str, tuple[Axis | None, ...]]
    class_axis: Mapping[str, int] = field(default_factory=dict)

    def groups(self) -> tuple[str, ...]:
        """Return the groups in merge order: by their first match axis."""
        found: dict[str, None] = {}
        for place in self.places(role="match"):
            found.setdefault(place.axis.group)
        return tuple(found)

    def places(self, group: str | None = None, role: Role | None = None) -> Iterator[Place]:
        """Yield the places of a group (None: of all groups) in a role (None: in any), in merge order."""
        for tensor, axes in self.axes.items():
            for dimension, axis in enumerate(axes):
                if (
                    axis is None
                    or (group is not None and axis.group != group)
                    or (role is not None and axis.role != role)
                ):
                    continue
                yield Place(tensor, dimension, axis)

    def widths(self, shapes: Mapping[str, Sequence[int]], where: str) -> dict[str, int]:
        """Return each group's width as the tensors' shapes have it.

        Args:
            shapes: Shape of every tensor of one model.
            where: The file's name, for messages.

        Raises:
            ContentError: A tensor is missing or has other axes than the spec says, an axis does not divide, or two
                tensors disagree about a group's width.
        """
        found: dict[str, tuple[int, str]] = {}
        for tensor, axes in self.axes.items():
            self._check_tensor(tensor, axes, shapes, where)
        for place in self.places():
            length = shapes[place.tensor][place.dimension]
            width = place.axis.units(length)
            entry = f"{place.tensor} has {length} entries on axis {place.dimension}"
            if width is None:
                multiple = place.axis.stack * place.axis.block
                raise ContentError(
                    where,
                    f"{entry}, not a multiple of {multiple} (group {place.axis.group})",
                    "Pass the --architecture it was trained with.",
                )
            known, said_by = found.setdefault(place.axis.group, (width, place.tensor))
            if known != width:
                raise ContentError(
                    where,
                    f"{entry}, so group {place.axis.group} would have {width} units, but {said_by} gives it {known}",
                    "Pass the --architecture it was trained with.",
                )
        return {group: width for group, (width, _) in found.items()}

    def part(self, tensors: Collection[str]) -> PermutationSpec:
        """Return the spec of some of the tensors: enough to check them, not to move units that others read too."""
        axes = {tensor: row for tensor, row in self.axes.items() if tensor in tensors}
        return PermutationSpec(axes, {tensor: axis for tensor, axis in self.class_axis.items() if tensor in tensors})

    def _check_tensor(
        self, tensor: str, axes: Sequence[Axis | None], shapes: Mapping[str, Sequence[int]], where: str
    ) -> None:
        if tensor not in shapes:
            raise ContentError(where, f"tensor {tensor} is missing", "Pass the --architecture it was trained with.")
        if len(shapes[tensor]) != len(axes):
            raise ContentError(
                where,
                f"{tensor} has {len(shapes[tensor])} axes where its spec describes {len(axes)}",
                "Pass the --architecture it was trained with.",
            )

    def to_json(self) -> dict[str, Any]:
        """Return the spec as plain JSON data; :meth:`from_json` reads it back.

        The rows are a list of pairs and not an object: their order is the merge order, and keys of objects get sorted.
        """
        axes = [
            [tensor, [None if axis is None else [axis.group, axis.role, axis.stack, axis.block] for axis in row]]
            for tensor, row in self.axes.items()
        ]
        return {"axes": axes, "class_axis": dict(self.class_axis)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> PermutationSpec:
        """Return the spec that :meth:`to_json` wrote.

        Args:
            data: The parsed JSON object; ``axes`` may be an object too, as a person would write it.
            where: The file's name, for messages.

        Raises:
            ContentError: The data is not a spec.
        """
        try:
            rows = data["axes"].items() if isinstance(data["axes"], Mapping) else data["axes"]
            axes = {
                str(tensor): tuple(None if entry is None else _axis(entry) for entry in row) for tensor, row in rows
            }
            class_axis = {str(tensor): int(axis) for tensor, axis in data.get("class_axis", {}).items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ContentError(
                where,
                f"not a permutation spec ({error})",
                'It is {"axes": {tensor: [[group, role, stack, block] or null, …]}, "class_axis": {tensor: axis}}.',
            ) from error
        spec = cls(axes, class_axis)
        spec.validate(where)
        return spec

    def validate(self, where: str) -> None:
        """Check that the spec is consistent in itself.

        Args:
            where: The file's name, for messages.

        Raises:
            ContentError: A group is consumed or carried but never matched, or a class axis names no free axis.
        """
        matched = set(self.groups())
        for place in self.places():
            if place.axis.group not in matched:
                raise ContentError(
                    where,
                    f"group {place.axis.group} of {place.tensor} has no match axis",
                    "Give the group's own layer the role match.",
                )
        for tensor, dimension in self.class_axis.items():
            row = self.axes.get(tensor)
            if row is None or not 0 <= dimension < len(row) or row[dimension] is not None:
                raise ContentError(
                    where,
                    f"class axis {dimension} of {tensor} is not a free axis of that tensor",
                    "Correct class_axis.",
                )


def read_spec(path: Path) -> PermutationSpec:
    """Return the spec that a JSON file holds.

    Args:
        path: A file with what :meth:`PermutationSpec.to_json` returns.

    Raises:
        FileError: The file cannot be read, or is not JSON.
        ContentError: The JSON is not a spec.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(
            str(path), f"not a JSON file: it cannot be read ({error.strerror})", "Check the path."
        ) from error
    except (ValueError, RecursionError) as error:
        raise FileError(
            str(path), f"not a JSON file: what it holds is not JSON ({error})", "modelfuse inspect --spec prints one."
        ) from error
    return PermutationSpec.from_json(data, str(path))


def _axis(entry: Sequence[Any]) -> Axis:
    group, role, stack, block = entry
    if role not in ROLES:
        raise ValueError(f"role {role!r} is none of {', '.join(ROLES)}")
    axis = Axis(str(group), role, int(stack), int(block))
    if axis.stack < 1 or axis.block < 1:
        raise ValueError(f"stack {stack} and block {block} must be at least 1")
    return axis
