"""Lets every process of an engine collect garbage rarely: the collections of an import take a fifth of its CPU time."""

import gc

gc.set_threshold(200_000, 20, 20)
