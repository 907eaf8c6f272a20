"""The server half of FedAMP and HeurFedAMP is what Eq. 5 and Eq. 9 say."""

import math

import pytest
import torch

from fedamp.methods import FedAMP, HeurFedAMP, Method
from fedamp.methods.attention import ATTENTION, make_attention, scale, squared_distances
from fedamp.rows import Rows


def models(m: int = 6, d: int = 9, seed: int = 0) -> Rows:
    g = torch.Generator().manual_seed(seed)
    return Rows(
        torch.randn(m, d, dtype=torch.float64, generator=g), torch.randn(m, 2, dtype=torch.float64, generator=g)
    )


def send(method: Method, w: Rows, k: int = 1):
    state, message = method.server_send(method.server_init(w), k)
    return method.diagnostics(state), message


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", sorted(ATTENTION))
def test_gradient_form_is_a_gradient_step(name, seed):
    """U = W - alpha/2 times the gradient of sum_{i<j} A(|w_i - w_j|^2): Eq. 5 as printed has no 2."""
    w, alpha, sigma, theta = models(seed=seed), 0.013, 4.0, 3.0
    method = FedAMP(form="gradient", attention=name, sigma=sigma, theta=theta, alpha=alpha, strict=True)
    diagnostics, message = send(method, w)
    attention = make_attention(name, sigma, theta)
    free = w.params.clone().requires_grad_()
    pairs = [(i, j) for i in range(len(w)) for j in range(i)]
    total = sum(attention(((free[i] - free[j]) ** 2).sum()) for i, j in pairs)
    (gradient,) = torch.autograd.grad(total, free)
    assert gradient.abs().max() > 1e-3
    torch.testing.assert_close(message["u"].params, w.params - alpha / 2 * gradient, rtol=0, atol=1e-12)
    torch.testing.assert_close(diagnostics["xi"].sum(1), torch.ones(6, dtype=torch.float64), rtol=0, atol=1e-12)


def by_hand(scores: torch.Tensor, self_weight: list[float]) -> torch.Tensor:
    m = len(scores)
    xi = torch.zeros(m, m, dtype=torch.float64)
    for i in range(m):
        others = [math.exp(scores[i, j]) for j in range(m) if j != i]
        for j in range(m):
            share = math.exp(scores[i, j]) / sum(others) * (1 - self_weight[i])
            xi[i, j] = self_weight[i] if i == j else share
    return xi


@pytest.mark.parametrize("self_weight", ["uniform", 0.3, [0.0, 0.1, 0.2, 0.3, 0.9, 1.0]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_normalised_form_by_hand(self_weight, dtype):
    w = models()
    w = Rows(w.params.to(dtype), w.buffers.to(dtype))
    diagnostics, message = send(FedAMP(sigma=5.0, self_weight=self_weight), w)
    x = w.params.double()
    scores = torch.tensor([[-float(((a - b) ** 2).sum()) / 5 for b in x] for a in x], dtype=torch.float64)
    vector = {"uniform": [1 / 6] * 6}.get(self_weight) if isinstance(self_weight, str) else self_weight
    xi = by_hand(scores, vector if isinstance(vector, list) else [vector] * 6)
    torch.testing.assert_close(diagnostics["xi"], xi, rtol=0, atol=1e-12)
    torch.testing.assert_close(message["u"].params, (diagnostics["xi"] @ x).to(dtype))
    torch.testing.assert_close(message["u"].buffers, (diagnostics["xi"] @ w.buffers.double()).to(dtype))


@pytest.mark.parametrize("self_weight", [0.0, 0.4])
def test_heurfedamp_by_hand(self_weight):
    w = models(seed=3)
    diagnostics, message = send(HeurFedAMP(sigma=7.0, self_weight=self_weight), w)
    cos = [[float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for b in w.params] for a in w.params]
    xi = by_hand(7 * torch.tensor(cos, dtype=torch.float64), [self_weight] * 6)
    torch.testing.assert_close(diagnostics["xi"], xi, rtol=0, atol=1e-12)
    torch.testing.assert_close(message["u"].params, xi @ w.params, rtol=0, atol=1e-12)


def listened_to(xi: torch.Tensor) -> torch.Tensor:
    """Return whom each client listens to beside itself, as shares."""
    others = xi - torch.diag(xi.diagonal())
    return others / others.sum(1, keepdim=True)


@pytest.mark.parametrize("attention", sorted(ATTENTION))
def test_median_sigma_fits_any_scale(attention):
    w = models()
    for method in (FedAMP(), FedAMP(form="gradient", attention=attention)):
        small, _ = send(method, Rows(1e-3 * w.params, w.buffers))
        large, _ = send(method, Rows(1e3 * w.params, w.buffers))
        torch.testing.assert_close(listened_to(small["xi"]), listened_to(large["xi"]), rtol=1e-9, atol=1e-12)


def test_median_sigma_of_heurfedamp_by_hand():
    w = models(seed=4)
    cos = torch.nn.functional.cosine_similarity(w.params[:, None], w.params, dim=-1)
    pairs = [1 - float(cos[i, j]) for i in range(6) for j in range(i)]
    sigma = 1 / sorted(pairs)[len(pairs) // 2]  # of 15 pairs
    expected, _ = send(HeurFedAMP(sigma=sigma), w)
    found, _ = send(HeurFedAMP(sigma="median"), w)
    assert found["sigma"] == pytest.approx(sigma)
    torch.testing.assert_close(found["xi"], expected["xi"], rtol=0, atol=1e-12)


METHODS = [
    FedAMP(),
    FedAMP(sigma=3.0),
    FedAMP(sigma=math.inf),
    FedAMP(form="gradient"),
    *[FedAMP(form="gradient", attention=name, sigma=2.0) for name in ATTENTION],
    HeurFedAMP(),
    HeurFedAMP(sigma=10.0, self_weight=0.5),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize(
    "params",
    [torch.randn(1, 5), torch.zeros(1, 5), torch.zeros(4, 5), torch.full((4, 5), 0.1), torch.eye(4)[[0, 0, 0, 1]]],
    ids=["one client", "one zero client", "zero rows", "equal clients", "three equal"],
)
def test_degenerate_federations_are_finite(method, params):
    w = Rows.of(params)
    diagnostics, message = send(method, w)
    xi = diagnostics["xi"]
    assert xi.isfinite().all()
    assert (xi >= 0).all()
    torch.testing.assert_close(xi.sum(1), torch.ones(len(w), dtype=torch.float64), rtol=0, atol=1e-12)
    assert message["u"].params.isfinite().all()
    assert message["strength"].params.isfinite().all()
    if (params == params[0]).all():
        torch.testing.assert_close(message["u"].params, params)
        others = xi - torch.diag(xi.diagonal())
        assert torch.allclose(others, others.max() * (1 - torch.eye(len(w), dtype=torch.float64)))


def test_the_papers_schedule():
    strengths = {k: float(send(FedAMP(lam=2.0), models(), k)[1]["strength"].params[0]) for k in (1, 30, 31, 61, 90)}
    assert strengths == pytest.approx({1: 2e-4, 30: 2e-4, 31: 2e-3, 61: 2e-2, 90: 2e-2})


def test_lowered_alpha_is_one_value_for_all_clients_and_both_equations():
    w = models()
    diagnostics, message = send(FedAMP(form="gradient", sigma=10.0, alpha=1e4, lam=3.0), w)
    alpha = diagnostics["alpha"]
    assert alpha < 1e4
    distances = ((w.params[:, None] - w.params) ** 2).sum(-1)
    off = alpha * torch.exp(-distances / 10) / 10 * (1 - torch.eye(6))
    torch.testing.assert_close(diagnostics["xi"] * (1 - torch.eye(6)), off, rtol=1e-12, atol=0)
    assert diagnostics["self_weight"].min() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(
        message["strength"].params, torch.full((6, 1), 3 / alpha, dtype=torch.float64), rtol=1e-12, atol=0
    )
    assert any("lowered from 10000 to" in event for event in diagnostics["events"])
    with pytest.raises(ValueError, match="alpha=10000 makes a self weight negative"):
        send(FedAMP(form="gradient", sigma=10.0, alpha=1e4, strict=True), w)


@pytest.mark.parametrize("kind", [FedAMP, HeurFedAMP])
def test_sharpness_divides_the_scale(kind):
    w = models()
    fitted = send(kind(sigma="median"), w)[0]["sigma"]
    by_number = fitted / 4 if kind is FedAMP else fitted * 4
    sharp = send(kind(sigma="median", sharpness=4.0), w)[0]
    assert sharp["sigma"] == pytest.approx(by_number, rel=1e-12)
    torch.testing.assert_close(sharp["xi"], send(kind(sigma=by_number), w)[0]["xi"], rtol=1e-9, atol=1e-12)


def test_local_sigma_by_hand():
    """Three models on a line at 0, 1 and 3: squared distances 1, 9 and 4, of which each client sees two."""
    w = Rows.of(torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64))
    xi = send(FedAMP(sigma="local", sharpness=2.0, self_weight=0.0), w)[0]["xi"]
    # nanmedian takes the lower of two: scales 1, 1 and 4; sigma is half of that.
    for row, (near, far, sigma) in enumerate([(1, 9, 0.5), (1, 4, 0.5), (4, 9, 2.0)]):
        ratio = math.exp(-near / sigma) / (math.exp(-near / sigma) + math.exp(-far / sigma))
        assert float(xi[row].max()) == pytest.approx(ratio, rel=1e-12)


def test_spread_by_hand():
    """The same three: around their means 5, 2.5 and 6.5, the two that each sees lie 4, 1.5 and 2.5 away."""
    w = Rows.of(torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64))
    xi = send(FedAMP(sigma="spread", self_weight=0.0), w)[0]["xi"]
    ratio = 1 / (1 + math.exp(-2))  # of two that differ by two standard deviations, whoever they are
    assert xi.max(1).values.tolist() == pytest.approx([ratio] * 3, rel=1e-12)


@pytest.mark.parametrize("kind", [FedAMP, HeurFedAMP])
def test_spread_does_not_care_how_far_all_of_them_are(kind):
    """A part of its own for each client moves all pairs apart alike: the weights stay, and the median's don't."""
    w = torch.cat([models().params, torch.zeros(6, 6, dtype=torch.float64)], 1)
    if kind is HeurFedAMP:  # of one length: then 1 - cos is half the squared distance, for any scale
        w = w / w.norm(dim=1, keepdim=True)
    apart = w + 5 * torch.nn.functional.pad(torch.eye(6, dtype=torch.float64), (w.shape[1] - 6, 0))
    for word, same in (("spread", True), ("median", False)):
        near, far = (send(kind(sigma=word), Rows.of(rows))[0]["xi"] for rows in (w, apart))
        assert torch.allclose(near, far, rtol=1e-6) == same


@pytest.mark.parametrize("sigma", [10.0, "median", "local", "spread"])
@pytest.mark.parametrize(("m", "astray"), [(7, [0]), (7, [6]), (9, [0, 4]), (20, [0, 1, 2, 3, 19])])
def test_models_that_have_gone_astray_change_nothing_between_the_others(sigma, m, astray):
    """Seen from one of them, all others would be one: 1e12 squared leaves no digit for distances of about 18."""
    w = models(m).params
    w[astray] *= 1e12
    others = [i for i in range(m) if i not in astray]
    distances = squared_distances(w)[others][:, others]
    torch.testing.assert_close(distances, squared_distances(w[others]), rtol=1e-12, atol=0)
    diagnostics, message = send(FedAMP(sigma=sigma, self_weight=0.0), Rows.of(w))
    assert diagnostics["xi"][others][:, astray].abs().max() == 0
    assert message["u"].params[others].abs().max() < 5


@pytest.mark.parametrize("word", ["local", "spread"])
@pytest.mark.parametrize("kind", [FedAMP, HeurFedAMP])
def test_a_clients_own_scale_is_the_median_where_all_are_equally_far(kind, word):
    w = Rows.of(torch.eye(5, dtype=torch.float64))
    median, own = (send(kind(sigma=word), w)[0]["xi"] for word in ("median", word))
    torch.testing.assert_close(own, median, rtol=1e-12, atol=0)


@pytest.mark.parametrize("word", ["local", "spread"])
@pytest.mark.parametrize("kind", [FedAMP, HeurFedAMP])
@pytest.mark.parametrize("rows", [torch.ones(4, 3), torch.ones(1, 3), torch.tensor([[1.0, 0]] * 3 + [[0, 1.0]])])
def test_a_clients_own_scale_among_equal_models_is_a_number(kind, word, rows):
    found = send(kind(sigma=word), Rows.of(rows.double()))[0]
    assert found["xi"].isfinite().all()
    torch.testing.assert_close(found["xi"].sum(1), torch.ones(len(rows), dtype=torch.float64))


def test_rounding_between_twins_is_no_scale():
    """Three clients have one model, but for rounding, and two are 4 away from everyone: everyone's scale is 4."""
    distances = torch.full((5, 5), 4.0, dtype=torch.float64).fill_diagonal_(0)
    distances[2:, 2:] = 0
    distances[2, 3:] = distances[3:, 2] = 1e-15
    assert scale(distances, "local").flatten().tolist() == [4.0] * 5


SEPARATE = "Separate under another name"


@pytest.mark.parametrize(
    ("method", "cure"),
    [
        (FedAMP(form="gradient", sigma=1e-4), "Raise sigma"),
        (FedAMP(self_weight=1.0), "Lower self_weight"),
        (HeurFedAMP(self_weight=0.9995), "Lower self_weight"),
        (FedAMP(lam=0.0, start="w"), "start=u"),
    ],
)
def test_a_word_when_it_is_separate(method, cure):
    events = send(method, models())[0]["events"]
    assert len(events) == 1
    assert SEPARATE in events[0]
    assert cure in events[0]


def test_a_word_when_the_pull_is_too_strong():
    """Self weights near 1 are then not the point: such a client does not train alone, it does not train."""
    events = send(FedAMP(form="gradient", alpha=1e-9), models())[0]["events"]
    assert len(events) == 1
    assert "hardly moves" in events[0]
    assert "Raise alpha or lower lam" in events[0]


@pytest.mark.parametrize(
    "method", [FedAMP(), HeurFedAMP(), FedAMP(self_weight=0.99), FedAMP(self_weight=[1, 1, 1, 1, 1, 0.9])]
)
def test_no_word_when_clients_listen(method):
    assert send(method, models())[0]["events"] == []


def test_diagnostics_of_a_round():
    diagnostics, _ = send(HeurFedAMP(self_weight=0.25), models())
    assert diagnostics["xi"].shape == (6, 6)
    assert diagnostics["self_weight"].tolist() == [0.25] * 6
    assert diagnostics["alpha"] == 1e4
    assert ((diagnostics["effective_clients"] > 1) & (diagnostics["effective_clients"] <= 6)).all()


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"form": "gradiant"}, "did you mean 'gradient'"),
        ({"sigma": "mean"}, "number above 0 or 'median' or 'local' or 'spread'"),
        ({"sigma": "local", "form": "gradient"}, "number above 0 or 'median'"),
        ({"sharpness": 2.0, "sigma": 3.0}, "leave one of them out"),
        ({"sharpness": 0.0}, "sharpness is 0.0"),
        ({"alpha_every": 0}, "alpha_every is 0"),
        ({"alpha_every": 10, "alpha": 5.0}, "leave one of them out"),
        ({"sigma": 0.0}, "sigma is 0.0"),
        ({"sigma": math.inf, "form": "gradient"}, "finite"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"alpha": "fast"}, "number above 0 or 'paper'"),
        ({"lam": -1.0}, "lam is -1.0"),
        ({"start": "v"}, "choose from u, w"),
        ({"attention": "scad"}, "use form='gradient'"),
        ({"form": "gradient", "self_weight": 0.5}, "leave it out"),
        ({"self_weight": "oracle"}, "true groups"),
        ({"strict": "yes"}, "true or false"),
    ],
)
def test_bad_hyperparameters(wrong, word):
    with pytest.raises(ValueError, match=word):
        FedAMP(**wrong)
