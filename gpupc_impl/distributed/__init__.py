"""One search on many GPUs or machines: method `distributed`, on Dask (extra ``distributed``; docs/distributed.md)."""
