"""Sprat for Python: :mod:`sprat.flow` fetches files; :mod:`sprat.grape` runs kernels on arrays."""

from sprat._sprat import __version__

__all__ = ["__version__"]
