"""modelfuse: merge checkpoints trained by clients that never share data."""

__version__ = "0.1.0"
