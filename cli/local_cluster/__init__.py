"""`ottla up`: a cluster of processes on this machine, in one folder.

`up` is the command. Other packages also use the folder's layout, the ports, and the requests to running nodes.
"""
