# %% [markdown]
# # Riboflavin: thousands of genes, few samples
#
# Expressions of 4,088 genes of *Bacillus subtilis* in 71 strains that produce riboflavin (Bühlmann, Kalisch and Meier
# 2014). There are more variables than samples, as is usual for genes. The PC algorithm suits such data: it conditions
# on few genes at a time, and never inverts a matrix of all.
#
# The file, of R's package hdi, is one of the [data sets](../../datasets/README.md) of this project. Here the package
# `rdata` reads it from its address; its data frame has a matrix as a column, which pandas cannot hold.

# %%
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import rdata

from gpupc import skeleton

folder = "https://raw.githubusercontent.com/cran/hdi/3eb71fb52b3c0f5213b1283d5f0317b91f6a133a/"
file, _ = urlretrieve(folder + "data/riboflavin.RData")
plain = dict.fromkeys(["data.frame", "AsIs"], lambda values, attributes: values)
strains = rdata.read_rda(file, constructor_dict={**rdata.conversion.DEFAULT_CLASS_MAP, **plain})["riboflavin"]["x"]
genes = pd.DataFrame(strains.values, columns=[name.removesuffix("_at") for name in strains["dim_1"].values])
print(genes.shape)

# %% [markdown]
# Samples are in rows and genes in columns. Tables of gene expression are often stored the other way round; transpose
# them first.
#
# ## All genes
#
# There are eight million pairs. On two cores the search takes seconds.

# %%
found = skeleton(genes, alpha=0.01)
print(pd.Series(found.edges_per_level, name="edges left").rename_axis("level").to_frame().to_string())
print("stopped:", found.stopped_because)

# %% [markdown]
# Level 0 keeps the pairs that correlate, hundreds of times as many as there are edges in the end. One other gene
# explains nearly all of them (level 1). This is the advantage of the skeleton over a network of correlations.
#
# With 71 samples a test has little power if it conditions on several genes: pairs are removed because the test cannot
# detect a dependence, not because they are known to be independent. Take an edge as strong evidence, and a missing
# edge as the absence of evidence.

# %%
graph = found.to_networkx()
degrees = pd.Series(dict(graph.degree))
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8))
counts = degrees.value_counts().sort_index()
left.bar(counts.index, counts, color="#00796b")
left.set(xlabel="neighbours", ylabel="genes", yscale="log")
parts = pd.Series([len(part) for part in nx.connected_components(graph)]).value_counts().sort_index()
right.loglog(parts.index, parts, "o", color="#00796b")
right.set(xlabel="genes in a connected part", ylabel="parts")
fig.set_label("How many neighbours genes have, and how large the connected parts of the skeleton are")
print(degrees.sort_values(ascending=False, kind="stable").head(5).to_string())

# %% [markdown]
# ## Around the genes that make riboflavin
#
# The operon *ribDG, ribE, ribAB, ribH, ribT* makes riboflavin. Its genes are transcribed together, so they should be
# connected here. We draw the genes within two steps of them.

# %%
operon = [gene for gene in genes.columns if gene.upper().startswith("RIB")]
near = set(operon)
for gene in operon:
    near |= set(nx.single_source_shortest_path_length(graph, gene, cutoff=2))
local = graph.subgraph(near)
fig, ax = plt.subplots(figsize=(8, 4))
place, right = {}, 0.0
for part in sorted(nx.connected_components(local), key=len, reverse=True):  # beside each other
    size = 0.35 * len(part) ** 0.7
    place |= nx.kamada_kawai_layout(local.subgraph(part), scale=size, center=(right + size, 0))
    right += 2 * size + 0.3
nx.draw_networkx_edges(local, place, ax=ax, edge_color="#9e9e9e")
colours = ["#80cbc4" if gene in operon else "#eeeeee" for gene in local]
nx.draw_networkx_nodes(local, place, ax=ax, node_size=620, node_color=colours, edgecolors="#9e9e9e")
nx.draw_networkx_labels(local, place, ax=ax, font_size=6)
ax.axis("off")
fig.set_label("The skeleton within two steps of the riboflavin genes, which are green")
print("riboflavin genes on the chip:", ", ".join(operon))
print("edges among them:", ", ".join(sorted(" - ".join(sorted(e)) for e in graph.subgraph(operon).edges)))

# %% [markdown]
# ## A smaller set, and how sure it is
#
# Questions are often about some genes only. Choosing them first (here the 300 that vary most) makes each search
# cheap, but an edge may then be caused by a gene that was left out. We search fifty subsamples of the strains:

# %%
chosen = genes[genes.var().nlargest(300).index]
whole = skeleton(chosen, alpha=0.01)
rng = np.random.default_rng(0)
times = np.zeros((300, 300), int)
for _ in range(50):
    half = rng.permutation(71)[:50]  # no repeats: a repeated sample looks like evidence, too much so with 71
    times += skeleton(chosen.iloc[half], alpha=0.01).adjacency
of_edges = (times / 50)[tuple(whole.edges.T)]
fig, ax = plt.subplots(figsize=(5, 2.6))
ax.hist(of_edges, bins=np.linspace(0, 1, 21), color="#00796b")
ax.set(xlabel="share of 50 subsamples in which an edge comes back", ylabel="edges")
fig.set_label("How often the edges of the whole sample come back in subsamples of 50 strains")
table = whole.to_frame().assign(share=of_edges.round(2)).sort_values("share", ascending=False, kind="stable")
print(table.head(10).to_string(index=False))
print(f"{(of_edges >= 0.8).sum()} of {whole.n_edges} edges come back in at least 80 %")

# %% [markdown]
# ## Conclusions
#
# - The number of samples limits the result, not the number of genes.
# - Show the last table to a biologist: it has edges by name, and how often each comes back.
# - For graphs beyond the memory of a GPU: [beyond device memory](../out-of-core.md).
