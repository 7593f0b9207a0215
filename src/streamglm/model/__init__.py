"""The forward pass of `glm5_next`, written as for one device. Knows no processes, files or HTTP."""
