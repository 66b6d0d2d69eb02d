"""Mixed data, numbers beside categories: PC-stable with CMIknn in the form of Mesner and Shalizi (2021)."""
