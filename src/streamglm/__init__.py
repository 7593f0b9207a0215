"""A streaming server for GLM-5.3-Flash in which a reply depends on its request alone."""

__version__ = "0.1.0"
