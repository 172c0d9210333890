"""Makes random ops draw from one variable. The entry point is `state`."""
