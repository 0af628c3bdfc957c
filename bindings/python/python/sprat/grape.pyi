from collections.abc import Iterable
from typing import Any, Literal, Optional, Union, final

import numpy
from numpy.typing import NDArray

_Array = Union[NDArray[numpy.float32], NDArray[numpy.float64]]
_Arrays = Union[dict[str, _Array], Iterable[_Array], _Array]
"""A dict by name; a sequence in the kernel's order; or a table of shape (N, variables)."""

class Error(Exception):
    """A kernel was not compiled: it is too large, or the processor does not support the target."""

class KernelError(Error):
    """The text is not a valid kernel."""

    line: int
    """Line of the error, from 1."""
    column: int
    """Character in the line, from 1."""

@final
class Kernel:
    """A compiled kernel. Several threads can call it, and so can the children of a fork. It can be
    pickled and copied; a copy is compiled again, for the processor on which it is made."""

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
        """Constants and their defaults; None for those that must be given."""
    def __call__(
        self, i: Optional[_Arrays] = None, j: Optional[_Arrays] = None, **constants: float
    ) -> dict[str, NDArray[Any]]:
        """Runs the kernel and returns its results by name, each an array of shape (N,) for all i:
        float32 or float64, bool for `and` and `or`, int64 for indices.

        An array of two dimensions has a row for each particle and a column for each variable.
        TypeError: an argument is not an array, or has another dtype, or the kernel has no such
        constant. ValueError: arrays are missing, or have different lengths or another shape; a
        constant was not given. KernelError, Error: the kernel cannot be compiled in the precision
        of these arrays."""

def compile(
    text: str,
    precision: Optional[Literal["f32", "f64"]] = None,
    threads: Optional[int] = None,
    target: Optional[Literal["avx512", "avx2", "portable", "grapedr", "reference"]] = None,
) -> Kernel:
    """Compiles a kernel's text.

    precision applies to variables and results for which the kernel states none. If precision is
    None, each call's arrays decide: f64 if one of them is float64, otherwise f32. threads: None is
    one per processor; more than 16 for each processor is a ValueError. target: None is the best
    instruction set of this processor."""

def kernels() -> dict[str, str]:
    """Returns the texts of the built-in kernels by name."""
