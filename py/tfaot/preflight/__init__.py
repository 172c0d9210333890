"""Says what stands in the way of compiling a model, before anything is compiled."""
