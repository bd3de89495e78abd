"""Topics of dead letters: their letters, the counts of the reasons, and the way back to the topics of origin.

`found` reads a letter of any worker, as far as its headers tell. `reading` reads a topic up to its present ends.
`places` names single letters, `resending` chooses the target of a letter, and `settled` has the letters that were sent
back. `replay` is the shell: it
sends letters and keeps its progress. The single rule: a letter and the note that it was sent back are one transaction.
"""
