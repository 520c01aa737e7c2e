"""GoSGD in thirty lines of numpy: what rumor does, without the network."""

import numpy as np

rng = np.random.default_rng(0)
n_peers, n_params, p, lr = 8, 10, 0.1, 0.005
optimum = rng.normal(size=(n_peers, n_params))  # where each peer alone would end
x = np.zeros((n_peers, n_params))  # one model each
w = np.ones(n_peers)  # one weight each
inbox: list[list[tuple[np.ndarray, float]]] = [[] for _ in range(n_peers)]

for _ in range(20_000):
    i = rng.integers(n_peers)  # any peer, at any time: none waits for another

    for share, weight in inbox[i]:  # 1. mix what has arrived
        x[i] += weight / (w[i] + weight) * (share - x[i])
        w[i] += weight
    inbox[i].clear()

    x[i] -= lr * (x[i] - optimum[i])  # 2. take an optimizer step

    if rng.random() < p:  # 3. now and then push half of the weight to a neighbor
        j = rng.choice([k for k in range(n_peers) if k != i])
        w[i] /= 2
        inbox[j].append((x[i].copy(), w[i]))

total = w.sum() + sum(weight for box in inbox for _, weight in box)
print(f"total weight {total}: nothing is lost")
alone, together = optimum - optimum.mean(0), x - optimum.mean(0)
print(f"distance to the common optimum, alone    {np.linalg.norm(alone, axis=1).mean():.2f}")
print(f"distance to the common optimum, together {np.linalg.norm(together, axis=1).mean():.2f}")
