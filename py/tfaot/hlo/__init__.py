"""The model as HLO: modules, pictures, StableHLO, and bundles that run elsewhere."""
