"""One module per API family: what each request means, written as methods registered with `@handles`."""
