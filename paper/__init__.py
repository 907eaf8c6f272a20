"""The paper's experiments, re-run: the runs of its tables, and the page that their results make.

python -m paper.run TABLE...    run what is missing of some tables; results go to results/
python -m paper.theorems        measure Theorems 1 and 2
python -m paper.page            write docs/reproduction.md and the tables of other pages from results/
python -m paper.peers_page      write the comparison of all methods in docs/methods.md from results/
"""
