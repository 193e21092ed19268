"""Code shared by the processes of the daemon and the slots: logs, file limits, the key of their connections."""
