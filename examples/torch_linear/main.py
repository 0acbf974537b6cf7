"""A small model whose Linear, bias and GELU are one kernel: train it, and compare with torch's own."""

from __future__ import annotations

import torch

import gemmgen.torch


def loss_after(model: torch.nn.Module, x: torch.Tensor, target: torch.Tensor, steps: int = 20) -> float:
    """The loss after some steps of gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.mse_loss(model(x), target)
    for _ in range(steps):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = torch.nn.functional.mse_loss(model(x), target)
    return loss.item()


def main() -> None:
    """Trains both from the same parameters."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    first, last = torch.nn.Linear(64, 128, device=device), torch.nn.Linear(128, 16, device=device)
    # Copies of the parameters: each model trains its own.
    ours = torch.nn.Sequential(gemmgen.torch.Linear(64, 128, activation="gelu"), gemmgen.torch.Linear(128, 16))
    ours.to(device)
    ours[0].load_state_dict(first.state_dict())
    ours[1].load_state_dict(last.state_dict())
    theirs = torch.nn.Sequential(first, torch.nn.GELU(), last)

    x, target = torch.randn(500, 64, device=device), torch.randn(500, 16, device=device)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    after_ours, after_theirs = loss_after(ours, x, target), loss_after(theirs, x, target)
    print(f"loss after 20 steps: gemmgen {after_ours:.6f}, torch {after_theirs:.6f}")
    assert abs(after_ours - after_theirs) < 1e-3


if __name__ == "__main__":
    main()
