"""How the built-in model was made: data, model with gradients, training loop."""
