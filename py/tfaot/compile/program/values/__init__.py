"""What the kernels of optimized HLO compute."""
