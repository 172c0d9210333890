"""The render stage: templates for the class, the generated test, and the benchmark."""
