"""The laboratory: tables and figures of the paper, schemes beside each other, sweeps. Nothing below imports it.

results/, challenges/   studies, a TOML file each (study.py): question, what varies, what is measured, claims
scales.py               how large a reproduction is: digits, laptop, desktop, paper
jobs.py                 units of work, known and kept by their content
kinds.py                what each kind of job is made of and does: runs.py, treatments.py, rounds.py
entrants.py             the schemes of a comparison
results.py, shown.py    `aircomp reproduce`: rows, tables, figures, page
arena.py, arena_page.py `aircomp arena`; ranking.py: who wins; call.py: from Python, with sweeps
verdicts.py             whether numbers show what is claimed; summary.py: several seeds, decibels
expected.py, expected/  what each study gave when it was measured
"""
