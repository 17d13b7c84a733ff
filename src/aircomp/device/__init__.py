"""What happens on a device: local training, the update, error feedback."""
