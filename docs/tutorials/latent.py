# %% [markdown]
# # A hidden cause: when PC is wrong, and a PAG is not
#
# Sensors in a river measure turbidity and oxygen. Rain stirs the water up and changes the oxygen, but nobody recorded
# it. Rain is a common cause that was not measured. We make such data, so that the truth is known.

# %%
import numpy as np
import pandas as pd

from gpupc import BackgroundKnowledge, IndependenceOracle, fci, pc

rng = np.random.default_rng(7)
n = 2000
rain = rng.normal(size=n)
dredging, weir = rng.normal(size=(2, n))
turbidity = 0.8 * dredging + rain + rng.normal(size=n)
oxygen = 0.8 * weir - rain + rng.normal(size=n)
fish = 0.9 * oxygen + rng.normal(size=n)
measured = {"dredging": dredging, "turbidity": turbidity, "oxygen": oxygen, "weir": weir, "fish": fish}
data = pd.DataFrame(measured)  # rain is not in the table

# %% [markdown]
# ## What PC says
#
# PC assumes that all common causes were measured. Turbidity and oxygen are dependent whatever else is given, so they
# get an edge, and the two v-structures that meet there contradict each other.

# %%
found = pc(data, alpha=0.01)
print(found.to_frame().to_string(index=False))

# %% [markdown]
# The edge between turbidity and oxygen is a `conflict`: each v-structure has its arrow at another end. PC has no
# answer to that.
#
# ## What a PAG says
#
# `fci` allows for hidden causes. Its edges have a mark at each end.

# %%
graph = fci(data, alpha=0.01)
print(graph.to_frame().to_string(index=False))
ax = graph.plot()
ax.figure.set_label("The PAG: turbidity and oxygen are joined by an edge with two arrows")

# %% [markdown]
# - turbidity ↔ oxygen: two arrows. Neither causes the other, so something that was not measured causes both. Clearing
#   the water would not bring oxygen back.
# - oxygen → fish: a tail and an arrow. Oxygen is a cause of the number of fish.
# - dredging o→ turbidity: turbidity does not cause dredging. The circle says that dredging causes turbidity, or that
#   both have a hidden cause. The data cannot tell which.
#
# ## The same from the true graph
#
# An `IndependenceOracle` answers by d-separation in a known graph, in place of tests of samples. With it we see what
# the best possible answer is.

# %%
names = [*data.columns, "rain"]
arrows = ["dredging turbidity", "rain turbidity", "rain oxygen", "weir oxygen", "oxygen fish"]
truth = np.zeros((6, 6), bool)
for cause, effect in map(str.split, arrows):
    truth[names.index(cause), names.index(effect)] = True
perfect = fci(IndependenceOracle.from_graph(truth, hidden=[names.index("rain")], names=names[:5]))
print("the data led to the best possible answer:", graph == perfect)

# %% [markdown]
# ## What is known beforehand
#
# Suppose that we know that dredging stirs up the water. A required direction sets both marks of its edge.

# %%
known = BackgroundKnowledge(required_directions=[("dredging", "turbidity")])
print(fci(data, alpha=0.01, knowledge=known).to_frame().to_string(index=False))

# %% [markdown]
# [Common causes that were not measured](../latent.md) explains the marks, and the difference between RFCI and FCI.
