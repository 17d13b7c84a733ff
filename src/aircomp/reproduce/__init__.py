"""Every table and figure of the paper by one command: `aircomp reproduce`.

catalogue.py   what there is; each result names its jobs and says how their rows become tables and figures
  runs.py        those of federated runs
  rounds.py      those of saved rounds and trained layers
  parts.py       what they are made of; summary.py: several seeds, decibels; claims.py: what the paper says
scales.py      how large: digits, laptop, paper
jobs.py        units of work that are kept by the hash of what they do, so that results share and resume them
work.py        what each kind of job does
page.py        result.json and report.html of a finished result
"""
