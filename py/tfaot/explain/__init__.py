"""Says in words why two builds of models differ, and what a build is specialized to without need."""
