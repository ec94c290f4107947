"""``modelfuse quantize``: the small copy of a model or a Fisher that a client uploads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from modelfuse.cli.options import OutputOption

__all__ = ["quantize"]


def quantize(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Models and Fishers, or folders of them.")],
    output: OutputOption,
    bits: Annotated[int, typer.Option("--bits", help="16 or 8 an entry, and one 32-bit scale a tensor.")] = 16,
) -> None:
    """Write models and Fishers in 16 or 8 bits an entry (FedFiOT eq. 107); several go into the folder OUT.

    It is what train-client --quantize and fisher --quantize write. Every command reads such files as it reads others,
    and a model keeps its model_id, so that Fishers are still found.

    \b
    Examples:
      modelfuse quantize client_3.safetensors -o upload_3.safetensors
      modelfuse quantize clients/ fishers/ --bits 8 -o uploads/
    """
    from modelfuse.errors import FileError, OptionError
    from modelfuse.files.atomic import make_folder
    from modelfuse.files.checkpoint import open_checkpoint
    from modelfuse.files.folders import clients_files
    from modelfuse.files.writer import check_output, save
    from modelfuse.types import Metadata

    files = clients_files(files)
    together = len(files) > 1 or output.is_dir()
    places = [output / file.name if together else output for file in files]
    if len(set(places)) < len(places):
        raise OptionError("FILES", "two have the same name", "Quantise them into folders of their own.")
    opened = [open_checkpoint(file) for file in files]
    for checkpoint in opened:
        metadata = checkpoint.metadata
        if metadata is not None and metadata.kind not in ("model", "fisher"):
            raise FileError(checkpoint.label, f"a {metadata.kind} file", "Only models and Fishers are quantised.")
        if metadata is not None and metadata.bits is not None:
            what = f"it is quantised already, in {metadata.bits} bits"
            raise FileError(checkpoint.label, what, "Start from the file before that.")
    if together:
        make_folder(output)
    for place in places:
        check_output(place, files)
    for checkpoint, place in zip(opened, places, strict=True):
        save(place, checkpoint.read_all(), checkpoint.metadata or Metadata("model"), bits=bits)
        context.obj.say(f"{place}: {checkpoint.label} in {bits} bits")
