"""The process that runs stages. Its folder has no other file, because Python looks for modules there."""
