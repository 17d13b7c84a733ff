r"""What theory allows for the error of a mean over white noise: for Gaussian numbers, each pair of devices correlated alike.

With $K$ devices, $\Gamma$ the SNR of all together, the correlation $\rho$ and $R$ real channel uses a number:

- **Cut-set.** Were any $m$ devices to send together while the base station knew all others, the error were at least
  $$\max_m \frac{m(1-\rho)}{K(1+(K-m-1)\rho)}\Bigl(1+\tfrac{m\Gamma}K\bigl(1+(m-1)\rho\bigr)\Bigr)^{-R}.$$
  The fraction is the variance of the sum of $m$, given the others, over that of all. No scheme is below.
- **Ideal modulo lattice.** An uncoded stage of energy $E_1$ leaves $1/(1+E_1\Gamma(1+(K-1)\rho))$. A stage of energy $e$
  behind it sends remainders, and divides the error by $(1+e\Gamma)/K$ (Kochman and Zamir; Nazer and Gastpar). Energies add up
  to $R$, and a stage takes a use. With less than one use, so many numbers are sent.

Updates are not Gaussian: who knows which of their parameters are large, or has an update of its own, may do better.
"""

STEPS = 320
"""Into which the energy of a round is split to find the best split."""


def cut_set(snr_db: float, devices: int, correlation: float, uses: float) -> float:
    """Return the least NMSE of the mean that any scheme can have.

    >>> round(10 * math.log10(cut_set(10.0, 10, 0.2, 3.2)), 1)
    -24.8
    """
    snr, k, rho = 10 ** (snr_db / 10), devices, correlation
    return max(
        m * (1 - rho) / (k * (1 + (k - m - 1) * rho)) * (1 + m * snr / k * (1 + (m - 1) * rho)) ** -uses
        for m in range(1, k + 1)
        if 1 + (k - m - 1) * rho > 0
    )


def modulo_lattice(snr_db: float, devices: int, correlation: float, uses: float) -> float:
    """Return the NMSE of uncoded transmission with up to two ideal modulo stages behind it.

    >>> round(10 * math.log10(modulo_lattice(20.0, 10, 0.2, 3.2)), 1)
    -45.4
    """
    if uses < 1:
        return 1 - uses + uses * modulo_lattice(snr_db, devices, correlation, 1.0)
    snr, k = 10 ** (snr_db / 10), devices

    def left(uncoded: float, stages: int) -> float:
        each = (uses - uncoded) / max(stages, 1)
        return (k / (1 + each * snr)) ** stages / (1 + uncoded * snr * (1 + (k - 1) * correlation))

    splits = [uses * step / STEPS for step in range(1, STEPS + 1)]
    return min([left(uses, 0), *(left(first, stages) for first in splits for stages in range(1, min(int(uses), 3)))])
