"""One file per page; each has `add(app, store)`, which registers its callbacks and returns its content."""
