"""What a run executes: thunks, the header that tells them, and what each of them reads and writes."""
