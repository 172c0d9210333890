"""Whether the rows of a batch are independent: `check` is the way in, and says how it is found out."""
