"""Networks to capture and to train, written with torch.nn alone.

blocks        pieces that the networks of the zoo are made of. Joins are modules, so that every layer has a name
huggingface   networks of Hugging Face's transformers, by a configuration
inception     Inception-v3 (arXiv 1512.00567) without its auxiliary head
networks      networks to capture, written with torch.nn alone
own_network   networks of one's own, by `package.module:callable`, or of Hugging Face's transformers, and what a network
              is: how it is built and what it reads
transformers  networks of attention: a vision transformer (arXiv 2010.11929) and a GPT-2 decoder, with torch.nn
              alone
"""
