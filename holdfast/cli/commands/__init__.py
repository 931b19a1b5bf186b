"""One file for each group of commands of `holdfast`, named as the command. What they share is in `cli/shared`."""
