"""Makes random ops draw from one variable; `state` is the entry point."""
