"""Rewrites of a graph that make its machine code faster on CPUs.

Only the compile stage sees them. The HLO outputs and TensorFlow's own numbers come from the graph as it was exported.
"""
