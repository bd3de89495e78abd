"""Runs a program in a pseudo terminal, and prints its screen whenever it has changed.

python screen.py PROGRAM ARGUMENT...
"""

import ctypes
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios

import pyte

LINES, COLUMNS = 40, 150
QUIET_S = 0.3
PR_SET_PDEATHSIG = 1

child, terminal = pty.fork()
if child == 0:
    # The program is in a separate session, which no signal to this process's group reaches.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    os.environ["TERM"] = "xterm-256color"
    os.execvp(sys.argv[1], sys.argv[1:])
screen = pyte.Screen(COLUMNS, LINES)
stream = pyte.ByteStream(screen)
shown: list[str] = []
while True:
    if select.select([terminal], [], [], QUIET_S)[0]:
        try:
            stream.feed(os.read(terminal, 65536))
        except OSError:  # it has ended
            break
    elif shown != screen.display:
        shown = list(screen.display)
        print("\n".join(line.rstrip() for line in shown if line.strip()), flush=True)
