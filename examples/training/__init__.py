"""What the training examples share: a loop over any task, in one process or several, that may be killed at any time.

In reading order: `settings` (the numbers of a run), `order` (which examples a step sees), `ranks` (several processes),
`batch` (what a task gives to the loop), `loop` (a step, an evaluation), `curve`, `checkpoint` (what a killed run goes
on from), `file` (how it is written), `screen`, `command` (the command line). `text` and `numerals` are the data.
"""
