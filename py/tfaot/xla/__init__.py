"""What XLA says about a program: HLO and its place in memory, read from protos. No other code reads them."""
