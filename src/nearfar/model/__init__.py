"""What the user keeps: a metric, and the ways to learn one."""
