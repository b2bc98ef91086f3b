"""What `sharded.py` is made of: `block` and `llama` (models and how they are cut), `tables` (what is printed)."""
