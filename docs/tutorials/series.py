# %% [markdown]
# # Time series: the economy, quarter by quarter
#
# The data are 203 quarters of the economy of the United States, from 1959 to 2009. They come with statsmodels, which
# the extra `reproduce` installs. We ask which of five quantities drive which others, and how many quarters later.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from statsmodels.datasets import macrodata

from gpupc import pcmci

raw = macrodata.load_pandas().data
raw.index = pd.period_range("1959Q1", periods=len(raw), freq="Q").to_timestamp()
print(raw[["realgdp", "realcons", "realinv", "unemp", "tbilrate"]].iloc[[0, -1]].to_string())

# %% [markdown]
# ## Look before testing
#
# PCMCI assumes that the relations do not change in time. Relations between growing levels change; relations between
# growth rates or differences change less. Neighbouring quarters should still correlate, or there is no lag to find.

# %%
series = pd.DataFrame(
    {
        "consumption": 100 * np.log(raw["realcons"]).diff(),
        "investment": 100 * np.log(raw["realinv"]).diff(),
        "output": 100 * np.log(raw["realgdp"]).diff(),
        "unemployment": raw["unemp"].diff(),
        "interest": raw["tbilrate"].diff(),
    }
).iloc[1:]
fig, rows = plt.subplots(5, 1, figsize=(8, 6), sharex=True)
for ax, name in zip(rows, series.columns, strict=True):
    ax.plot(series[name], linewidth=0.8)
    ax.set_ylabel(name, fontsize=7)
fig.set_label("Growth in percent, and differences in percentage points, by quarter")
print("correlation with the quarter before:")
print(series.apply(lambda column: column.autocorr(1)).round(2).to_string())

# %% [markdown]
# ## The graph
#
# PCMCI+ looks back four quarters, and also at links within a quarter. `strength` is the partial correlation.

# %%
found = pcmci(series, tau_max=4, alpha=0.01, contemporaneous=True)
print(found)
print(found.to_frame().round(3).to_string(index=False))

# %%
fig, ax = plt.subplots(figsize=(5, 5))
found.plot(ax)
fig.set_label("The links of PCMCI+; numbers are lags in quarters, dashed lines conflicts")

# %% [markdown]
# The data do not determine the direction of a link without an arrowhead. A missing link does not prove independence:
# two hundred samples only show strong links.
#
# ## How much depends on alpha
#
# A link that remains over a wide range of levels does not depend on the choice.

# %%
for alpha in (0.001, 0.01, 0.05):
    links = pcmci(series, tau_max=4, alpha=alpha, contemporaneous=True).to_frame()
    print(f"alpha {alpha}: {(links['lag'] > 0).sum()} lagged and {(links['lag'] == 0).sum()} contemporaneous links")

# %% [markdown]
# ## Nonlinear links
#
# CMIknn finds dependences of any form, with less power for linear ones. `pcmci` without `contemporaneous` gives every
# lagged link an MCI test, and the p-values can be corrected for their number.

# %%
options = {"tau_max": 2, "alpha": 0.05, "correction": "fdr_bh"}
linear = pcmci(series, **options)
general = pcmci(series, test="cmiknn", permutations=1000, **options)
for name, graph in (("partial correlation", linear), ("CMIknn", general)):
    lagged = graph.to_frame().query("lag > 0")
    print(f"{name}: " + ", ".join(f"{row.source} to {row.target} ({row.lag})" for row in lagged.itertuples()))
