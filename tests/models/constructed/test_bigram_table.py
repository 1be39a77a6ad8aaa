import torch

from mnemoscope.models.constructed import bigram_table


def test_the_next_token_is_looked_up_by_the_current_one():
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[3, 0, 3, 4], [1, 1, 2, 0]])
    torch.testing.assert_close(bigram_table(table, 4)(tokens), table[tokens])
