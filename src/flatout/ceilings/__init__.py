"""Measured ceilings of a training: its device alone, its data path alone, and the headroom that they leave."""
