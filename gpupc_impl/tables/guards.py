"""Checks of files that a package reads as it finds them: AnnData files, which can make HDF5 open other files and SciPy
leave its arrays."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


def check_hdf5(path: Path) -> None:
    """Refuse an HDF5 file with a link to another file, or with a data set whose values are in another file.

    Nothing is read but the descriptions of the objects; each is visited once, whatever links lead to it.

    Raises:
        ValueError: the message names the object.
    """
    h5py = importlib.import_module("h5py")
    with h5py.File(path, "r") as file:
        groups, seen = [file], set()
        while groups:
            group = groups.pop()
            for name in group:
                link = group.get(name, getlink=True)
                place = f"{group.name.rstrip('/')}/{name}"
                if isinstance(link, h5py.ExternalLink):
                    raise _elsewhere(place, "a link to", [link.filename])
                if not isinstance(link, h5py.HardLink):  # The target of a soft link has a hard one, or is absent.
                    continue
                part = group[name]
                address = h5py.h5o.get_info(part.id).addr
                if address in seen:
                    continue
                seen.add(address)
                if isinstance(part, h5py.Group):
                    groups.append(part)
                elif isinstance(part, h5py.Dataset) and part.external:
                    raise _elsewhere(place, "values in", [source for source, *_ in part.external])
                elif isinstance(part, h5py.Dataset) and part.is_virtual:
                    raise _elsewhere(place, "a view of", [source.file_name for source in part.virtual_sources()])


def _elsewhere(place: str, what: str, files: list[str]) -> ValueError:
    return ValueError(
        f"{place} is {what} another file ({', '.join(map(repr, files[:3]))}); a table must hold its values itself: "
        "read it where that file is trusted, and write it anew"
    )


def frame_of_anndata(data: Any) -> pandas.DataFrame:
    """Return the matrix ``X`` of an AnnData object as a DataFrame.

    Raises:
        ValueError: the indices of a sparse matrix lead out of it, which makes SciPy write outside its memory.
    """
    from scipy import sparse

    if sparse.issparse(data.X):
        try:
            getattr(data.X, "check_format", lambda full_check: None)(full_check=True)
        except ValueError as error:
            raise ValueError(
                f"its matrix X of shape {data.X.shape} is sparse, and its indices do not fit that shape ({error}); "
                "write it anew from the data it was made of"
            ) from error
    frame: pandas.DataFrame = data.to_df()
    return frame
