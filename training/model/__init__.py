"""ling-nano in PyTorch: the form that trains, the form that decodes, and the published number formats between them."""
