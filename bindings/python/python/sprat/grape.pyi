from collections.abc import Iterable
from typing import Any, Literal, Optional, Union, final

import numpy
from numpy.typing import NDArray

_Array = Union[NDArray[numpy.float32], NDArray[numpy.float64]]
_Arrays = Union[dict[str, _Array], Iterable[_Array]]

class Error(Exception):
    """Why a kernel was not compiled: it is too large for the target, or the processor lacks what the target needs."""

class KernelError(Error):
    """The text is no kernel."""

    line: int
    """Where, from 1."""
    column: int
    """The character in the line, from 1."""

@final
class Kernel:
    """A kernel, ready to be called; from several threads too."""

    @property
    def i(self) -> list[str]:
        """Names of the i variables, in order."""
    @property
    def j(self) -> list[str]:
        """Names of the j variables, in order."""
    @property
    def results(self) -> list[str]:
        """Names of the results, in order."""
    @property
    def constants(self) -> dict[str, Optional[float]]:
        """Constants and their defaults, None for what must be given."""
    def __call__(
        self, i: Optional[_Arrays] = None, j: Optional[_Arrays] = None, **constants: float
    ) -> dict[str, NDArray[Any]]:
        """The results by their names, an array each, for all i: float32 or float64, bool of `and` and `or`, int64 of places.

        TypeError: no array, or one of another dtype, or a constant that the kernel does not have. ValueError: arrays that are missing,
        of different lengths, or not of one dimension; a constant that was not given."""

def compile(
    text: str,
    precision: Literal["f32", "f64"] = "f64",
    threads: Optional[int] = None,
    target: Optional[Literal["avx512", "avx2", "portable", "grapedr", "reference"]] = None,
) -> Kernel:
    """Compiles a kernel's text."""

def kernels() -> dict[str, str]:
    """The kernels that are there to begin with: their texts by their names."""
