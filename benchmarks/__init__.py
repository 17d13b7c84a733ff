"""Speed, memory and growth, measured side by side in one run: ratios are the result, absolute times only orient.

make bench                               # a short set
make bench WHAT=decode                   # one benchmark at full size
make bench WHAT="decode --slots 500"     # its options: make bench WHAT="decode --help"
"""
