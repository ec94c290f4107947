"""The JSON object that files of ours carry in their header (schema 1)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

import numpy as np

from modelfuse.errors import FileError
from modelfuse.types import ClientInfo, Kind, Metadata, Step

__all__ = ["LONGEST_HISTORY", "SCHEMA", "extended", "json_text", "metadata_from_json", "metadata_to_json"]

SCHEMA = 1
LONGEST_HISTORY = 16
"""Steps that a file carries: init and the latest rounds."""

T = TypeVar("T")


def json_text(data: Any, indent: int | None = None) -> str:
    """Return data as JSON text with sorted keys: equal data, equal text.

    Args:
        data: Mappings, sequences, numpy arrays and scalars, strings, numbers. NaN and infinity, which JSON does not
            know, become null.
        indent: Spaces a level, or None for one compact line.
    """
    separators = (",", ":") if indent is None else None
    return json.dumps(_plain(data), sort_keys=True, ensure_ascii=False, indent=indent, separators=separators)


def extended(history: Sequence[Step], step: Step) -> tuple[Step, ...]:
    """Return a history with one step more.

    A federation of hundreds of rounds must not drown its weights in provenance: beyond ``LONGEST_HISTORY`` the first
    step and the latest are kept. Nothing is lost, since every step names its inputs by their ``model_id``.

    Args:
        history: The steps so far, oldest first.
        step: The new one.
    """
    longer = (*history, step)
    return longer if len(longer) <= LONGEST_HISTORY else (longer[0], *longer[1 - LONGEST_HISTORY :])


def _plain(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, np.ndarray | np.generic):
        return _plain(data.tolist())
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def metadata_to_json(metadata: Metadata) -> dict[str, Any]:
    """Return the metadata as plain JSON data, without what is not set; :func:`metadata_from_json` reads it back."""
    client = metadata.client
    data = {
        "schema": SCHEMA,
        "kind": metadata.kind,
        "architecture": metadata.architecture,
        "spec": metadata.spec,
        "client": client and _given({field: getattr(client, field) for field in ClientInfo.__slots__}),
        "model_id": metadata.model_id,
        "quantized": {"bits": metadata.bits, "scales": metadata.scales} if metadata.bits is not None else None,
        "history": [{field: getattr(step, field) for field in Step.__slots__} for step in metadata.history] or None,
        "details": metadata.details or None,
    }
    plain: dict[str, Any] = _plain(_given(data))
    return plain


def _given(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None}


def metadata_from_json(data: Any, where: str) -> Metadata:
    """Return the metadata that :func:`metadata_to_json` wrote.

    Args:
        data: The parsed JSON.
        where: The file's name, for messages.

    Raises:
        FileError: The data is not such an object, or a newer modelfuse wrote it.
    """
    try:
        schema = _typed(data, dict, "the metadata").get("schema")
        if _typed(schema, int, "schema") > SCHEMA:
            raise FileError(where, f"written by a newer modelfuse (schema {schema})", "Upgrade modelfuse to read it.")
        return _metadata(data)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(where, f"its modelfuse metadata is damaged: {error}", "Write the file again.") from error


def _metadata(data: Mapping[str, Any]) -> Metadata:
    if data.get("kind") not in get_args(Kind):
        raise ValueError(f"kind {data.get('kind')!r} is none of {', '.join(get_args(Kind))}")
    quantized = _optional(data, "quantized", dict) or {}
    return Metadata(
        kind=data["kind"],
        architecture=_optional(data, "architecture", str),
        spec=_optional(data, "spec", dict),
        client=_client(_optional(data, "client", dict)),
        model_id=_optional(data, "model_id", str),
        bits=_optional(quantized, "bits", int),
        scales={name: _scale(name, scale) for name, scale in (_optional(quantized, "scales", dict) or {}).items()},
        history=tuple(_step(step) for step in _optional(data, "history", list) or ()),
        details=_optional(data, "details", dict) or {},
    )


def _client(data: Mapping[str, Any] | None) -> ClientInfo | None:
    if data is None:
        return None
    counts, classes = _optional(data, "class_counts", list), _optional(data, "classes", list)
    return ClientInfo(
        id=_optional(data, "id", int),
        num_examples=_optional(data, "num_examples", int),
        class_counts=None if counts is None else tuple(_typed(count, int, "a class count") for count in counts),
        classes=None if classes is None else tuple(_typed(name, str, "a class") for name in classes),
    )


def _step(data: Any) -> Step:
    row = _typed(data, dict, "a step of the history")
    return Step(
        command=_typed(row["command"], str, "command"),
        version=_typed(row["version"], str, "version"),
        options=_typed(row["options"], dict, "options"),
        inputs=tuple(_typed(item, str, "an input") for item in _typed(row["inputs"], list, "inputs")),
    )


def _scale(name: str, value: Any) -> float:
    scale = _typed(value, float, f"the scale of {name}")
    if not (math.isfinite(scale) and scale >= 0):
        raise ValueError(f"the scale of {name} is {scale}")
    return scale


def _optional(data: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    value = data.get(key)
    return None if value is None else _typed(value, kind, key)


def _typed(value: Any, kind: type[T], what: str) -> T:
    """Return the value if it is of just this JSON type (a bool is no int)."""
    if type(value) is not kind:
        raise TypeError(f"{what} is {value!r:.80}, not of type {kind.__name__}")
    return value
