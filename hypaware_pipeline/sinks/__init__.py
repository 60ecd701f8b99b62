"""Where rows go: encoders, stores, and what pairs them."""
