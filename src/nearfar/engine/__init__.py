"""Where the same server and workers run."""
