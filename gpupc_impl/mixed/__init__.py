"""PC-stable for mixed data, which have variables of numbers and of categories, with CMIknn in the form of Mesner and
Shalizi (2021)."""
