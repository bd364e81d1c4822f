"""What goes wrong: failing file systems, killed processes, full disks, torn tails."""
