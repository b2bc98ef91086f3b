"""What `size_a_model.py` is made of.

In reading order: `published` (configurations by name), `described` (by their sizes), `files` (from a file), `bill`
(what one of them takes), `tables` and `picture` (how that is shown), `mistake` (what bad input is answered with).
"""
