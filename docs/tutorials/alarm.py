# %% [markdown]
# # ALARM: categories, and the distance to the true graph
#
# ALARM (Beinlich et al. 1989) is a network that experts designed for monitoring patients: 37 variables with two to
# four categories each, and 46 arrows. Since the true graph of samples from it is known, we can count how many edges
# are right. This project's package `datasets` draws the samples from the network in pgmpy; it is not installed with the
# library, so run this page in the project's folder.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import datasets
from gpupc import pc, skeleton
from gpupc_impl.verification.accuracy import accuracy

patients = datasets.load("alarm-20000")
labels = dict(zip(patients.names, patients.labels, strict=True))
codes = pd.DataFrame(patients.values, columns=patients.names)
frame = codes.apply(lambda column: pd.Categorical.from_codes(column, labels[column.name]))
print(frame.iloc[:3, :5].to_string(index=False))

# %% [markdown]
# A table of text or categorical columns is tested with chi-square by default. A category that is declared but does not
# occur counts for the degrees of freedom, so declare all of them.
#
# ## The graph of five thousand patients

# %%
found = pc(frame[:5000], alpha=0.01)
print(found)
scores = accuracy(found, patients.true_dag)
print(f"edges right {scores.edge_precision:.0%}, found {scores.edge_recall:.0%}")
print(f"arrows right {scores.arrow_precision:.0%}, found {scores.arrow_recall:.0%}; distance {scores.shd} of 666 pairs")

# %% [markdown]
# None of its edges is wrong, and a sixth of the true ones is missing. `distance` is the structural Hamming distance:
# the number of pairs of variables on which the CPDAG differs from that of the true network. It is at most the number
# of pairs, and 46 for an empty graph.
#
# ## More samples, other degrees of freedom
#
# A test of (i, j) given three variables of four categories has 64 strata. With few samples most of them are empty, and
# the two rules differ in whether empty strata count. By the rule `full` (gpuPC, bnlearn's `x2`) they do, so large sets
# nearly always separate. By the rule `adjusted` (causal-learn's `chisq`) they do not, so more edges remain, some of
# them wrong ([definition of the rules](../discrete.md)).

# %%
rows = []
for n in (500, 1000, 2000, 5000, 10000, 20000):
    for rule in ("full", "adjusted"):
        scores = accuracy(pc(frame[:n], 0.01, df_rule=rule), patients.true_dag)
        rows.append({"samples": n, "rule": rule, **vars(scores)})
table = pd.DataFrame(rows).set_index(["samples", "rule"]).unstack()
print(table["shd"].to_string())

fig, axes = plt.subplots(1, 3, figsize=(8.5, 2.7))
for ax, measure in zip(axes, ("edge_precision", "edge_recall", "shd"), strict=True):
    table[measure].plot(ax=ax, logx=True, marker="o", color=["#ef6c00", "#00796b"], legend=measure == "shd")
    ax.set_title(measure.replace("_", " ").replace("shd", "distance to the truth"))
    ax.set_ylim(0, 1.05 if measure != "shd" else 50)
fig.set_label("Precision, recall and distance to the truth against samples, by both rules for degrees of freedom")

# %% [markdown]
# With more samples both rules come closer to the truth. With few samples the adjusted rule finds more edges; the edges
# of the full rule are seldom wrong.
#
# ## How sure an edge is
#
# We search twenty resamples of the patients with the adjusted rule: an edge that comes back in most of them is more
# likely to be true. The codes of categories are numbers, which would be tested as Gaussian data, so the family is
# named.

# %%
rng = np.random.default_rng(0)
times = np.zeros((37, 37), int)
for _ in range(20):
    again = codes.iloc[rng.integers(2000, size=2000)]
    times += skeleton(again, alpha=0.01, family="discrete", df_rule="adjusted").adjacency
share = times / 20
pairs = np.triu_indices(37, 1)
true = (patients.true_dag | patients.true_dag.T)[pairs]
bounds = ["never", "to 20 %", "to 50 %", "to 80 %", "to 100 %"]
often = pd.cut(share[pairs], [-1, 0, 0.2, 0.5, 0.8, 1], labels=bounds)
table = pd.crosstab(often, np.where(true, "true edge", "no edge")).rename_axis(index="comes back", columns=None)
print(table.to_string())

order = np.argsort([name.lower() for name in patients.names])
fig, ax = plt.subplots(figsize=(6.4, 5.4))
shown = ax.imshow(share[np.ix_(order, order)], cmap="GnBu", vmin=0, vmax=1)
marks = np.argwhere((patients.true_dag | patients.true_dag.T)[np.ix_(order, order)])
ax.plot(marks[:, 1], marks[:, 0], "s", color="none", markeredgecolor="#ef6c00", markersize=8, markeredgewidth=0.8)
ax.set_xticks(range(37), [patients.names[k] for k in order], rotation=90, fontsize=5.5)
ax.set_yticks(range(37), [patients.names[k] for k in order], fontsize=5.5)
fig.colorbar(shown, label="share of 20 resamples")
fig.set_label("How often each edge comes back in 20 resamples; orange frames: the true network's edges")

# %% [markdown]
# ## Conclusions
#
# - Here all edges that come back in more than half of the resamples are true, and few of the other edges are.
# - The rule for degrees of freedom matters as much as alpha does, and packages differ in it: compare the answers of two
#   packages only if both use the same rule.
# - Resampling repeats samples, which makes dependences look stronger: use the shares to rank edges, not as
#   probabilities.
