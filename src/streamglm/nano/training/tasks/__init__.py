"""What conversations are about: one module an ability."""
