"""Runs as one self-contained HTML page, and the same page live while a run goes on."""
