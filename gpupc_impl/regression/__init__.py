"""PC-stable for numbers and categories with likelihood ratio tests of linear and logistic regressions."""
