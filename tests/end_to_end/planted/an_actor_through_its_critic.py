"""The actor's loss goes back through all weights of a large critic, whose next zero_grad() discards their gradients."""

import torch
from torch import nn


def network(inputs, outputs, width):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def main():
    actor, critic = network(24, 6, 64), network(30, 1, 768)
    of_actor = torch.optim.SGD(actor.parameters(), lr=1e-4)
    of_critic = torch.optim.SGD(critic.parameters(), lr=1e-3)
    states, actions = torch.randn(20_000, 24), torch.randn(20_000, 6)
    rewards = states[:, :1] * actions[:, :1]
    for _ in range(1_000_000):
        chosen = torch.randint(20_000, (256,))
        value = critic(torch.cat([states[chosen], actions[chosen]], 1))
        of_critic.zero_grad()
        nn.functional.mse_loss(value, rewards[chosen]).backward()
        of_critic.step()

        of_actor.zero_grad()
        (-critic(torch.cat([states[chosen], actor(states[chosen])], 1)).mean()).backward()
        of_actor.step()


if __name__ == "__main__":
    main()
