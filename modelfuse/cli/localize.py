"""``modelfuse localize``: a global model and orders in, a client's own part of it out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modelfuse.cli.options import ArchitectureOption, OutputOption

if TYPE_CHECKING:
    from modelfuse.files.checkpoint import Checkpoint
    from modelfuse.spec.axes import PermutationSpec

__all__ = ["localize"]


def localize(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="GLOBAL", help="The global model that a merge wrote.")],
    orders: Annotated[Path, typer.Option("--orders", metavar="FILE", help="The orders that the same merge wrote.")],
    client: Annotated[str, typer.Option("--client", metavar="K", help="The client's number, or all.")],
    output: OutputOption,
    architecture: ArchitectureOption = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="FILE", help="A permutation spec as JSON, where no file has one.")
    ] = None,
) -> None:
    """Cut a grown global model back to one client's own units, in the client's own order and widths.

    The next pass of FedMA with communication starts from it. With --client all, OUT is a folder of clients' files.

    \b
    Examples:
      modelfuse merge --method fedma clients/ -o global.safetensors --orders orders.safetensors
      modelfuse localize global.safetensors --orders orders.safetensors --client 3 -o client_3.safetensors
      modelfuse localize global.safetensors --orders orders.safetensors --client all -o next/
    """
    from modelfuse import __version__
    from modelfuse.errors import OptionError
    from modelfuse.files.artifacts import open_kind
    from modelfuse.files.atomic import make_folder
    from modelfuse.files.metadata import extended
    from modelfuse.files.writer import check_outputs, save
    from modelfuse.methods.localize import read_orders
    from modelfuse.types import ClientInfo, Metadata, Step

    if client != "all" and not client.isdecimal():
        raise OptionError("--client", f"{client!r} is neither a number nor all", "Write --client 3.")
    whole = open_kind(model, "model")
    plain = _spec_of(whole, architecture, spec)
    found = read_orders(open_kind(orders, "orders"), whole, plain)
    numbers = [int(key.removeprefix("client_")) for key in found.orders] if client == "all" else [int(client)]
    if client == "all":
        make_folder(output)
    paths = [output / f"client_{number}.safetensors" if client == "all" else output for number in numbers]
    check_outputs(paths, (model, orders))
    said = whole.metadata or Metadata("model")
    classes = said.client.classes if said.client else None
    for number, path in zip(numbers, paths, strict=True):
        step = Step("localize", __version__, {"client": number}, (whole.model_id(),))
        metadata = Metadata(
            "model",
            architecture=said.architecture if architecture is None else architecture,
            spec=plain.to_json(),
            client=ClientInfo(number, classes=classes),
            history=extended(said.history, step),
        )
        save(path, found.of(number), metadata)
        context.obj.say(f"{path}: client {number}'s part of {model}")


def _spec_of(model: Checkpoint, architecture: str | None, spec: Path | None) -> PermutationSpec:
    from modelfuse.errors import OptionError
    from modelfuse.spec.architectures import parse_architecture
    from modelfuse.spec.axes import PermutationSpec, read_spec

    if spec is not None:
        return read_spec(spec)
    if architecture is not None:
        return parse_architecture(architecture).spec()
    if model.metadata is None or model.metadata.spec is None:
        raise OptionError(
            model.label, "the file does not say which axes its units are on", "Pass --architecture or --spec."
        )
    return PermutationSpec.from_json(model.metadata.spec, model.label)
