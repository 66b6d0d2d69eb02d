"""PC-stable for mixed data, numbers and categories, with CMIknn in the form of Mesner and Shalizi (2021)."""
