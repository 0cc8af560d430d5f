"""What was recorded of an agent, beside what the provider saw and answered."""
HEAD = []


def row(gateway, run):
    return []
