"""Kernels of particle interactions on NumPy arrays: the effect of every j on every i.

>>> import numpy, sprat.grape
>>> kernel = sprat.grape.compile("VARI xi; VARJ xj, mj; VARF sum; sum += mj * (xj - xi)")
>>> x, m = numpy.array([0.0, 1.0, 3.0]), numpy.array([1.0, 1.0, 2.0])
>>> kernel(i={"xi": x}, j={"xj": x, "mj": m})["sum"].tolist()
[7.0, 3.0, -5.0]
"""

from sprat._sprat import GrapeError as Error
from sprat._sprat import Kernel, KernelError, compile, kernels

__all__ = ["Error", "Kernel", "KernelError", "compile", "kernels"]
