"""Where devices train: in this process, in local ones, on a Ray cluster."""

from typing import Literal

Engine = Literal["serial", "processes", "ray"]
