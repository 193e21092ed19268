"""`tidegate doctor`: what the promise rests on in a real deployment, with a verdict. Start with `findings.py`."""
