"""Checks of files that a package reads as it finds them: AnnData files, which can make SciPy leave its
arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


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
