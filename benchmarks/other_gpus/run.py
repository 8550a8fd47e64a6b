#!/usr/bin/env python3
"""How well steps are predicted for another GPU, on public measurements of whole models.

Each model that was measured on two parts is predicted for one from the other, by flatout.plans.kernel_scaling, from the
time of its operators on the first. How much of its peak a part reaches is taken from the other families of models: the
predicted one is left out.

Usage: python benchmarks/other_gpus/run.py --neusight CHECKOUT [--output FILE]

CHECKOUT is a clone of the repository named in neusight.py; nothing of it is kept here.
"""
