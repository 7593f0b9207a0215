"""From a checkpoint's files to the parameters of one rank."""
