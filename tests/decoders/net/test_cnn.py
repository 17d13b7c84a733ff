import copy
import gc

import pytest
import torch
import torch.nn.functional as F

from aircomp.common.rng import generator
from aircomp.decoders.net.cnn import Cnn, Workspace


def make(filters=8, kernel=3, *, dtype=torch.float32):
    """Return a CNN whose last convolution is not zero."""
    rng = generator(0, "cnn")
    cnn = Cnn(filters, kernel, rng=rng)
    with torch.no_grad():
        cnn.weight_out.normal_(generator=rng)
        cnn.bias_out.fill_(0.3)
    return cnn.to(dtype)


def draw(slots, codewords, *, dtype=torch.float32, seed=0):
    """Return four maps of all slots and two rows that the slots share."""
    rng = generator(seed, "features")
    return [torch.randn(k, codewords, generator=rng, dtype=dtype) for k in (slots, slots, slots, slots, 1, 1)]


def conv1d(cnn, features):
    x = torch.stack([f.expand(len(features[0]), -1) for f in features], dim=1)
    pad = cnn.weight_in.shape[2] // 2
    h = F.relu(F.conv1d(x, cnn.weight_in, cnn.bias_in, padding=pad))
    h = F.relu(F.conv1d(h, cnn.weight_mid, cnn.bias_mid, padding=pad))
    return F.conv1d(h, cnn.weight_out, cnn.bias_out, padding=pad)[:, 0]


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("slots", [1, 7, 64])
def test_shifted_products_are_convolutions(kernel, slots):
    cnn, features = make(32, kernel), draw(slots, 128)
    expected = conv1d(cnn, features)
    torch.testing.assert_close(cnn(features), expected, rtol=1e-4, atol=1e-4)  # float32, sums of 3 · 32 products
    with torch.no_grad():
        torch.testing.assert_close(cnn(features), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_its_gradients_are_those_of_convolutions(kernel):
    cnn, features = make(6, kernel, dtype=torch.float64), draw(5, 9, dtype=torch.float64)
    inputs = [*cnn.parameters(), *(f.requires_grad_() for f in features)]
    weight = torch.randn(5, 9, generator=generator(1, "gradient"), dtype=torch.float64)
    ours = torch.autograd.grad((cnn(features) * weight).sum(), inputs)
    theirs = torch.autograd.grad((conv1d(cnn, features) * weight).sum(), inputs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_its_gradients_are_right():
    cnn = make(3, 3, dtype=torch.float64)
    names, params = zip(*cnn.named_parameters(), strict=True)
    features = [f.requires_grad_() for f in draw(2, 4, dtype=torch.float64)]

    def correction(*tensors):
        values = dict(zip(names, tensors[: len(names)], strict=True))
        return torch.func.functional_call(cnn, values, (list(tensors[len(names) :]),))

    assert torch.autograd.gradcheck(correction, (*params, *features))


def test_it_starts_without_a_correction():
    cnn = Cnn(8, 3, rng=generator(0, "cnn"))
    correction = cnn(draw(4, 16))
    assert not correction.any()
    correction.sum().backward()
    assert cnn.bias_out.grad.any()  # but it can learn one


def test_equal_generators_give_equal_weights():
    one, two = (Cnn(8, 3, rng=generator(3, "cnn")) for _ in range(2))
    assert torch.equal(one.weight_mid, two.weight_mid)
    assert not torch.equal(one.weight_mid, Cnn(8, 3, rng=generator(4, "cnn")).weight_mid)


def test_memory_used_again_holds_nothing_of_before():
    cnn, workspace = make(), Workspace()
    batches = [draw(slots, 16, seed=seed) for seed, slots in enumerate((5, 3, 5, 3))]
    with torch.no_grad():
        again = [cnn(features, workspace) for features in batches]
        fresh = [cnn(features) for features in batches]
    assert all(torch.equal(a, b) for a, b in zip(again, fresh, strict=True))


def test_graphs_that_live_together_do_not_share_memory():
    cnn, workspace = make(), Workspace()
    batches = [draw(5, 16, seed=seed) for seed in range(3)]

    def gradient(features, workspace):
        return torch.autograd.grad(cnn(features, workspace).square().sum(), cnn.weight_mid)[0]

    expected = [gradient(features, Workspace()) for features in batches]
    outputs = [cnn(features, workspace) for features in batches]  # all forward passes before the first backward one
    for output, right in zip(outputs, expected, strict=True):
        for _ in range(2):
            found = torch.autograd.grad(output.square().sum(), cnn.weight_mid, retain_graph=True)[0]
            torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-6)


def test_memory_is_used_again_once_the_graph_is_gone():
    cnn, workspace = make(), Workspace()
    features = draw(5, 16)

    def places():
        lease = workspace.borrow(features[0], 5, 8, 3)
        return lease.buffers.first.data_ptr()

    where = places()
    output = cnn(features, workspace)
    assert places() != where
    del output
    gc.collect()
    assert where in {places() for _ in range(2)}


def test_a_workspace_is_copied_empty():
    workspace = Workspace()
    workspace.borrow(torch.zeros(1, 16), 5, 8, 3)
    assert not copy.deepcopy(workspace)._leases


def test_double_precision_goes_through_a_single_precision_network():
    cnn, features = make(), draw(4, 16, dtype=torch.float64)
    with torch.no_grad():
        assert cnn(features).dtype == torch.float64
    assert cnn(features).dtype == torch.float64
