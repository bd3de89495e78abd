"""`ottla up`: a cluster whose nodes are processes on this machine, with its data in one folder.

`up` is the command. Other packages also use the folder's layout, the ports, and the requests to running nodes.
"""
