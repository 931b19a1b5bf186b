"""What every command uses: its frame and options, how it speaks, its settings, and how it fails."""
