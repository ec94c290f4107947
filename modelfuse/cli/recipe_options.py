"""The options of a recipe of training: a type each, which says what it is called and what it does."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "ClipNormOption",
    "LrOption",
    "MomentumOption",
    "PrecisionOption",
    "ScheduleOption",
    "WeightDecayOption",
]

ClipNormOption = Annotated[float | None, typer.Option("--clip-norm", help="Scale a longer gradient down to this norm.")]
LrOption = Annotated[float, typer.Option("--lr", help="Learning rate.")]
MomentumOption = Annotated[float, typer.Option("--momentum", help="Momentum of SGD.")]
PrecisionOption = Annotated[
    str, typer.Option("--precision", help="float32, or bf16: bfloat16 arithmetic, float32 weights.")
]
ScheduleOption = Annotated[
    str, typer.Option("--schedule", help="constant, or cosine: annealed from epoch to epoch towards zero.")
]
WeightDecayOption = Annotated[float, typer.Option("--weight-decay", help="Weight decay of SGD.")]
