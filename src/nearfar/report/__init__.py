"""Runs as one self-contained HTML page, and the same page live while a run goes on."""

from nearfar.report.building import Choices, write_report

__all__ = ["Choices", "write_report"]
