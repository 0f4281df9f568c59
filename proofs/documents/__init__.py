"""What three documents say about placement, sentence by sentence; docs/documents.md maps them."""
