"""`ottla up`: a cluster of processes on this machine, in one folder.

`up` is the command. The layout of the folder, the ports, and the questions to running nodes are used by others too.
"""
