"""Networks and plans as hypergraphs, and the programs that cut them.

hmetis       hMETIS hypergraph files (.hgr), so that other partitioners can be tried on our hypergraphs
hypergraph   the hypergraph whose connectivity cut is a plan's communication volume
kahypar      balanced k-way partitioning of a Hypergraph by KaHyPar (Schlag et al., ACM JEA 27, 2022)
mtkahypar    cuts by Mt-KaHyPar (Gottesbüren et al., ACM TALG 20, 2024), which also knows how far the parts are
             from each other
repartition  a new cut of a network that stays close to the old one, because parameters that change places have to
             move
"""
