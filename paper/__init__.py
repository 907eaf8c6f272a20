"""The paper's experiments, re-run: the runs of its tables, and the page that their results make.

python -m paper.run TABLE...    run what is missing of some tables; results go to results/
python -m paper.theorems        measure Theorems 1 and 2
python -m paper.page            write docs/reproduction.md and the README's table from results/
"""
