"""From logits to the next tokens."""
