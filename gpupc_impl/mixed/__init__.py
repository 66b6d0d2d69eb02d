"""Mixed data, columns of numbers beside columns of categories: PC-stable with CMIknn in the form of Mesner and Shalizi."""
