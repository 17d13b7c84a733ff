"""Tables and figures of the paper, each by one command: `aircomp reproduce`.

Where a result is the paper's, so is the system: its network, integers, no side information, its SNRs. Ours are called ours.

catalogue.py   what there is; each result names its jobs and says how their rows become tables and figures
  runs.py        those of federated runs
  rounds.py      those of saved rounds and trained layers
  table_one.py   Table I, and why AMP-DA collapses in it; treatments.py follows such a run
  parts.py       what they are made of; summary.py: several seeds, decibels
  claims.py      what the paper claims and what we add; verdicts.py judges it
scales.py      how large: digits, laptop, desktop, paper
jobs.py        units of work that are kept by the hash of what they do, so that results share and resume them
work.py        what each kind of job does
page.py        result.json and report.html of a finished result
"""
