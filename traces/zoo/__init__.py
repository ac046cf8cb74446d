"""Networks to capture and to train, written with torch.nn alone.

blocks        pieces that the networks of the zoo are made of. Joins are modules, so that every layer has a name
inception     Inception-v3 (arXiv 1512.00567) without its auxiliary head
networks      networks to capture, written with torch.nn alone
own_network   what a network is and reads, random data for it; one's own networks, and those of transformers
"""
