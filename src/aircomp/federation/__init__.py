"""The federated simulator: data, partition, models, rounds, runs."""
