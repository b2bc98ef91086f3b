"""What bad input is answered with."""


class Refused(Exception):
    """A configuration or an option that cannot be; the message is one line."""
