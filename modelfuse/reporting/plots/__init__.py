"""Pictures, one file each. The only room that imports matplotlib, which the extra ``modelfuse[plot]`` brings."""

from modelfuse.errors import OptionError

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError as error:
    raise OptionError("plot", "matplotlib is not installed", "Run pip install 'modelfuse[plot]'.") from error
