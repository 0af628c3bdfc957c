from collections.abc import Iterable
from typing import Any, Literal, Optional, Union, final

import numpy
from numpy.typing import NDArray

_Array = Union[NDArray[numpy.float32], NDArray[numpy.float64]]
_Arrays = Union[dict[str, _Array], Iterable[_Array], _Array]
"""By name; in the kernel's order; or a table of shape (N, variables), whose rows are particles."""

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
    """A kernel, ready to be called; from several threads, and in children of a fork, too. It can be
    pickled and copied: what arrives is compiled again there."""

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
        """The results by their names, an array of shape (N,) each, for all i: float32 or float64,
        bool of `and` and `or`, int64 of places.

        An array of two dimensions has a row for each particle and a column for each variable.
        TypeError: no array, or one of another dtype, or a constant that the kernel does not have.
        ValueError: arrays that are missing, of different lengths, or of another shape; a constant
        that was not given. KernelError, Error: the kernel cannot be had in the precision of these
        arrays."""

def compile(
    text: str,
    precision: Optional[Literal["f32", "f64"]] = None,
    threads: Optional[int] = None,
    target: Optional[Literal["avx512", "avx2", "portable", "grapedr", "reference"]] = None,
) -> Kernel:
    """Compiles a kernel's text.

    precision is that of variables and results that do not say theirs; None follows the arrays of
    each call: f64 if one of them is float64, otherwise f32. ValueError: more than 16 threads for
    each processor."""

def kernels() -> dict[str, str]:
    """The kernels that are there to begin with: their texts by their names."""
