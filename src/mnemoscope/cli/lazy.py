"""xarray, imported when it is used, so that the help of a command does not wait for it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr
else:
    import lazy_loader

    xr = lazy_loader.load("xarray")

__all__ = ["xr"]
