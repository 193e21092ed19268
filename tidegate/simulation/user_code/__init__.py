"""Users' modules of the shapes: they are read as text, and imported only as a part of a plan."""
