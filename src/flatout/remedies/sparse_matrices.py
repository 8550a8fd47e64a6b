"""Sparse matrices, or lookups, where matrices that are almost all zeros are multiplied."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.step_changes import less_in_forward
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.results import Cause


@remedy(("sparse_as_dense",), NUMERICS, risk="medium")
def sparse_products(context: Context, cause: Cause) -> Proposal | None:
    """Multiply only what is not zero."""
    operators = context.run.operators
    if isinstance(operators, str) or operators.zeros is None:
        return None
    zeros = operators.zeros
    saved_s, least_s, most_s = (
        operators.in_kernels_s(seconds) for seconds in (zeros.saved_s, zeros.least_saved_s, zeros.most_saved_s)
    )
    return Proposal(
        title="multiply a sparse matrix, or look rows up, in place of a dense matrix of zeros",
        change=less_in_forward(context, saved_s),
        least=less_in_forward(context, least_s),
        most=less_in_forward(context, most_s),
        how="adjacency = adjacency.to_sparse_csr() once, torch.sparse.mm(adjacency, x); weight[index] in place of "
        "one_hot(index).float() @ weight; nn.EmbeddingBag in place of a Linear layer on bags of words",
        basis="measured time of the products in the traced steps, and the values that are not zero; each is assumed "
        "to take 6 times as long in a sparse product, 3 to 11, as on one CPU",
        memory_bytes=0,
    )
