"""The pass `padding` in layers: sizes, numbers made from them, masks, and the proof; `padding` is the entry point."""
