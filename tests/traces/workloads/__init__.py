# SPDX-License-Identifier: MIT
"""Workloads W1-W10: allocation traces made from a seed. `../gen --list` names them; each module documents its knobs.

The same name, seed and scale give the same bytes on every machine and Python (chance.py). Scale 1.0 is a few hundred
thousand events; more scale is more steps, requests or operations, not larger tensors (W8: more live blocks).
"""
